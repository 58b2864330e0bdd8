//! Errors of encryption keys.

use std::path::PathBuf;

use crate::key_id::KeyId;

/// Error while reading, generating or unwrapping a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot read the encryption key in {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot use the encryption key in {}: {why}", path.display())]
    Refused { path: PathBuf, why: String },
    /// A different wrapping key wrapped the data key.
    #[error(
        "the data key is wrapped by the encryption key {wanted}, and the configured key is \
         {configured}; configure the key that wrapped it"
    )]
    OtherKey { wanted: KeyId, configured: String },
    /// The key ids match, but authentication failed.
    #[error("the wrapped data key is corrupt")]
    Damaged,
    #[error("cannot get random bytes for a key: {0}")]
    NoRandomness(String),
}
