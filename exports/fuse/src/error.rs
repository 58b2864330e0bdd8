//! What can go wrong between volumes, their files, and the loop devices on them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The class of a failure, for programs to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuseErrorKind {
    /// This machine does not offer FUSE, or loop devices, or not to this user.
    Unavailable,
    /// There is no volume of that name, or it is not attached.
    NotFound,
    /// Somebody uses the device.
    Busy,
    /// The process that keeps the connection does not do its duty.
    Holder,
    /// The kernel refused something that it should not have.
    Kernel,
}

/// A failed operation of this export. `kind` is for programs, the whole chain for people.
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt}{hint}")]
pub struct FuseError {
    pub kind: FuseErrorKind,
    attempt: String,
    hint: Hint,
    #[source]
    source: Option<io::Error>,
}

impl FuseError {
    pub(crate) fn new(kind: FuseErrorKind, attempt: impl Into<String>) -> Self {
        Self { kind, attempt: attempt.into(), hint: Hint(None), source: None }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Hint(Some(hint.into()));
        self
    }

    pub(crate) fn with_source(mut self, source: io::Error) -> Self {
        self.source = Some(source);
        self
    }

    /// A failure of a system call, whose class follows from the call's error.
    pub(crate) fn of_call(attempt: impl Into<String>, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::NotFound => FuseErrorKind::NotFound,
            io::ErrorKind::ResourceBusy => FuseErrorKind::Busy,
            io::ErrorKind::PermissionDenied => FuseErrorKind::Unavailable,
            _ => FuseErrorKind::Kernel,
        };
        Self::new(kind, attempt).with_source(source)
    }

    pub(crate) fn holder(attempt: &str, socket: &Path, source: io::Error) -> Self {
        Self::new(FuseErrorKind::Holder, format!("{attempt} at {}", socket.display()))
            .with_source(source)
    }

    pub(crate) fn at_path(attempt: &str, path: &Path, source: io::Error) -> Self {
        Self::of_call(format!("{attempt} {}", path.display()), source)
    }

    /// The whole chain in one line.
    pub(crate) fn chain(&self) -> String {
        match &self.source {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

/// What to do about it, behind a colon.
#[derive(Debug)]
struct Hint(Option<String>);

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(hint) => write!(f, ": {hint}"),
            None => Ok(()),
        }
    }
}

/// A device whose connection is lost for good: it answers every request with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadDevice {
    pub device: PathBuf,
    /// The file it was bound to.
    pub file: PathBuf,
    pub(crate) number: u32,
    /// Of the binding that is dead: see `errand::sequence_of`.
    pub(crate) sequence: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: io::ErrorKind, expected: FuseErrorKind) {
        assert_eq!(FuseError::of_call("try", source.into()).kind, expected);
    }

    #[test]
    fn the_class_follows_from_the_calls_error() {
        check(io::ErrorKind::NotFound, FuseErrorKind::NotFound);
        check(io::ErrorKind::ResourceBusy, FuseErrorKind::Busy);
        check(io::ErrorKind::PermissionDenied, FuseErrorKind::Unavailable);
        check(io::ErrorKind::InvalidInput, FuseErrorKind::Kernel);
    }

    #[test]
    fn the_chain_says_what_was_attempted_what_to_do_and_why_it_failed() {
        let error = FuseError::new(FuseErrorKind::Busy, "detach it")
            .with_hint("unmount it first")
            .with_source(io::Error::other("in use"));
        assert_eq!(error.to_string(), "cannot detach it: unmount it first");
        assert_eq!(error.chain(), "cannot detach it: unmount it first: in use");
    }
}
