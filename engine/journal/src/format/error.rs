//! Why bytes are not what a journal holds.

/// The version of segments that are not sealed.
pub const VERSION: u32 = 1;

/// The version of sealed segments, and the latest that this program reads.
pub const SEALED_VERSION: u32 = 2;

/// The class of what is wrong with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatErrorKind {
    /// Nothing but zeros: not written yet.
    #[error("is blank")]
    Blank,
    /// It does not begin as such a thing does.
    #[error("is not there")]
    Unknown,
    /// Written by a later program, in this version of the format.
    #[error(
        "has version {0} and this program reads versions up to {latest}; use the program that \
         wrote it",
        latest = SEALED_VERSION
    )]
    Newer(u32),
    /// It is whole, and belongs to another place.
    #[error("belongs to another place")]
    Misplaced,
    /// It begins right, and is not whole.
    #[error("is damaged")]
    Damaged,
}

/// Bytes that could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {kind}")]
pub struct FormatError {
    pub kind: FormatErrorKind,
    /// Structure that was looked at, and its fault.
    pub what: &'static str,
}

impl FormatError {
    pub(crate) fn new(kind: FormatErrorKind, what: &'static str) -> Self {
        Self { kind, what }
    }

    /// It says that it belongs to another place than where it was found.
    pub(crate) fn misplaced(what: &'static str) -> Self {
        Self::new(FormatErrorKind::Misplaced, what)
    }

    pub(crate) fn damaged(what: &'static str) -> Self {
        Self::new(FormatErrorKind::Damaged, what)
    }
}
