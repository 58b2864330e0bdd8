//! Errors of attaching volumes as kernel block devices.

use std::fmt;
use std::io;
use std::path::Path;

/// Kind of a failure, for programs to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachErrorKind {
    /// The driver is missing on this host, or this user may not use it.
    Unavailable,
    /// The kernel's driver is too old for this operation.
    NotSupported,
    /// The volume does not exist, or is not attached.
    NotFound,
    /// The device is in use.
    Busy,
    /// The kernel did not respond in time.
    TimedOut,
    /// The fd store, which keeps the connection to the kernel, does not respond as expected.
    FdStore,
    /// An unexpected error of the kernel.
    Kernel,
    /// The list of devices could not be written.
    Registry,
}

/// Error of an operation on an attached volume. `kind` is for programs, the chain of causes for
/// users.
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt}{hint}")]
pub struct AttachError {
    pub kind: AttachErrorKind,
    attempt: String,
    hint: Hint,
    #[source]
    source: Option<io::Error>,
}

impl AttachError {
    pub fn new(kind: AttachErrorKind, attempt: impl Into<String>) -> Self {
        Self { kind, attempt: attempt.into(), hint: Hint(None), source: None }
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Hint(Some(hint.into()));
        self
    }

    pub fn with_source(mut self, source: io::Error) -> Self {
        self.source = Some(source);
        self
    }

    /// Creates an error of a system call. The kind is derived from the error number.
    pub fn of_call(attempt: impl Into<String>, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::NotFound => AttachErrorKind::NotFound,
            io::ErrorKind::ResourceBusy => AttachErrorKind::Busy,
            io::ErrorKind::PermissionDenied => AttachErrorKind::Unavailable,
            io::ErrorKind::TimedOut => AttachErrorKind::TimedOut,
            _ => AttachErrorKind::Kernel,
        };
        Self::new(kind, attempt).with_source(source)
    }

    pub fn at_path(attempt: &str, path: &Path, source: io::Error) -> Self {
        Self::of_call(format!("{attempt} {}", path.display()), source)
    }

    /// Error number of the system call, if one failed.
    pub fn errno(&self) -> Option<i32> {
        self.source.as_ref().and_then(io::Error::raw_os_error)
    }

    /// Formats the error and its sources in one line.
    pub fn chain(&self) -> String {
        match &self.source {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

/// Advice, printed after a colon.
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

    #[test]
    fn the_text_says_what_was_attempted_and_what_to_do() {
        let error = AttachError::new(AttachErrorKind::Busy, "detach /dev/loop3")
            .with_hint("unmount it first");
        assert_eq!(error.to_string(), "cannot detach /dev/loop3: unmount it first");
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = AttachError::at_path("open", Path::new("/dev/fuse"), refused);
        assert_eq!(error.kind, AttachErrorKind::Unavailable);
        assert_eq!(error.chain(), "cannot open /dev/fuse: permission denied");
    }
}
