//! Reasons why bytes are not a valid part of a journal.

/// The version of segments that are not sealed.
pub const VERSION: u32 = 1;

/// The version of sealed segments, and the latest that this program reads.
pub const SEALED_VERSION: u32 = 2;

/// Class of a format error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatErrorKind {
    /// Only zeros: not written yet.
    #[error("is blank")]
    Blank,
    /// The bytes do not begin with the magic number of the structure.
    #[error("is not there")]
    Unknown,
    /// Written by a later program, in this version of the format.
    #[error(
        "has version {0} and this program reads versions up to {latest}; use the program that \
         wrote it",
        latest = SEALED_VERSION
    )]
    Newer(u32),
    /// The structure is intact, and belongs to another place.
    #[error("belongs to another place")]
    Misplaced,
    /// The structure begins correctly, and is not intact.
    #[error("is damaged")]
    Damaged,
}

/// Bytes that could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {kind}")]
pub struct FormatError {
    pub kind: FormatErrorKind,
    /// Structure that was decoded, and its fault.
    pub what: &'static str,
}

impl FormatError {
    pub(crate) fn new(kind: FormatErrorKind, what: &'static str) -> Self {
        Self { kind, what }
    }

    /// Error of a structure that names another place than the one where it was found.
    pub(crate) fn misplaced(what: &'static str) -> Self {
        Self::new(FormatErrorKind::Misplaced, what)
    }

    pub(crate) fn damaged(what: &'static str) -> Self {
        Self::new(FormatErrorKind::Damaged, what)
    }
}
