//! Errors of starting an export.

use std::io;
use std::path::PathBuf;

/// Error of a server that was not started. The failed start leaves nothing behind.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {}: another process is serving there", path.display())]
    SocketInUse { path: PathBuf },

    #[error(
        "cannot listen on {}: there is a file that is not a socket; move it away", path.display()
    )]
    NotASocket { path: PathBuf },

    #[error("cannot listen on {}", path.display())]
    Listen { path: PathBuf, source: io::Error },

    #[error("cannot start the threads that serve clients")]
    Thread { source: io::Error },
}
