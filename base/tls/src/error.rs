//! Why files give no TLS settings.

use std::error::Error;
use std::path::PathBuf;

/// Files that cannot be used. Settings that were loaded before stay as they are.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot use {} for TLS", path.display())]
    File { path: PathBuf, source: Box<dyn Error + Send + Sync> },

    #[error("cannot use the certificate in {} with its key", path.display())]
    Pair { path: PathBuf, source: Box<dyn Error + Send + Sync> },
}
