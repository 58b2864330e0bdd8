//! What can go wrong with a journal.

use std::error::Error;
use std::fmt;

use storage::{StorageError, StorageErrorKind};

use crate::format::{FormatError, FormatErrorKind};

/// The class of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalErrorKind {
    /// The disk failed; the source says how.
    Disk,
    /// The disk is full.
    NoSpace,
    /// The journal is as long as it may be.
    Limit,
    /// What must be there is not as it was written.
    Damaged,
    /// A part of the journal is not there.
    Missing,
    /// It belongs to another pool.
    Foreign,
    /// A later program wrote it.
    Newer,
    /// A new journal was to be made where there is one.
    Exists,
    /// What a volume held before it was journaled is in no image.
    Unanchored,
    /// Who reads the journal refused what it says.
    Refused,
    /// The journal was stopped.
    Stopped,
    Invalid,
}

impl fmt::Display for JournalErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => "the disk failed",
            Self::NoSpace => "the disk is full; make room on it",
            Self::Limit => {
                "the journal is as long as it may be; complete a checkpoint, or allow it more"
            }
            Self::Damaged => "the journal is damaged; go back to an image or a copy of the journal",
            Self::Missing => {
                "a part of the journal is missing; bring it back, or the image that replaced it"
            }
            Self::Foreign => "it belongs to another pool; name the journal of this one",
            Self::Newer => "a later program wrote it; use that one",
            Self::Exists => "there is a journal already; open it, or name another folder",
            Self::Unanchored => "save an image first",
            Self::Refused => "what the journal says cannot be restored",
            Self::Stopped => "the journal is being closed",
            Self::Invalid => "that is not possible",
        })
    }
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
