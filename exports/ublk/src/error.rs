//! What can go wrong between volumes and the driver.

use std::fmt;
use std::io;

/// The class of a failure, for programs to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UblkErrorKind {
    /// This machine does not offer ublk, or not to this user.
    Unavailable,
    /// The driver of this kernel is too old for what was asked.
    NotSupported,
    /// The volume is not attached.
    NotFound,
    /// Somebody uses the device.
    Busy,
    /// The kernel did not answer in time.
    TimedOut,
    /// The kernel refused something that it should not have.
    Kernel,
    /// The list of devices could not be stored.
    Registry,
}

/// A failed operation of this export. `kind` is for programs, the whole chain for people.
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt}{hint}")]
pub struct UblkError {
    pub kind: UblkErrorKind,
    attempt: String,
    hint: Hint,
    #[source]
    source: Option<io::Error>,
}

impl UblkError {
    pub(crate) fn new(kind: UblkErrorKind, attempt: impl Into<String>) -> Self {
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
            io::ErrorKind::ResourceBusy => UblkErrorKind::Busy,
            io::ErrorKind::PermissionDenied => UblkErrorKind::Unavailable,
            io::ErrorKind::TimedOut => UblkErrorKind::TimedOut,
            _ => UblkErrorKind::Kernel,
        };
        Self::new(kind, attempt).with_source(source)
    }

    /// What the call said, if one failed.
    pub(crate) fn errno(&self) -> Option<i32> {
        self.source.as_ref().and_then(io::Error::raw_os_error)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: io::ErrorKind, expected: UblkErrorKind) {
        assert_eq!(UblkError::of_call("try", source.into()).kind, expected);
    }

    #[test]
    fn the_class_follows_from_the_calls_error() {
        check(io::ErrorKind::ResourceBusy, UblkErrorKind::Busy);
        check(io::ErrorKind::PermissionDenied, UblkErrorKind::Unavailable);
        check(io::ErrorKind::TimedOut, UblkErrorKind::TimedOut);
        check(io::ErrorKind::InvalidInput, UblkErrorKind::Kernel);
    }

    #[test]
    fn a_message_says_what_was_attempted_and_what_to_do() {
        let error = UblkError::new(UblkErrorKind::Busy, "detach it").with_hint("unmount it first");
        assert_eq!(error.to_string(), "cannot detach it: unmount it first");
    }
}
