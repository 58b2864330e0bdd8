//! Errors of the files of users and access lists.

use std::error::Error;

use kafka_protocol::ResponseError;
use kafka_protocol::protocol::StrBytes;

/// The class of a refused or failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessErrorKind {
    /// The file cannot be read or replaced.
    File,
    /// Others than its owner may write the file, or it belongs to another user.
    Permissions,
    /// The file's contents are not what they should be. What was read before stays in force.
    Contents,
    /// The file was changed since it was read; a reload comes before another change.
    Edited,
    /// A name, secret or number is outside of what is allowed.
    NotAllowed,
    /// There is a user of this name.
    Exists,
    /// There is no user of this name.
    Missing,
    /// There are as many users or access lists as there may be.
    Full,
}

/// A refused or failed request: nothing was changed. Never holds a secret.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct AccessError {
    pub kind: AccessErrorKind,
    /// Operation that was attempted, its object, and advice.
    pub what: String,
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl AccessError {
    pub(crate) fn new(kind: AccessErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), source: None }
    }

    pub(crate) fn because(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// Error code and text for clients where a request has not replaced a file.
    pub(crate) fn code_and_text(self) -> (ResponseError, String) {
        let code = match self.kind {
            AccessErrorKind::NotAllowed | AccessErrorKind::Full => ResponseError::InvalidRequest,
            _ => ResponseError::UnknownServerError,
        };
        (code, self.to_string())
    }
}

/// A text as Kafka's messages have it.
pub(crate) fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}
