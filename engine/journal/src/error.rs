//! Errors of a journal.

use std::error::Error;

use storage::{StorageError, StorageErrorKind};

use crate::format::{FormatError, FormatErrorKind};

/// Kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalErrorKind {
    /// The disk failed; the source has the details.
    #[error("disk I/O error")]
    Disk,
    /// A write has not ended for too long.
    #[error("its disk does not respond; check the kernel log (dmesg), and try again")]
    Hanging,
    #[error("the disk is full; free space on it")]
    NoSpace,
    #[error("the journal has reached its maximum size; save an image, or raise max-bytes")]
    Limit,
    /// A required part of the journal is corrupt.
    #[error("the journal is corrupt; restore an image or a copy of the journal")]
    Damaged,
    #[error("a journal segment is missing; bring it back, or the image that replaced it")]
    Missing,
    #[error("the journal belongs to another pool; configure the journal of this pool")]
    Foreign,
    #[error("the journal's encryption does not match the configured key; see encryption-key-file")]
    Key,
    #[error("a newer release wrote the journal; use that release")]
    Newer,
    /// The volume needs an image first: no image contains its contents from before it was
    /// journaled.
    #[error("no image contains its data; save an image first")]
    Unanchored,
    /// The restoring program rejected a change in the journal.
    #[error("cannot replay the journal")]
    Refused,
    #[error("the journal is closing")]
    Stopped,
    #[error("invalid request")]
    Invalid,
}

/// A failure, with the operation and the object it concerns.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {kind}")]
pub struct JournalError {
    pub kind: JournalErrorKind,
    pub what: String,
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl JournalError {
    pub(crate) fn new(kind: JournalErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), source: None }
    }

    pub(crate) fn storage(what: impl Into<String>, source: StorageError) -> Self {
        let kind = match source.kind {
            StorageErrorKind::NoSpace => JournalErrorKind::NoSpace,
            StorageErrorKind::NotFound => JournalErrorKind::Missing,
            _ => JournalErrorKind::Disk,
        };
        Self { kind, what: what.into(), source: Some(Box::new(source)) }
    }

    pub(crate) fn format(what: impl Into<String>, source: FormatError) -> Self {
        let kind = match source.kind {
            FormatErrorKind::Newer(_) => JournalErrorKind::Newer,
            _ => JournalErrorKind::Damaged,
        };
        Self { kind, what: what.into(), source: Some(Box::new(source)) }
    }

    /// Formats the error and its sources in one line.
    pub(crate) fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut next = self.source();
        while let Some(error) = next {
            text = format!("{text}: {error}");
            next = error.source();
        }
        text
    }
}
