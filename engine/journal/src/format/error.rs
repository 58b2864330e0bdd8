//! Why bytes are not what a journal holds.

use std::fmt;

use crate::format::segment::VERSION;

/// The class of what is wrong with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatErrorKind {
    /// Nothing but zeros: not written yet.
    Blank,
    /// It does not begin as such a thing does.
    Unknown,
    /// Written by a later program, in this version of the format.
    Newer(u32),
    /// It is whole, and belongs to another place.
    Misplaced,
    /// It begins right, and is not whole.
    Damaged,
}

/// Bytes that could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatError {
    pub kind: FormatErrorKind,
    /// What was looked at, and what is wrong with it.
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

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FormatErrorKind::Blank => write!(f, "{} is blank", self.what),
            FormatErrorKind::Unknown => write!(f, "{} is not there", self.what),
            FormatErrorKind::Newer(version) => write!(
                f,
                "{} has version {version} and this program reads versions up to {VERSION}; \
                 use the program that wrote it",
                self.what
            ),
            FormatErrorKind::Misplaced => write!(f, "{} belongs to another place", self.what),
            FormatErrorKind::Damaged => write!(f, "{} is damaged", self.what),
        }
    }
}

impl std::error::Error for FormatError {}
