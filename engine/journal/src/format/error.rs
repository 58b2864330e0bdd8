//! Reasons why bytes are not a valid part of a journal.

/// Format version of unencrypted segments.
pub const VERSION: u32 = 1;

/// Format version of sealed segments, and the latest version that this program reads.
pub const SEALED_VERSION: u32 = 2;

/// Kind of a format error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatErrorKind {
    /// All zeros: not yet written.
    #[error("is all zeros")]
    Blank,
    /// The magic number is wrong.
    #[error("has a wrong magic number")]
    Unknown,
    /// Written by a newer program in this format version.
    #[error(
        "has version {0} and this program reads versions up to {latest}; use the program that \
         wrote it",
        latest = SEALED_VERSION
    )]
    Newer(u32),
    /// The structure is intact but belongs elsewhere.
    #[error("belongs to another location")]
    Misplaced,
    /// The magic number is right, but the structure is corrupt.
    #[error("is damaged")]
    Damaged,
}

/// Failure to decode bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {kind}")]
pub struct FormatError {
    pub kind: FormatErrorKind,
    /// The structure that was decoded.
    pub what: &'static str,
}

impl FormatError {
    pub(crate) fn new(kind: FormatErrorKind, what: &'static str) -> Self {
        Self { kind, what }
    }

    /// Error for a structure that names a location other than where it was found.
    pub(crate) fn misplaced(what: &'static str) -> Self {
        Self::new(FormatErrorKind::Misplaced, what)
    }

    pub(crate) fn damaged(what: &'static str) -> Self {
        Self::new(FormatErrorKind::Damaged, what)
    }
}
