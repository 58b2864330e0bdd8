//! Errors while loading TLS settings.

use std::error::Error;
use std::path::PathBuf;

/// Unusable TLS files. Settings that were loaded earlier remain in force.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot use {} for TLS", path.display())]
    File { path: PathBuf, source: Box<dyn Error + Send + Sync> },

    #[error("cannot use the certificate in {} with its key", path.display())]
    Pair { path: PathBuf, source: Box<dyn Error + Send + Sync> },
}
