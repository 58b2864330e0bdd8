//! Errors of requests: an error number for programs, and a message for users.

use std::io;

/// Error of a request, or of a volume that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ClientError {
    errno: i32,
    message: String,
}

impl ClientError {
    pub(crate) fn new(errno: i32, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }

    /// Error of a failed system call.
    pub(crate) fn of_call(what: &str, error: &io::Error) -> Self {
        Self::new(error.raw_os_error().unwrap_or(libc::EIO), format!("{what}: {error}"))
    }

    /// Error number, as of a system call, such as `ENOSPC`.
    pub fn errno(&self) -> i32 {
        self.errno
    }
}

impl From<ClientError> for io::Error {
    fn from(error: ClientError) -> Self {
        Self::from_raw_os_error(error.errno)
    }
}
