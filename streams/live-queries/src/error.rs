//! Errors of statements, and errors of a query on a record.

use std::fmt;

use crate::types::Type;

/// SQLSTATE: the five-character error code of PostgreSQL (appendix A of its documentation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqlState(pub &'static str);

impl SqlState {
    pub const ACTIVE_TRANSACTION: Self = Self("25001");
    pub const AMBIGUOUS_COLUMN: Self = Self("42702");
    pub const AUTHENTICATION: Self = Self("28000");
    pub const CANCELLED: Self = Self("57014");
    pub const CANNOT_COERCE: Self = Self("42846");
    pub const CHECK: Self = Self("23514");
    pub const CONFIGURATION_LIMIT: Self = Self("53400");
    pub const CURSOR_NAME: Self = Self("34000");
    pub const DATATYPE: Self = Self("42804");
    pub const DATETIME_OVERFLOW: Self = Self("22008");
    pub const DIVISION_BY_ZERO: Self = Self("22012");
    pub const DUPLICATE_ALIAS: Self = Self("42712");
    pub const DUPLICATE_COLUMN: Self = Self("42701");
    pub const DUPLICATE_CURSOR: Self = Self("42P03");
    pub const DUPLICATE_STATEMENT: Self = Self("42P05");
    pub const DUPLICATE_TABLE: Self = Self("42P07");
    pub const FAILED_TRANSACTION: Self = Self("25P02");
    pub const GROUPING: Self = Self("42803");
    pub const INTERNAL: Self = Self("XX000");
    pub const INVALID_BINARY: Self = Self("22P03");
    pub const INVALID_COLUMN_REFERENCE: Self = Self("42P10");
    pub const INVALID_DATETIME: Self = Self("22007");
    pub const INVALID_ENCODING: Self = Self("22021");
    pub const INVALID_ESCAPE: Self = Self("22025");
    pub const INVALID_PARAMETER: Self = Self("22023");
    pub const INVALID_PASSWORD: Self = Self("28P01");
    pub const INVALID_REGEX: Self = Self("2201B");
    pub const INVALID_STATEMENT: Self = Self("26000");
    pub const INVALID_TEXT: Self = Self("22P02");
    pub const IO: Self = Self("58030");
    pub const LOGARITHM: Self = Self("2201E");
    pub const NOT_NULL: Self = Self("23502");
    pub const NOT_SUPPORTED: Self = Self("0A000");
    pub const NO_ACTIVE_TRANSACTION: Self = Self("25P01");
    pub const OUT_OF_MEMORY: Self = Self("53200");
    pub const OUT_OF_RANGE: Self = Self("22003");
    pub const PERMISSION: Self = Self("42501");
    pub const POWER: Self = Self("2201F");
    pub const PROTOCOL: Self = Self("08P01");
    pub const READ_ONLY: Self = Self("25006");
    pub const SERIALIZATION: Self = Self("40001");
    pub const SHUTDOWN: Self = Self("57P01");
    pub const STORAGE_FULL: Self = Self("53100");
    pub const SUBSTRING: Self = Self("22011");
    pub const SYNTAX: Self = Self("42601");
    pub const TOO_COMPLEX: Self = Self("54001");
    pub const TOO_LARGE: Self = Self("54000");
    pub const TOO_MANY: Self = Self("53300");
    pub const UNDEFINED_COLUMN: Self = Self("42703");
    pub const UNDEFINED_FUNCTION: Self = Self("42883");
    pub const UNDEFINED_OBJECT: Self = Self("42704");
    pub const UNDEFINED_TABLE: Self = Self("42P01");
    pub const UNTRANSLATABLE: Self = Self("22P05");
    pub const WRONG_OBJECT_TYPE: Self = Self("42809");
}

impl fmt::Display for SqlState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

/// Error of a rejected statement or query, or of a terminated subscription.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SqlError {
    pub state: SqlState,
    pub message: String,
    /// Advice to the client.
    pub hint: Option<String>,
}

impl SqlError {
    pub fn new(state: SqlState, message: impl Into<String>) -> Self {
        Self { state, message: message.into(), hint: None }
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn not_supported(what: impl fmt::Display) -> Self {
        Self::new(SqlState::NOT_SUPPORTED, format!("live queries do not support {what}"))
    }
}

/// Evaluation error on one record, which is then excluded from the result.
///
/// Small and without the offending text, so that a topic of invalid records costs little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowError {
    DivisionByZero,
    OutOfRange(Type),
    InvalidText(Type),
    InvalidEscape,
    NegativeLength,
    InvalidArgument(&'static str),
    /// Bytes converted to text are not UTF-8.
    NotText,
    /// A JSON value has another kind than the type that it is cast to.
    JsonKind(Type),
}

impl RowError {
    pub fn state(self) -> SqlState {
        match self {
            Self::DivisionByZero => SqlState::DIVISION_BY_ZERO,
            Self::OutOfRange(_) => SqlState::OUT_OF_RANGE,
            Self::InvalidText(Type::Timestamptz | Type::Interval) => SqlState::INVALID_DATETIME,
            Self::InvalidText(Type::Bytea) => SqlState::INVALID_PARAMETER,
            Self::InvalidText(_) => SqlState::INVALID_TEXT,
            Self::NegativeLength => SqlState::SUBSTRING,
            Self::InvalidEscape => SqlState::INVALID_ESCAPE,
            Self::InvalidArgument(_) | Self::JsonKind(_) => SqlState::INVALID_PARAMETER,
            Self::NotText => SqlState::INVALID_ENCODING,
        }
    }
}

impl fmt::Display for RowError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DivisionByZero => out.write_str("division by zero"),
            Self::OutOfRange(to) => write!(out, "value out of range for type {to}"),
            Self::InvalidText(to) => write!(out, "invalid input syntax for type {to}"),
            Self::InvalidEscape => out.write_str("LIKE pattern must not end with escape character"),
            Self::NegativeLength => out.write_str("negative substring length not allowed"),
            Self::InvalidArgument(what) => out.write_str(what),
            Self::NotText => out.write_str("invalid byte sequence for encoding \"UTF8\""),
            Self::JsonKind(to) => write!(out, "cannot cast this JSON value to type {to}"),
        }
    }
}

impl std::error::Error for RowError {}

impl From<RowError> for SqlError {
    fn from(error: RowError) -> Self {
        Self::new(error.state(), error.to_string())
    }
}
