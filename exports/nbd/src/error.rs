//! Errors of the start of a server.

use std::io;
use std::net::SocketAddr;

use export_kit::StartError;
use tls::TlsError;

/// Error of a server that was not started. It leaves no socket and no thread behind.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(
        "cannot serve NBD on {address} without TLS: configure a certificate and a key, or listen \
         on a loopback address"
    )]
    TlsRequired { address: SocketAddr },

    #[error(
        "cannot serve NBD on {address}: every host that reaches it could write every volume; \
         require client certificates (nbd-tls-client-ca), or allow everybody (nbd-insecure)"
    )]
    Unprotected { address: SocketAddr },

    #[error(transparent)]
    Start(#[from] StartError),

    #[error("cannot listen on {address}")]
    ListenTcp { address: SocketAddr, source: io::Error },

    #[error(transparent)]
    Tls(#[from] TlsError),
}
