//! Errors of images.

use std::error::Error;

use storage::{StorageError, StorageErrorKind};

/// Kind of a rejected or failed operation on images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageErrorKind {
    /// No such image, pack or folder.
    #[error("it does not exist")]
    NotFound,
    /// Another writer has created an object under this name.
    #[error("it exists already")]
    AlreadyExists,
    /// The stored bytes differ from those that were written.
    #[error("it is corrupt")]
    Damaged,
    /// A manifest whose header was never written: it is no image, and may become one.
    #[error("its writer has not finished it, or was killed")]
    Unfinished,
    #[error("a newer version wrote it; read it with that version")]
    Newer,
    /// The store is encrypted and the key is missing or wrong, or the store is not encrypted and a
    /// key is configured.
    #[error("its encryption does not match the configured key; see encryption-key-file")]
    Key,
    /// Another writer claimed the store after this one. Permanent for this writer.
    #[error(
        "another daemon has taken over this image store, so this one cannot save or delete images \
         any more; stop it, and use the volumes of the other"
    )]
    Fenced,
    /// Another process on this host has locked the folder.
    #[error(
        "another daemon of this host writes to this image store; stop it, or set store in [images] \
         to another directory"
    )]
    Locked,
    /// Cancelled by the owner.
    #[error("it was cancelled")]
    Cancelled,
    #[error(
        "the pool is full and writers needed the memory of the save; the save is retried. \
         Enlarge the pool, or delete data"
    )]
    GaveWay,
    #[error("no space left; free space, or keep fewer images")]
    NoSpace,
    #[error("the pool has no free memory left; enlarge it, or delete something")]
    PoolFull,
    #[error("access is denied; check owner, mode and credentials")]
    Denied,
    /// The disk or the connection failed.
    #[error("the store failed")]
    Unavailable,
    /// The request is invalid for this store.
    #[error("not supported")]
    Invalid,
    #[error("volumes are still being restored from it; wait until the restore is done")]
    InUse,
}

/// A rejected or failed operation. Programs match on `kind`. Logs show the whole chain.
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt}: {kind}")]
pub struct ImageError {
    pub kind: ImageErrorKind,
    /// Attempted operation with its object: "read 8192 bytes at 4096 of pack …".
    pub attempt: String,
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl ImageError {
    pub fn new(kind: ImageErrorKind, attempt: impl Into<String>) -> Self {
        Self { kind, attempt: attempt.into(), source: None }
    }

    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Converts an error of the storage layer, adding the attempted operation.
    pub(crate) fn storage(attempt: impl FnOnce() -> String) -> impl FnOnce(StorageError) -> Self {
        |source| {
            let kind = match source.kind {
                StorageErrorKind::NoSpace => ImageErrorKind::NoSpace,
                StorageErrorKind::NotFound => ImageErrorKind::NotFound,
                StorageErrorKind::AlreadyExists => ImageErrorKind::AlreadyExists,
                StorageErrorKind::Denied => ImageErrorKind::Denied,
                StorageErrorKind::Busy => ImageErrorKind::Locked,
                StorageErrorKind::Invalid(_) => ImageErrorKind::Invalid,
                StorageErrorKind::Io => ImageErrorKind::Unavailable,
            };
            Self::new(kind, attempt()).with_source(source)
        }
    }
}

/// Reason for which bytes were rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Disbelief {
    /// The writer was killed.
    #[error("it is incomplete")]
    Unfinished,
    /// Contents that no writer of this format produces.
    #[error("{0}")]
    Damaged(&'static str),
    #[error("it is of version {0}")]
    Newer(u32),
    #[error("it is encrypted, and no key is configured")]
    Sealed,
    #[error("it is encrypted by another data key")]
    OtherKey,
    #[error("it is not encrypted")]
    NotSealed,
}

impl Disbelief {
    pub(crate) fn kind(self) -> ImageErrorKind {
        match self {
            Self::Unfinished => ImageErrorKind::Unfinished,
            Self::Damaged(_) => ImageErrorKind::Damaged,
            Self::Newer(_) => ImageErrorKind::Newer,
            Self::Sealed | Self::OtherKey | Self::NotSealed => ImageErrorKind::Key,
        }
    }

    pub(crate) fn error(self, attempt: impl Into<String>) -> ImageError {
        ImageError::new(self.kind(), attempt).with_source(self)
    }
}
