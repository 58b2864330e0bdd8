//! Errors while a server starts.

use std::io;
use std::net::SocketAddr;

use export_kit::StartError;
use tls::TlsError;

/// Error that prevents the start of a server. No socket and no thread remain.
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
