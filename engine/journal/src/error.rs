//! Errors of a journal.

use std::error::Error;

use storage::{StorageError, StorageErrorKind};

use crate::format::{FormatError, FormatErrorKind};

/// The class of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalErrorKind {
    /// The source says how.
    #[error("the disk failed")]
    Disk,
    #[error("the disk is full; make room on it")]
    NoSpace,
    #[error("the journal is as long as it may be; complete a checkpoint, or allow it more")]
    Limit,
    /// What must be there is not as it was written.
    #[error("the journal is damaged; go back to an image or a copy of the journal")]
    Damaged,
    #[error("a part of the journal is missing; bring it back, or the image that replaced it")]
    Missing,
    #[error("it belongs to another pool; name the journal of this one")]
    Foreign,
    #[error("a later program wrote it; use that one")]
    Newer,
    /// What a volume held before it was journaled is in no image.
    #[error("save an image first")]
    Unanchored,
    /// The program that restores refused what the journal says.
    #[error("what the journal says cannot be restored")]
    Refused,
    #[error("the journal is being closed")]
    Stopped,
    #[error("that is not possible")]
    Invalid,
}

/// A failure, with what was attempted on what.
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

    /// The error and all its sources in one line.
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
