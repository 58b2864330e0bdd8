//! Conversion of values from and to text, as by PostgreSQL's input and output functions.

use std::borrow::Cow;
use std::fmt::{self, Write};

use crate::error::RowError;
use crate::json;
use crate::scalar::{Value, number, time};
use crate::types::Type;

/// Parses `text` as a value of type `to`.
pub(crate) fn parse<'a>(text: &Cow<'a, str>, to: Type) -> Result<Value<'a>, RowError> {
    let trimmed = text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    Ok(match to {
        Type::Unknown | Type::Text => Value::Text(text.clone()),
        Type::Json => match json::is_json(text) {
            true => Value::Json(text.clone()),
            false => return Err(RowError::InvalidText(to)),
        },
        Type::Bool => Value::Bool(parse_bool(trimmed)?),
        Type::Int4 | Type::Int8 => Value::Int(parse_integer(trimmed, to)?),
        Type::Numeric => Value::Numeric(number::parse_numeric(trimmed)?),
        Type::Float8 => Value::Float(number::parse_float(trimmed)?),
        Type::Bytea => Value::Bytes(Cow::Owned(parse_bytes(text)?)),
        Type::Timestamptz => Value::Time(time::parse_time(trimmed)?),
        Type::Interval => Value::Interval(time::parse_interval(trimmed)?),
    })
}

fn parse_bool(text: &str) -> Result<bool, RowError> {
    let text = text.to_ascii_lowercase();
    let begins = |word: &str| !text.is_empty() && word.starts_with(&text);
    match text.as_str() {
        "on" | "1" => Ok(true),
        "of" | "off" | "0" => Ok(false),
        _ if begins("true") || begins("yes") => Ok(true),
        _ if begins("false") || begins("no") => Ok(false),
        _ => Err(RowError::InvalidText(Type::Bool)),
    }
}

fn parse_integer(text: &str, to: Type) -> Result<i64, RowError> {
    use std::num::IntErrorKind;
    let number: i64 =
        text.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => RowError::OutOfRange(to),
            _ => RowError::InvalidText(to),
        })?;
    check_integer(number, to)
}

/// Returns `number` if it fits type `to`.
pub(super) fn check_integer(number: i64, to: Type) -> Result<i64, RowError> {
    match to {
        Type::Int4 if i32::try_from(number).is_err() => Err(RowError::OutOfRange(to)),
        _ => Ok(number),
    }
}

/// Parses `\x` and hexadecimal digits, or text without a backslash.
fn parse_bytes(text: &str) -> Result<Vec<u8>, RowError> {
    let invalid = RowError::InvalidText(Type::Bytea);
    let Some(digits) = text.strip_prefix("\\x") else {
        return if text.contains('\\') { Err(invalid) } else { Ok(text.as_bytes().to_vec()) };
    };
    if digits.len() % 2 != 0 {
        return Err(invalid);
    }
    let pairs = digits.as_bytes().chunks_exact(2);
    let digit = |it: u8| char::from(it).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    pairs.map(byte).collect::<Option<Vec<u8>>>().ok_or(invalid)
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => Ok(()),
            Self::Bool(it) => out.write_str(if *it { "t" } else { "f" }),
            Self::Int(it) => write!(out, "{it}"),
            Self::Numeric(it) => write!(out, "{it}"),
            Self::Float(it) => out.write_str(&number::format_float(*it)),
            Self::Text(it) | Self::Json(it) => out.write_str(it),
            Self::Bytes(bytes) => {
                out.write_str("\\x")?;
                bytes.iter().try_for_each(|it| write!(out, "{it:02x}"))
            }
            Self::Time(it) => out.write_str(&time::format_time(*it)),
            Self::Interval(it) => out.write_str(&time::format_interval(*it)),
        }
    }
}

impl<'a> Value<'a> {
    /// Converts to text as a cast does: same as [`fmt::Display`], except for booleans.
    pub(crate) fn into_text(self) -> Value<'a> {
        match self {
            Self::Null => Value::Null,
            Self::Text(text) | Self::Json(text) => Value::Text(text),
            Self::Bool(it) => Value::Text(Cow::Borrowed(if it { "true" } else { "false" })),
            other => {
                let mut text = String::new();
                write!(text, "{other}").expect("a String takes all");
                Value::Text(Cow::Owned(text))
            }
        }
    }
}
