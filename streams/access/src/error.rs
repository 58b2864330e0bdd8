//! Errors of the files of users and of access lists.

use std::error::Error;

use kafka_protocol::ResponseError;
use kafka_protocol::protocol::StrBytes;

/// Kind of a rejected or failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessErrorKind {
    /// The file cannot be read or replaced.
    File,
    /// Users other than the owner may write the file, or its owner is not accepted.
    Permissions,
    /// The file is malformed. The contents read before remain in effect.
    Contents,
    /// The file was modified since it was read. It must be reloaded before it can be changed.
    Edited,
    /// A name, secret or number is not allowed.
    NotAllowed,
    /// A user with this name already exists.
    Exists,
    /// No user with this name exists.
    Missing,
    /// The maximum number of users or access control entries is reached.
    Full,
}

/// A rejected or failed request, which changed nothing. Never contains a secret.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct AccessError {
    pub kind: AccessErrorKind,
    /// Attempted operation, its object, and advice.
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

    /// Returns the error code and text for a request that failed to replace the file.
    pub(crate) fn code_and_text(self) -> (ResponseError, String) {
        let code = match self.kind {
            AccessErrorKind::NotAllowed | AccessErrorKind::Full => ResponseError::InvalidRequest,
            _ => ResponseError::UnknownServerError,
        };
        (code, self.to_string())
    }
}

/// Converts a text to a string of Kafka's messages.
pub(crate) fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}
