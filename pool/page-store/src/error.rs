//! What can go wrong with a pool.

/// Why a region cannot be opened as a pool.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(pub String);
