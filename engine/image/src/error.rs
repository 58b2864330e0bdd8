//! What can go wrong with images.

use std::error::Error;
use std::fmt;

use storage::{StorageError, StorageErrorKind};

/// The class of a refused or failed operation on images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageErrorKind {
    /// There is no such image, pack or folder.
    NotFound,
    /// The name is taken, so somebody else wrote it.
    AlreadyExists,
    /// Stored bytes are not those that were written.
    Damaged,
    /// A newer version of this program wrote it.
    Newer,
    /// Another writer has claimed the store.
    Fenced,
    /// The owner asked to stop.
    Cancelled,
    /// What was being saved was given up, because its memory was needed. Another time will do.
    GaveWay,
    NoSpace,
    /// The pool has no memory for what the image has.
    PoolFull,
    /// Owner, mode or credentials do not allow it.
    Denied,
    /// The disk or the connection failed.
    Unavailable,
    /// The request makes no sense for this store.
    Invalid,
    /// The image is needed by volumes that are not restored yet.
    InUse,
}

impl fmt::Display for ImageErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "it does not exist",
            Self::AlreadyExists => "it exists already",
            Self::Damaged => "its bytes are damaged",
            Self::Newer => "a newer version wrote it; read it with that version",
            Self::Fenced => "another writer has claimed the store; stop one of the two",
            Self::Cancelled => "it was cancelled",
            Self::GaveWay => {
                "writers in the full pool needed the memory that the save kept; it is tried again. \
                 Make the pool larger, or delete something"
            }
            Self::NoSpace => "no space is left; free some, or keep fewer images",
            Self::PoolFull => "the pool has no free memory left; enlarge it, or delete something",
            Self::Denied => "access is denied; check owner, mode and credentials",
            Self::Unavailable => "the store failed",
            Self::Invalid => "that cannot be done here",
            Self::InUse => "volumes still read from it; wait until they are restored",
        })
    }
}

/// A refused or failed operation. `kind` is for programs, the whole chain for people.
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt}: {kind}")]
pub struct ImageError {
    pub kind: ImageErrorKind,
    /// What was attempted and on what: "read 8192 bytes at 4096 of pack …".
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

    /// What an error of the storage below means here.
    pub(crate) fn from_storage(source: StorageError, attempt: impl Into<String>) -> Self {
        let kind = match source.kind {
            StorageErrorKind::NoSpace => ImageErrorKind::NoSpace,
            StorageErrorKind::NotFound => ImageErrorKind::NotFound,
            StorageErrorKind::AlreadyExists => ImageErrorKind::AlreadyExists,
            StorageErrorKind::Denied => ImageErrorKind::Denied,
            StorageErrorKind::Busy => ImageErrorKind::Fenced,
            StorageErrorKind::Invalid(_) => ImageErrorKind::Invalid,
            StorageErrorKind::Io => ImageErrorKind::Unavailable,
        };
        Self::new(kind, attempt).with_source(source)
    }
}

/// Why bytes were not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disbelief {
    /// They were never finished: the writer was killed.
    Unfinished,
    /// They say, or contradict, what no writer of this format wrote.
    Damaged(&'static str),
    /// They are of this later version.
    Newer(u32),
}

impl Disbelief {
    pub(crate) fn kind(self) -> ImageErrorKind {
        match self {
            Self::Unfinished | Self::Damaged(_) => ImageErrorKind::Damaged,
            Self::Newer(_) => ImageErrorKind::Newer,
        }
    }

    pub(crate) fn error(self, attempt: impl Into<String>) -> ImageError {
        ImageError::new(self.kind(), attempt).with_source(self)
    }
}

impl fmt::Display for Disbelief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfinished => f.write_str("it was never finished"),
            Self::Damaged(what) => f.write_str(what),
            Self::Newer(version) => write!(f, "it is of version {version}"),
        }
    }
}

impl Error for Disbelief {}
