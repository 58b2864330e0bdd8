//! Why a server could not be started.

use std::io;
use std::path::PathBuf;

/// A server that was not started. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot listen on {}: another process is serving there", path.display())]
    SocketInUse { path: PathBuf },

    #[error(
        "cannot listen on {}: there is a file that is not a socket; move it away", path.display()
    )]
    NotASocket { path: PathBuf },

    #[error("cannot listen on {}", path.display())]
    Listen { path: PathBuf, source: io::Error },

    #[error("cannot start the thread that accepts clients of the ring")]
    Thread { source: io::Error },
}
