//! Conversion between the engine's errors and errors for clients.

use std::error::Error;

use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, SchemaError};
use datafusion::sql::sqlparser::parser::ParserError;

use super::names::AVERAGED;
use super::wording::{ONE_TYPE, worded};
use crate::error::{SqlError, SqlState};

impl SqlError {
    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::new(SqlState::NOT_SUPPORTED, what)
    }

    /// Error: a JSON string contains an escape that is not representable as text.
    pub(crate) fn untranslatable() -> Self {
        let what = "unsupported Unicode escape sequence: \\u0000 and unpaired surrogates cannot \
                    be converted to text";
        Self::new(SqlState::UNTRANSLATABLE, what)
    }

    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::new(SqlState::PROTOCOL, what)
    }

    /// Returns whether an error in planning a query with resolved names and types is due to the
    /// planner: an unknown column, or an internal inconsistency, is then not the query's fault.
    pub(crate) fn is_of_planner(&self) -> bool {
        let is_own = [SqlState::UNDEFINED_COLUMN, SqlState::AMBIGUOUS_COLUMN, SqlState::SYNTAX];
        let is_internal = self.state == SqlState::NOT_SUPPORTED
            && (self.message.starts_with("Physical plan") || self.message.contains("{"));
        is_own.contains(&self.state) || is_internal
    }

    /// Replaces a planner's fault by an error that the query is not supported.
    pub(crate) fn of_planning(self) -> Self {
        if !self.is_of_planner() {
            return self;
        }
        tracing::debug!(error = self.message, "cannot plan a query; rejecting it as not supported");
        let what = "a subquery, LATERAL or an expression of this form is not supported";
        Self::unsupported(what).with_hint("Write it as a join or an aggregate.")
    }

    /// Wraps the error for passage through the engine.
    pub(crate) fn into_engine(self) -> DataFusionError {
        DataFusionError::External(Box::new(self))
    }
}

impl From<ParserError> for SqlError {
    fn from(error: ParserError) -> Self {
        match error {
            ParserError::RecursionLimitExceeded => {
                Self::new(SqlState::TOO_COMPLEX, "statement too complex: it is nested too deeply")
            }
            ParserError::TokenizerError(what) | ParserError::ParserError(what) => of_syntax(&what),
        }
    }
}

/// Returns the error of a parser that expected other words, with PostgreSQL's message.
fn of_syntax(what: &str) -> SqlError {
    let syntax = |what: String| SqlError::new(SqlState::SYNTAX, what);
    if what.starts_with("Unterminated string literal") {
        return syntax("unterminated quoted string".to_owned());
    }
    let Some((expected, found)) = what.split_once(", found: ") else {
        return syntax(format!("syntax error: {what}"));
    };
    let found = found.split(" at Line: ").next().unwrap_or(found);
    let error = match found {
        "EOF" => syntax("syntax error at end of input".to_owned()),
        found => syntax(format!("syntax error at or near {found:?}")),
    };
    match expected.strip_prefix("Expected: ") {
        Some(expected) => error.with_hint(format!("Expected {expected}.")),
        None => error,
    }
}

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> Self {
        let found = of_engine(&error);
        match is_own(&error) {
            true => found,
            false => {
                let message = plain(&found.message);
                let is_call = found.state == SqlState::INTERNAL && message.ends_with(OF_TYPES);
                if message.ends_with(OF_TYPES) && is_of_bytes(&found.message, &message) {
                    let name = message.split(' ').nth(1).unwrap_or_default();
                    return Self::unsupported(format!("function {name} of bytea is not supported"))
                        .with_hint("Use encode and decode, and functions of texts.");
                }
                if message.ends_with(OF_ROWS) {
                    return Self::unsupported("a row as a value is not supported")
                        .with_hint("Select its columns one by one.");
                }
                let state = if is_call { SqlState::UNDEFINED_FUNCTION } else { found.state };
                worded(Self { state, message, ..found })
            }
        }
    }
}

/// Error of the engine for a row that is not compared.
const OF_ROWS: &str = "are supported in tuples";

/// Functions of texts that PostgreSQL also has for bytea.
const OF_BYTES: &[&str] = &[
    "bit_length",
    "btrim",
    "character_length",
    "coalesce",
    "ltrim",
    "octet_length",
    "overlay",
    "rtrim",
    "strpos",
    "substr",
];

/// Returns whether an error is about a function of bytea that PostgreSQL has.
fn is_of_bytes(engine: &str, plain: &str) -> bool {
    engine.contains("Binary") && plain.split(' ').nth(1).is_some_and(|it| OF_BYTES.contains(&it))
}

/// Returns whether the engine's error carries one of this crate's.
fn is_own(error: &DataFusionError) -> bool {
    match error {
        DataFusionError::External(inner) => inner.downcast_ref::<SqlError>().is_some(),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => is_own(inner),
        DataFusionError::Shared(shared) => is_own(shared),
        DataFusionError::Collection(errors) => errors.first().is_some_and(is_own),
        _ => false,
    }
}

/// Prefixes of the engine's messages that name its components.
const KINDS: &[&str] = &[
    "Arrow error: ",
    "Cast error: ",
    "Compute error: ",
    "Error during planning: ",
    "Execution error: ",
    "External error: ",
    "Internal error: ",
    "Invalid argument error: ",
    "Parser error: ",
    "Schema error: ",
];

/// System columns of every PostgreSQL table.
const SYSTEM_COLUMNS: &[&str] = &["cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"];

/// Type names of the engine and of PostgreSQL. Longer names precede their substrings.
const TYPES: &[(&str, &str)] = &[
    ("Interval(MonthDayNano)", "interval"),
    ("LargeUtf8", "text"),
    ("Utf8View", "text"),
    ("Utf8", "text"),
    ("BinaryView", "bytea"),
    ("Binary", "bytea"),
    ("Boolean", "boolean"),
    ("UInt64", "numeric"),
    ("UInt32", "oid"),
    ("Int64", "bigint"),
    ("Int32", "integer"),
    ("Int16", "smallint"),
    ("Int8", "smallint"),
    ("Float64", "double precision"),
    ("Float32", "real"),
    ("Date32", "date"),
    ("Decimal128", "numeric"),
    ("Decimal256", "numeric"),
    ("Time64(ns)", "time"),
    ("Time64", "time"),
    ("Timestamp(ns, \"UTC\")", "timestamp with time zone"),
    ("Timestamp(µs, \"UTC\")", "timestamp with time zone"),
    ("Timestamp(ns)", "timestamp"),
    ("Timestamp(µs)", "timestamp"),
    ("List(", "array("),
    ("Struct(", "row("),
];

/// Phrases in the engine's errors about calls, which also list all its functions.
const OF_CALLS: &[&str] = &[
    "match any signature",
    "coerce arguments",
    "coercion failed",
    "but received",
    "No function matches",
    "does not support",
    "expects ",
];

/// Message for such a call.
const OF_TYPES: &str = "does not exist for arguments of these types";

/// Returns whether the arguments that a message names are numerics and integers. The engine has no
/// common type for a numeric with many digits before the point, and one with many behind it.
fn is_of_numerics(text: &str) -> bool {
    let others = ["Utf8", "Boolean", "Float", "Date", "Time", "Interval", "Binary", "List", "Null"];
    text.contains("Decimal") && !others.iter().any(|it| text.contains(it))
}

/// Returns the reason in an error about a regular expression, which is on its last line.
pub(super) fn reason_of_regex(message: &str) -> &str {
    let reason = message.lines().last().unwrap_or_default().trim();
    reason.strip_prefix("error: ").unwrap_or(reason)
}

/// Rewrites a message of the engine in PostgreSQL's terms.
fn plain(message: &str) -> String {
    let mut text = message.lines().next().unwrap_or_default();
    if text.ends_with("regex parse error:") {
        return format!("invalid regular expression: {}", reason_of_regex(message));
    }
    while let Some(rest) = KINDS.iter().find_map(|kind| text.strip_prefix(kind)) {
        text = rest;
    }
    let quoted = |text: &str| {
        let name = text.split('\'').nth(1)?;
        let is_name = name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
        (is_name && !name.is_empty()).then(|| name.to_ascii_lowercase())
    };
    if OF_CALLS.iter().any(|it| text.contains(it))
        && let Some(name) = quoted(text)
    {
        if ONE_TYPE.contains(&&*name) && is_of_numerics(text) {
            return format!("{name} of numerics with so many digits is not supported");
        }
        let name = if name == AVERAGED { "avg" } else { &name };
        return format!("function {name} {OF_TYPES}");
    }
    if ["Some(", "physical expr", "LogicalPlan"].iter().any(|it| text.contains(it)) {
        return "an expression of this form is not supported".to_owned();
    }
    let mut plain = text.replace("Binary operator", "binary operator");
    for (engine, name) in TYPES {
        plain = plain.replace(engine, name);
    }
    plain = plain.replace("memlane.public.", "");
    let words = plain.split_inclusive(|it: char| !(it.is_alphanumeric() || it == '_'));
    let is_internal = |word: &str| word.starts_with("__");
    words.fold(String::new(), |mut text, word| {
        let end = word.trim_start_matches(|it: char| it.is_alphanumeric() || it == '_');
        match is_internal(word) {
            true => text = text + "(an expression)" + end,
            false => text.push_str(word),
        }
        text
    })
}

/// Converts an engine's error by reference, since several readers may share one failure.
fn of_engine(error: &DataFusionError) -> SqlError {
    match error {
        DataFusionError::External(inner) => of_other(inner.as_ref()),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            of_engine(inner)
        }
        DataFusionError::Shared(shared) => of_engine(shared),
        DataFusionError::SQL(error, _) => SqlError::from(ParserError::clone(error)),
        DataFusionError::SchemaError(error, _) => of_schema(error),
        DataFusionError::ArrowError(error, _) => of_arrow(error),
        DataFusionError::Plan(what) => of_plan(what),
        DataFusionError::Internal(what) if what.contains("CompiledTooBig") => too_large_regex(),
        DataFusionError::NotImplemented(what) => SqlError::unsupported(what),
        DataFusionError::Execution(what) => {
            SqlError::new(state_of(what, EXECUTED).unwrap_or(SqlState::INVALID_PARAMETER), what)
        }
        DataFusionError::ResourcesExhausted(_) => {
            let what = "out of memory: the query exceeds its memory limit";
            SqlError::new(SqlState::OUT_OF_MEMORY, what)
        }
        DataFusionError::Collection(errors) => match errors.first() {
            Some(first) => of_engine(first),
            None => SqlError::new(SqlState::INTERNAL, "query failed without an error message"),
        },
        other => {
            let what = other.strip_backtrace();
            SqlError::new(state_of(&what, EXECUTED).unwrap_or(SqlState::INTERNAL), what)
        }
    }
}

/// Converts an error that the engine carries.
fn of_other(error: &(dyn Error + Send + Sync + 'static)) -> SqlError {
    if let Some(own) = error.downcast_ref::<SqlError>() {
        return own.clone();
    }
    match error.downcast_ref::<DataFusionError>() {
        Some(engine) => of_engine(engine),
        None => {
            let what = error.to_string();
            SqlError::new(state_of(&what, EXECUTED).unwrap_or(SqlState::INTERNAL), what)
        }
    }
}

fn of_schema(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, .. } if SYSTEM_COLUMNS.contains(&field.name()) => {
            let what = format!("system column {:?} is not supported", field.name());
            SqlError::unsupported(what).with_hint(
                "Use the columns \"partition\" and \"offset\". Tools that need system columns can \
                 read JDBC metadata instead.",
            )
        }
        SchemaError::FieldNotFound { field, .. } => {
            let what = match &field.relation {
                Some(table) => format!("column {}.{} does not exist", table.table(), field.name()),
                None => format!("column {:?} does not exist", field.name()),
            };
            SqlError::new(SqlState::UNDEFINED_COLUMN, what)
        }
        SchemaError::AmbiguousReference { field } => {
            let what = format!("column reference {:?} is ambiguous", field.name());
            SqlError::new(SqlState::AMBIGUOUS_COLUMN, what)
        }
        other => SqlError::new(SqlState::AMBIGUOUS_COLUMN, other.to_string()),
    }
}

fn of_arrow(error: &ArrowError) -> SqlError {
    let state = match error {
        ArrowError::DivideByZero => {
            return SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero");
        }
        ArrowError::ArithmeticOverflow(_) => SqlState::OUT_OF_RANGE,
        ArrowError::CastError(what) | ArrowError::ParseError(what) => {
            out_of_range(what).or_else(|| state_of(what, READ)).unwrap_or(SqlState::INVALID_TEXT)
        }
        ArrowError::NotYetImplemented(_) => SqlState::NOT_SUPPORTED,
        ArrowError::ExternalError(inner) => return of_other(inner.as_ref()),
        ArrowError::ComputeError(what) if what.contains("CompiledTooBig") => {
            return too_large_regex();
        }
        ArrowError::ComputeError(what) | ArrowError::InvalidArgumentError(what) => {
            state_of(what, EXECUTED).unwrap_or(SqlState::INTERNAL)
        }
        _ => SqlState::INTERNAL,
    };
    SqlError::new(state, error.to_string())
}

/// Returns the SQLSTATE for a text that is a well-formed number or time out of range.
fn out_of_range(what: &str) -> Option<SqlState> {
    let text = what.split_once("string '")?.1.split_once("' to value of ")?;
    let digits = text.0.trim().trim_start_matches(['-', '+']);
    let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    match text.1 {
        of if of.starts_with("Int") && is_number => Some(SqlState::OUT_OF_RANGE),
        of if (of.starts_with("Date") || of.starts_with("Time")) && is_of_other_form(text.0) => {
            Some(SqlState::NOT_SUPPORTED)
        }
        of if of.starts_with("Date") && is_no_time(text.0) => Some(SqlState::DATETIME_OVERFLOW),
        of if of.starts_with("Time64") && is_no_clock(text.0) => Some(SqlState::DATETIME_OVERFLOW),
        _ => None,
    }
}

/// Returns whether a text has the syntax of a date, optionally with a time of day, with fields out
/// of range.
pub(super) fn is_no_time(text: &str) -> bool {
    let text = text.trim();
    let (date, clock) = text.split_once([' ', 'T']).unwrap_or((text, ""));
    let number = |it: &str| match it.len() <= 4 && it.bytes().all(|it| it.is_ascii_digit()) {
        true => it.parse::<i64>().ok(),
        false => None,
    };
    let numbers = |it: &str, sign: char| it.split(sign).map(number).collect::<Option<Vec<_>>>();
    let Some(&[year, month, day]) = numbers(date, '-').as_deref() else { return false };
    if !(1..=12).contains(&month) || !(1..=days_of_month(year, month)).contains(&day) {
        return year > 31;
    }
    is_no_clock(clock)
}

/// Words of dates and times that only PostgreSQL reads.
const WORDS: &[&str] = &[
    "ad", "allballs", "apr", "aug", "bc", "dec", "feb", "fri", "j", "jan", "jul", "jun", "mar",
    "may", "mon", "nov", "oct", "sat", "sep", "sun", "thu", "tue", "wed",
];

/// Minimum number of digits of years that are not supported.
const YEAR_DIGITS: usize = 5;

/// Returns whether a text may be a date or time that PostgreSQL reads and this server does not: BC,
/// years of five digits, Julian days, names of months.
pub(super) fn is_of_other_form(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let is_word =
        |it: &str| WORDS.iter().any(|word| it == *word || word.len() == 3 && it.starts_with(word));
    let mut words = lower.split(|it: char| !it.is_ascii_alphabetic()).filter(|it| !it.is_empty());
    let year = lower.trim_start().bytes().take_while(u8::is_ascii_digit).count();
    let is_far = year >= YEAR_DIGITS && lower.trim_start()[year..].starts_with('-');
    let is_day_of_year = year == 4 && lower.trim_start()[year..].starts_with('.');
    let has_digits = lower.bytes().any(|it| it.is_ascii_digit());
    has_digits && (is_far || is_day_of_year || words.any(is_word)) || lower.trim() == "allballs"
}

/// Returns whether a text has the syntax of a time of day with fields out of range.
fn is_no_clock(text: &str) -> bool {
    let clock = text.trim().split(['.', '+', '-', 'Z']).next().unwrap_or_default();
    let number = |it: &str| match it.len() <= 2 && it.bytes().all(|it| it.is_ascii_digit()) {
        true => it.parse::<i64>().ok(),
        false => None,
    };
    match clock.split(':').map(number).collect::<Option<Vec<_>>>().as_deref() {
        Some([hour, minute]) => *hour > 24 || *minute > 59,
        Some([hour, minute, second]) => *hour > 24 || *minute > 59 || *second > 60,
        _ => false,
    }
}

fn days_of_month(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn too_large_regex() -> SqlError {
    SqlError::new(
        SqlState::INVALID_REGEX,
        "invalid regular expression: regular expression is too complex",
    )
}

/// Classifies a planning error by its message, since the engine has no codes for most of them.
fn of_plan(what: &str) -> SqlError {
    // Further lines use the engine's internal names.
    let what = what.lines().next().unwrap_or_default();
    let lower = what.to_ascii_lowercase();
    let missing = lower.strip_prefix("invalid function '").and_then(|it| it.split('\'').next());
    let missing_rows = || lower.strip_prefix("table function '")?.split('\'').next();
    if let Some(name) = missing.or_else(missing_rows) {
        return missing_function(name);
    }
    if lower.starts_with("array_element does not support") {
        return SqlError::unsupported("subscripting a value that is not an array is not supported")
            .with_hint("Use -> or ->> for elements of json.");
    }
    let state = if lower.starts_with("table ") && lower.contains("not found") {
        SqlState::UNDEFINED_TABLE
    } else {
        state_of(&lower, PLANNED).unwrap_or(SqlState::SYNTAX)
    };
    SqlError::new(state, what)
}

/// Error for a missing function: not supported if PostgreSQL has it, otherwise undefined.
pub(super) fn missing_function(name: &str) -> SqlError {
    match FUNCTIONS.split_whitespace().any(|it| it == name) {
        true => SqlError::unsupported(format!("function {name} is not supported")).with_hint(
            "Run the query in a PostgreSQL server that reads the topics through postgres_fdw.",
        ),
        false => {
            let what = format!("function {name} does not exist");
            SqlError::new(SqlState::UNDEFINED_FUNCTION, what)
        }
    }
}

/// Names of PostgreSQL's functions, and of constructs called like functions.
const FUNCTIONS: &str = include_str!("functions.txt");

/// SQLSTATE by part of the message. The first match counts.
type States = &'static [(&'static str, SqlState)];

/// Matched in lower case.
const PLANNED: States = &[
    ("is not supported", SqlState::NOT_SUPPORTED),
    ("is not defined!", SqlState::UNDEFINED_OBJECT),
    ("must be in group by", SqlState::GROUPING),
    ("window function calls cannot be nested", SqlState("42P20")),
    ("calls cannot be nested", SqlState::GROUPING),
    ("cannot contain window function calls", SqlState::GROUPING),
    ("invalid qualifier", SqlState::UNDEFINED_TABLE),
    ("for select distinct, order by", SqlState::INVALID_COLUMN_REFERENCE),
    ("select distinct on expressions", SqlState::INVALID_COLUMN_REFERENCE),
    ("requires a positive integer", SqlState("22014")),
    ("must be an integer, timestamp, date", SqlState::NOT_SUPPORTED),
    ("temporal operation", SqlState::NOT_SUPPORTED),
    ("in between expression", SqlState::UNDEFINED_FUNCTION),
    ("unique expression names", SqlState::NOT_SUPPORTED),
    ("aggregate functions are not allowed", SqlState::GROUPING),
    ("with position", SqlState::INVALID_COLUMN_REFERENCE),
    ("order by column out of bounds", SqlState::INVALID_COLUMN_REFERENCE),
    ("order by index starts at 1", SqlState::INVALID_COLUMN_REFERENCE),
    ("limit must be", SqlState("2201W")),
    ("offset must be", SqlState("2201X")),
    ("range requires exactly one order by", SqlState("42P20")),
    ("groups requires an order by", SqlState("42P20")),
    ("only 1 names given as column alias", SqlState::NOT_SUPPORTED),
    ("given as column alias", SqlState::INVALID_COLUMN_REFERENCE),
    ("correlated scalar subquery can only", SqlState::NOT_SUPPORTED),
    ("array_concat does not support", SqlState::NOT_SUPPORTED),
    ("to be an integer or null, but got decimal", SqlState::NOT_SUPPORTED),
    ("to be an integer or null, but got float", SqlState::NOT_SUPPORTED),
    ("to be an integer or null, but got utf8", SqlState::NOT_SUPPORTED),
    ("to be an integer or null, but got", SqlState::DATATYPE),
    ("percentile value must be", SqlState::OUT_OF_RANGE),
    ("invalid function", SqlState::UNDEFINED_FUNCTION),
    ("no function matches", SqlState::UNDEFINED_FUNCTION),
    ("match any signature", SqlState::UNDEFINED_FUNCTION),
    ("but received", SqlState::UNDEFINED_FUNCTION),
    ("coerce arithmetic", SqlState::UNDEFINED_FUNCTION),
    ("argument type for comparison", SqlState::UNDEFINED_FUNCTION),
    ("inconsistent metadata", SqlState::NOT_SUPPORTED),
    ("unary operator '-'", SqlState::UNDEFINED_FUNCTION),
    ("string concat operation", SqlState::UNDEFINED_FUNCTION),
    ("boolean", SqlState::DATATYPE),
    ("coercion", SqlState::DATATYPE),
    ("coerce", SqlState::DATATYPE),
    ("type", SqlState::DATATYPE),
];

const EXECUTED: States = &[
    ("Scalar subquery returned more than one row", SqlState("21000")),
    ("evaluated before the subquery", SqlState::NOT_SUPPORTED),
    ("non UTF-8", SqlState::INVALID_ENCODING),
    ("Invalid string/binary operation", SqlState::UNDEFINED_FUNCTION),
    ("in BETWEEN expression", SqlState::UNDEFINED_FUNCTION),
    ("decimal with negative scale", SqlState::NOT_SUPPORTED),
    ("too small to store in a Decimal", SqlState::OUT_OF_RANGE),
    ("negative count", SqlState::SUBSTRING),
    ("square root of a negative", SqlState("2201F")),
    ("happened on FACTORIAL", SqlState::NOT_SUPPORTED),
    ("factorial of a negative", SqlState::OUT_OF_RANGE),
    ("verflow", SqlState::OUT_OF_RANGE),
    ("Timestamp out of range", SqlState::DATETIME_OVERFLOW),
    ("too large to store in a Decimal", SqlState::OUT_OF_RANGE),
    ("Regular expression", SqlState::INVALID_REGEX),
    ("regex parse error", SqlState::INVALID_REGEX),
];

/// Texts that are no valid value of their type.
const READ: States = &[
    ("timestamp", SqlState::INVALID_DATETIME),
    ("to value of Date", SqlState::INVALID_DATETIME),
    ("to value of Time", SqlState::INVALID_DATETIME),
    ("type interval", SqlState::INVALID_DATETIME),
];

fn state_of(what: &str, states: States) -> Option<SqlState> {
    states.iter().find(|(part, _)| what.contains(part)).map(|(_, state)| *state)
}
