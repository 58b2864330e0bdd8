//! What a client is told when a statement fails: PostgreSQL's code, a sentence, perhaps a hint.

use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, SchemaError};
use datafusion::sql::sqlparser::parser::ParserError;
pub use live_queries::SqlState;
use record_log::{LogError, LogErrorKind};
use values::ValuesError;

/// A statement, or a connection, that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SqlError {
    pub state: SqlState,
    pub message: String,
    pub hint: Option<String>,
}

impl SqlError {
    pub fn new(state: SqlState, message: impl Into<String>) -> Self {
        Self { state, message: message.into(), hint: None }
    }

    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::new(SqlState::NOT_SUPPORTED, what)
    }

    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::new(SqlState::PROTOCOL, what)
    }

    /// Carries the error through the engine.
    pub(crate) fn into_engine(self) -> DataFusionError {
        DataFusionError::External(Box::new(self))
    }
}

impl From<live_queries::SqlError> for SqlError {
    fn from(error: live_queries::SqlError) -> Self {
        let live_queries::SqlError { state, message, hint } = error;
        Self { state, message, hint }
    }
}

impl From<LogError> for SqlError {
    fn from(error: LogError) -> Self {
        let state = match error.kind {
            LogErrorKind::NoSpace => SqlState::STORAGE_FULL,
            LogErrorKind::TooLarge => SqlState::TOO_LARGE,
            _ => SqlState::IO,
        };
        Self::new(state, error.to_string())
    }
}

impl From<ValuesError> for SqlError {
    fn from(error: ValuesError) -> Self {
        match error {
            ValuesError::Log(error) => error.into(),
            error if error.may_be_repeated() => {
                Self::new(SqlState::SERIALIZATION, error.to_string())
                    .with_hint("Repeat the query a little later.")
            }
            error => Self::new(SqlState::IO, error.to_string()),
        }
    }
}

impl From<ParserError> for SqlError {
    fn from(error: ParserError) -> Self {
        match error {
            ParserError::RecursionLimitExceeded => {
                Self::new(SqlState::TOO_COMPLEX, "the statement nests too deeply")
            }
            ParserError::TokenizerError(what) | ParserError::ParserError(what) => {
                Self::new(SqlState::SYNTAX, format!("syntax error: {what}"))
            }
        }
    }
}

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::External(inner) => match inner.downcast::<Self>() {
                Ok(own) => *own,
                Err(other) => Self::new(SqlState::INTERNAL, other.to_string()),
            },
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
                Self::from(*inner)
            }
            DataFusionError::Shared(shared) => of_shared(&shared),
            DataFusionError::SQL(error, _) => Self::from(*error),
            DataFusionError::SchemaError(error, _) => of_schema(&error),
            DataFusionError::ArrowError(error, _) => of_arrow(*error),
            DataFusionError::Plan(what) => of_plan(&what),
            DataFusionError::Internal(what) if what.contains("CompiledTooBig") => too_large_regex(),
            DataFusionError::NotImplemented(what) => Self::unsupported(what),
            DataFusionError::Execution(what) => Self::new(SqlState::INVALID_PARAMETER, what),
            DataFusionError::ResourcesExhausted(_) => {
                let what = "the query needs more memory than it may take";
                Self::new(SqlState::OUT_OF_MEMORY, what)
            }
            DataFusionError::Collection(errors) => match errors.into_iter().next() {
                Some(first) => Self::from(first),
                None => Self::new(SqlState::INTERNAL, "the query failed without a reason"),
            },
            other => Self::new(SqlState::INTERNAL, other.strip_backtrace()),
        }
    }
}

/// Of several readers of one failure; each is told the same.
fn of_shared(error: &DataFusionError) -> SqlError {
    match error.find_root() {
        DataFusionError::External(inner) => match inner.downcast_ref::<SqlError>() {
            Some(own) => own.clone(),
            None => SqlError::new(SqlState::INTERNAL, inner.to_string()),
        },
        DataFusionError::ResourcesExhausted(_) => {
            let what = "the query needs more memory than it may take";
            SqlError::new(SqlState::OUT_OF_MEMORY, what)
        }
        other => SqlError::new(SqlState::INTERNAL, other.strip_backtrace()),
    }
}

fn of_schema(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, .. } => {
            let what = format!("column {:?} does not exist", field.name());
            SqlError::new(SqlState::UNDEFINED_COLUMN, what)
        }
        SchemaError::AmbiguousReference { field } => {
            let what = format!("column reference {:?} is ambiguous", field.name());
            SqlError::new(SqlState::AMBIGUOUS_COLUMN, what)
        }
        other => SqlError::new(SqlState::AMBIGUOUS_COLUMN, other.to_string()),
    }
}

fn of_arrow(error: ArrowError) -> SqlError {
    let state = match &error {
        ArrowError::DivideByZero => {
            return SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero");
        }
        ArrowError::ArithmeticOverflow(_) => SqlState::OUT_OF_RANGE,
        ArrowError::CastError(_) | ArrowError::ParseError(_) => SqlState::INVALID_TEXT,
        ArrowError::NotYetImplemented(_) => SqlState::NOT_SUPPORTED,
        ArrowError::ExternalError(inner) => match inner.downcast_ref::<SqlError>() {
            Some(own) => return own.clone(),
            None => SqlState::INTERNAL,
        },
        ArrowError::ComputeError(what) if what.contains("CompiledTooBig") => {
            return too_large_regex();
        }
        ArrowError::ComputeError(what) if what.contains("Regular expression") => {
            SqlState::INVALID_REGEX
        }
        _ => SqlState::INTERNAL,
    };
    SqlError::new(state, error.to_string())
}

fn too_large_regex() -> SqlError {
    SqlError::new(SqlState::INVALID_REGEX, "invalid regular expression: it is too large")
}

/// The engine says most of what is wrong with a query in words alone.
fn of_plan(what: &str) -> SqlError {
    // Further lines are of what the engine knows by its own names.
    let what = what.lines().next().unwrap_or_default();
    let lower = what.to_ascii_lowercase();
    let state = if lower.starts_with("table ") && lower.contains("not found") {
        SqlState::UNDEFINED_TABLE
    } else if lower.contains("invalid function") || lower.contains("no function matches") {
        SqlState::UNDEFINED_FUNCTION
    } else if lower.contains("coercion") || lower.contains("coerce") || lower.contains("type") {
        SqlState::DATATYPE
    } else {
        SqlState::SYNTAX
    };
    SqlError::new(state, what)
}
