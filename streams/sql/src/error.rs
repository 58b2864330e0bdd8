//! Errors reported to the client when a statement fails: SQLSTATE code, message, and optional hint.

pub use live_queries::SqlState;
use record_log::{LogError, LogErrorKind};
use values::ValuesError;

/// Error of a failed statement or connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SqlError {
    pub state: SqlState,
    pub message: String,
    pub hint: Option<String>,
    /// Position in the client's input.
    pub context: Option<String>,
}

impl SqlError {
    pub fn new(state: SqlState, message: impl Into<String>) -> Self {
        Self { state, message: message.into(), hint: None, context: None }
    }

    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl From<live_queries::SqlError> for SqlError {
    fn from(error: live_queries::SqlError) -> Self {
        let live_queries::SqlError { state, message, hint } = error;
        Self { state, message, hint, context: None }
    }
}

impl From<LogError> for SqlError {
    fn from(error: LogError) -> Self {
        let state = match error.kind {
            LogErrorKind::NoSpace => SqlState::STORAGE_FULL,
            LogErrorKind::TooLarge => SqlState::TOO_LARGE,
            _ => SqlState::IO,
        };
        Self::new(state, error.with_causes())
    }
}

impl From<ValuesError> for SqlError {
    fn from(error: ValuesError) -> Self {
        match error {
            ValuesError::Log(error) => error.into(),
            error if error.may_be_repeated() => {
                Self::new(SqlState::SERIALIZATION, error.to_string())
                    .with_hint("Retry the query later.")
            }
            error => Self::new(SqlState::IO, error.to_string()),
        }
    }
}
