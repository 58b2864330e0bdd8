//! Errors of starting an export.

use std::io;
use std::path::PathBuf;

/// Error of a server that was not started. The failed start leaves nothing behind.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {}: another process listens on it", path.display())]
    SocketInUse { path: PathBuf },

    #[error(
        "cannot listen on {}: the file exists and is not a socket; remove it", path.display()
    )]
    NotASocket { path: PathBuf },

    #[error("cannot listen on {}", path.display())]
    Listen { path: PathBuf, source: io::Error },

    #[error("cannot start threads for clients")]
    Thread { source: io::Error },
}
