//! Socket to a broker, and frames on it: four bytes of length, then that many bytes.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::error::{ClientError, ErrorKind};
use crate::tls::TlsTrust;

/// Size of a frame's length field.
pub(crate) const LENGTH_BYTES: usize = 4;

/// Minimum length of a response, which is its correlation id.
const RESPONSE_BYTES_MIN: usize = 4;

/// Byte stream to a broker, plain or TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Both directions of a connection.
pub(crate) struct Transport {
    pub(crate) reader: ReadHalf<Box<dyn Stream>>,
    pub(crate) writer: WriteHalf<Box<dyn Stream>>,
}

/// Opens a TCP connection with `TCP_NODELAY`.
pub(crate) async fn connect_tcp(
    address: &str,
    time_max: Duration,
) -> Result<TcpStream, ClientError> {
    let failed = || {
        let context = format!("cannot connect to broker {address}; check that it runs");
        ClientError::new(ErrorKind::Unreachable, context)
    };
    let connecting = timeout(time_max, TcpStream::connect(address)).await;
    let stream = match connecting {
        Ok(connected) => connected.map_err(|error| failed().because(error))?,
        Err(_) => return Err(failed().because(format!("timed out after {time_max:?}"))),
    };
    stream.set_nodelay(true).map_err(|error| failed().because(error))?;
    Ok(stream)
}

pub(crate) async fn connect(
    address: &str,
    tls: Option<&TlsTrust>,
    time_max: Duration,
) -> Result<Transport, ClientError> {
    let stream = connect_tcp(address, time_max).await?;
    let stream: Box<dyn Stream> = match tls {
        None => Box::new(stream),
        Some(trust) => {
            let host = host_of(address);
            let encrypting = timeout(time_max, trust.encrypt(stream, host)).await;
            Box::new(encrypting.map_err(|_| {
                let context = format!("TLS handshake with {address} timed out after {time_max:?}");
                ClientError::new(ErrorKind::TimedOut, context)
            })??)
        }
    };
    let (reader, writer) = tokio::io::split(stream);
    Ok(Transport { reader, writer })
}

/// Returns the host in `HOST:PORT`, without the brackets of an IPv6 address.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Validates the length of a response.
pub(crate) fn response_bytes(
    length: i32,
    bytes_max: usize,
    address: &str,
) -> Result<usize, ClientError> {
    match usize::try_from(length) {
        Ok(length) if (RESPONSE_BYTES_MIN..=bytes_max).contains(&length) => Ok(length),
        _ => Err(ClientError::protocol(format!(
            "the broker {address} announced a response of {length} bytes; {RESPONSE_BYTES_MIN} to \
             {bytes_max} are allowed; does the port require TLS?"
        ))),
    }
}

/// Reads the next response into `frame`, without its length field.
pub(crate) async fn read_frame(
    reader: &mut (impl AsyncRead + Unpin),
    frame: &mut BytesMut,
    address: &str,
    bytes_max: usize,
) -> Result<(), ClientError> {
    let ended = || {
        let context = format!("broker {address} closed the connection");
        ClientError::new(ErrorKind::Unreachable, context)
    };
    let length = reader.read_i32().await.map_err(|error| ended().because(error))?;
    let length = response_bytes(length, bytes_max, address)?;
    frame.clear();
    frame.reserve(length);
    let mut rest = reader.take(length as u64);
    while frame.len() < length {
        let count = rest.read_buf(frame).await.map_err(|error| ended().because(error))?;
        if count == 0 {
            let held = frame.len();
            return Err(ended().because(format!("after {held} of {length} bytes of a response")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_without_its_port() {
        assert_eq!(host_of("localhost:9092"), "localhost");
        assert_eq!(host_of("[::1]:9092"), "::1");
    }
}
