//! TLS for PostgreSQL connections, with the settings of Kafka connections.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use kafka_client::TlsTrust;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// Encrypts connections if trusted certificates are configured.
#[derive(Clone)]
pub(super) struct Tls {
    trust: Option<TlsTrust>,
    host: Arc<str>,
}

impl Tls {
    pub(super) fn new(trust: Option<TlsTrust>) -> Self {
        Self { trust, host: Arc::from("") }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.trust.is_some()
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type TlsConnect = Self;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Self, io::Error> {
        Ok(Self { trust: self.trust.clone(), host: Arc::from(host) })
    }
}

impl TlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move {
            let trust =
                self.trust.ok_or_else(|| io::Error::other("the file holds no CA certificate"))?;
            let encrypted = trust.encrypt(stream, &self.host).await.map_err(io::Error::other)?;
            Ok(Encrypted(encrypted))
        })
    }
}

/// An encrypted connection.
pub(super) struct Encrypted(kafka_client::TlsStream<Socket>);

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
