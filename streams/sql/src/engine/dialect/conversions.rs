//! Casts that differ between the engine and PostgreSQL: to text, in the output format; to floats,
//! with range checks; to timestamps, in microseconds; to bytea.

use std::any::Any;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Float32Array, Float64Array, TimestampMicrosecondArray,
    new_null_array,
};
use datafusion::arrow::compute::kernels::cast_utils::string_to_datetime;
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options, concat};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type, TimeUnit};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

use super::jsonb::canonical;
use super::written::add_seconds;
use crate::engine::errors::{is_no_time, is_of_other_form};
use crate::error::{SqlError, SqlState};
use crate::wire::{DAY_US, jsonb_field, output_texts};

/// Target of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) enum To {
    Text,
    /// Text in the output format, with single letters for booleans.
    Output,
    Float8,
    Float4,
    Timestamp,
    Timestamptz,
    Bytea,
    /// JSON from valid text; otherwise NULL.
    Jsonb,
}

impl To {
    const ALL: [Self; 8] = [
        Self::Text,
        Self::Output,
        Self::Float8,
        Self::Float4,
        Self::Timestamp,
        Self::Timestamptz,
        Self::Bytea,
        Self::Jsonb,
    ];

    pub(in crate::engine) const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Output => "textout",
            Self::Float8 => "float8",
            Self::Float4 => "float4",
            Self::Timestamp => "timestamp",
            Self::Timestamptz => "timestamptz",
            Self::Bytea => "bytea",
            Self::Jsonb => "jsonb",
        }
    }

    fn arrow_type(self) -> DataType {
        match self {
            Self::Text | Self::Output | Self::Jsonb => DataType::Utf8View,
            Self::Float8 => DataType::Float64,
            Self::Float4 => DataType::Float32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Bytea => DataType::Binary,
        }
    }

    fn sql_name(self) -> &'static str {
        match self {
            Self::Text | Self::Output => "text",
            Self::Float8 => "double precision",
            Self::Float4 => "real",
            Self::Timestamp => "timestamp",
            Self::Timestamptz => "timestamp with time zone",
            Self::Bytea => "bytea",
            Self::Jsonb => "jsonb",
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Conversion {
    to: To,
    signature: Signature,
}

pub(in crate::engine) fn udf(to: To) -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Conversion { to, signature }))
}

/// Converts a value.
pub(super) fn converted(to: To, value: &ColumnarValue) -> Result<ColumnarValue> {
    match value {
        ColumnarValue::Array(array) => to.convert(array).map(ColumnarValue::Array),
        ColumnarValue::Scalar(scalar) => {
            let array = to.convert(&scalar.to_array()?)?;
            Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))
        }
    }
}

/// Returns a call that converts an expression.
pub(in crate::engine) fn call(to: To, of: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(udf(to), vec![of]))
}

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    To::ALL.map(udf).to_vec()
}

/// Returns the target type of a conversion function.
pub(super) fn target(function: &ScalarUDF) -> Option<DataType> {
    let inner: &dyn Any = function.inner().as_ref();
    inner.downcast_ref::<Conversion>().map(|it| it.to.arrow_type())
}

/// Returns the target type of a conversion function whose results have no metadata.
pub(super) fn plain_target(function: &ScalarUDF) -> Option<DataType> {
    let inner: &dyn Any = function.inner().as_ref();
    let conversion = inner.downcast_ref::<Conversion>().filter(|it| it.to != To::Jsonb)?;
    Some(conversion.to.arrow_type())
}

impl ScalarUDFImpl for Conversion {
    fn name(&self) -> &str {
        self.to.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.arrow_type())
    }

    /// Drops the argument's metadata, such as that it is JSON.
    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(match self.to {
            To::Jsonb => jsonb_field(self.name(), self.to.arrow_type()),
            _ => Field::new(self.name(), self.to.arrow_type(), true),
        }))
    }

    /// The engine's default has no data type, so nothing can be computed from it.
    fn evaluate_bounds(&self, _: &[&Interval]) -> Result<Interval> {
        Interval::make_unbounded(&self.to.arrow_type())
    }

    /// Removes the conversion of values that already have the type, unless they have metadata.
    fn simplify(&self, mut args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let field = args[0].to_field(info.schema());
        let is_it = field.is_ok_and(|(_, field)| {
            *field.data_type() == self.to.arrow_type()
                && field.metadata().is_empty()
                && self.to != To::Jsonb
        });
        Ok(match is_it {
            true => ExprSimplifyResult::Simplified(args.swap_remove(0)),
            false => ExprSimplifyResult::Original(args),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        converted(self.to, &args.args[0])
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

impl To {
    fn convert(self, array: &ArrayRef) -> Result<ArrayRef> {
        let from = array.data_type();
        if *from == DataType::Null {
            return Ok(new_null_array(&self.arrow_type(), array.len()));
        }
        match self {
            To::Text if *from == DataType::Boolean => Ok(cast(array, &DataType::Utf8View)?),
            To::Text | To::Output => Ok(output_texts(array)?),
            To::Float8 if is_text(from) || from.is_decimal() => {
                let texts = output_texts(array)?;
                let read = |text: &str| float8(text);
                let floats = texts.as_string_view().iter().map(|it| it.map(read).transpose());
                Ok(Arc::new(floats.collect::<Result<Float64Array>>()?))
            }
            To::Float4 if is_text(from) || from.is_decimal() => {
                let texts = output_texts(array)?;
                let read = |text: &str| float4(text);
                let floats = texts.as_string_view().iter().map(|it| it.map(read).transpose());
                Ok(Arc::new(floats.collect::<Result<Float32Array>>()?))
            }
            To::Float4 if *from == DataType::Float64 => {
                let floats = array.as_primitive::<Float64Type>().iter();
                let floats = floats.map(|it| it.map(narrow).transpose());
                Ok(Arc::new(floats.collect::<Result<Float32Array>>()?))
            }
            To::Timestamp | To::Timestamptz if is_text(from) => self.times(array),
            To::Jsonb => super::own::changed(array, |text| match canonical(text) {
                Ok(text) => Ok(Some(text)),
                // A record with invalid JSON must not fail the whole query.
                Err(error) if error.state == SqlState::NOT_SUPPORTED => Err(error),
                Err(_) => Ok(None),
            })
            .map_err(SqlError::into_engine),
            To::Bytea if is_text(from) => {
                let texts = cast(array, &DataType::Utf8View)?;
                let bytes = texts.as_string_view().iter().map(|it| it.map(bytea).transpose());
                Ok(Arc::new(bytes.collect::<Result<BinaryArray>>()?))
            }
            _ => self.plain(array),
        }
    }

    fn plain(self, array: &ArrayRef) -> Result<ArrayRef> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        Ok(cast_with_options(array, &self.arrow_type(), &options)?)
    }

    fn times(self, array: &ArrayRef) -> Result<ArrayRef> {
        let texts = cast(array, &DataType::Utf8View)?;
        let texts = texts.as_string_view();
        let times = texts.iter().map(|text| text.map(|it| self.time(it)).transpose());
        let times = times.collect::<Result<TimestampMicrosecondArray>>()?;
        Ok(match self {
            To::Timestamptz => Arc::new(times.with_timezone("UTC")),
            _ => Arc::new(times),
        })
    }

    /// Parses a time as microseconds since 1970, rounded to the nearest one.
    pub(super) fn time(self, text: &str) -> Result<i64> {
        let mut written = text.trim().to_owned();
        add_seconds(&mut written);
        // A timestamp without time zone ignores the zone in a text.
        if self == To::Timestamp {
            written.truncate(without_zone(&written).len());
        }
        let word = text.trim().to_ascii_lowercase();
        match word.as_str() {
            "epoch" => return Ok(0),
            it if SPECIAL_TIMES.contains(&it) => return Err(special_time(it).into_engine()),
            _ => {}
        }
        let invalid = || {
            let error = match is_no_time(text) {
                true => {
                    let what = format!("date/time field value out of range: {text:?}");
                    SqlError::new(SqlState::DATETIME_OVERFLOW, what)
                }
                false => {
                    let name = self.sql_name();
                    let what = format!("invalid input syntax for type {name}: {text:?}");
                    SqlError::new(SqlState::INVALID_DATETIME, what)
                }
            };
            error.into_engine()
        };
        if let Some(midnight) = with_midnight(&written) {
            return Ok(self.time(&midnight)? + DAY_US);
        }
        if is_of_other_form(text) || word.ends_with("am") || word.ends_with("pm") {
            return Err(other_form("timestamp", text).into_engine());
        }
        let time = string_to_datetime(&chrono_utc(), &written).map_err(|_| invalid())?;
        let fraction = i64::from(time.timestamp_subsec_nanos());
        let (whole, rest) = (fraction / 1_000, fraction % 1_000);
        let is_up = rest > 500 || rest == 500 && whole % 2 == 1;
        let us = time.timestamp().checked_mul(1_000_000);
        us.and_then(|it| it.checked_add(whole + i64::from(is_up))).ok_or_else(invalid)
    }
}

/// Returns a time at 24:00 as one at 00:00 of the same day.
fn with_midnight(text: &str) -> Option<String> {
    let (date, clock) = text.split_once([' ', 'T'])?;
    let rest = clock.trim_start().strip_prefix("24:00")?;
    let rest = rest.strip_prefix(":00").unwrap_or(rest);
    let is_end = rest.is_empty() || rest.starts_with(['Z', '+', '-', ' ']);
    is_end.then(|| format!("{date} 00:00:00{rest}"))
}

/// Returns whether a text is of digits and signs, in an order that only PostgreSQL reads.
pub(super) fn is_of_other_signs(text: &str) -> bool {
    let is_sign = |it: u8| it.is_ascii_digit() || matches!(it, b'-' | b'.' | b' ' | b':');
    let is_plain = text.len() <= 10 && text.split('-').count() == 3 && !text.contains('.');
    let has_short_year = text.find('-').is_some_and(|it| it < 4);
    let is_digits = text.bytes().all(|it| it.is_ascii_digit());
    text.bytes().any(|it| it.is_ascii_digit())
        && text.bytes().all(is_sign)
        && (!is_plain || has_short_year)
        && !(is_digits && text.len() == 8)
}

/// Error: a date or time is written in a form that is not supported.
pub(super) fn other_form(of: &str, text: &str) -> SqlError {
    SqlError::unsupported(format!("{of} format {text:?} is not supported"))
        .with_hint("Write it as 2026-01-31 or 2026-01-31 10:20:30.")
}

/// Maximum fractional digits of seconds.
const SECOND_DIGITS: usize = 6;

/// Rejects times of day that the engine would read differently.
pub(super) fn check_time(text: &str) -> Result<(), SqlError> {
    // The engine would parse these as seconds.
    let is_end_of_day = text.trim_start().starts_with("24");
    let is_zoned = text.contains(['+', '-']) || text.trim_start().starts_with(['T', 't']);
    let lower = text.trim_end().to_ascii_lowercase();
    let half = ["am", "pm"].into_iter().find_map(|it| lower.strip_suffix(it));
    let is_joined = half.is_some_and(|it| !it.ends_with(' '));
    let has_short_parts = text
        .split(':')
        .skip(1)
        .any(|it| !it.starts_with("60") && it.bytes().take_while(u8::is_ascii_digit).count() < 2);
    if is_end_of_day
        || is_zoned
        || is_joined
        || has_short_parts
        || is_of_other_form(text)
        || !text.contains(':') && text.bytes().any(|it| it.is_ascii_digit())
    {
        let what = format!("time format {text:?} is not supported");
        return Err(SqlError::unsupported(what).with_hint("Write it as 10:20:30."));
    }
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
    match fraction.bytes().take_while(u8::is_ascii_digit).count() > SECOND_DIGITS {
        true => Err(SqlError::unsupported(
            "time values with more than six fractional digits of seconds are not supported",
        )),
        false => Ok(()),
    }
}

/// Special date and time strings of PostgreSQL.
pub(super) const SPECIAL_TIMES: &[&str] =
    &["infinity", "+infinity", "-infinity", "now", "today", "tomorrow", "yesterday"];

/// Error: a special time string is not supported.
pub(super) fn special_time(word: &str) -> SqlError {
    SqlError::unsupported(format!("date/time value {word:?} is not supported"))
        .with_hint("Use now() or current_date.")
}

fn chrono_utc() -> datafusion::arrow::array::timezone::Tz {
    "+00:00".parse().expect("it is a zone")
}

/// Removes a trailing zone from a time: `Z`, `+02` or `-02:30`.
fn without_zone(text: &str) -> &str {
    let Some(clock) = text.find([' ', 'T']).map(|at| at + 1) else { return text };
    match text[clock..].find(['Z', 'z', '+', '-']) {
        Some(at) => text[..clock + at].trim_end(),
        None => text,
    }
}

fn float8(text: &str) -> Result<f64> {
    let (value, is_lost) = float(text, To::Float8, f64::is_infinite, |it| it == 0.0)?;
    if is_lost { Err(lost(text, To::Float8)) } else { Ok(value) }
}

fn float4(text: &str) -> Result<f32> {
    let (value, is_lost) = float(text, To::Float4, f32::is_infinite, |it| it == 0.0)?;
    if is_lost { Err(lost(text, To::Float4)) } else { Ok(value) }
}

/// Parses a float. Also returns whether the number is out of the type's range.
fn float<T: std::str::FromStr + Copy>(
    text: &str,
    to: To,
    is_infinite: impl Fn(T) -> bool,
    is_zero: impl Fn(T) -> bool,
) -> Result<(T, bool)> {
    let trimmed = text.trim_matches(|it: char| it.is_ascii_whitespace());
    let value: T = trimmed.parse().map_err(|_| {
        let what = format!("invalid input syntax for type {}: {text:?}", to.sql_name());
        SqlError::new(SqlState::INVALID_TEXT, what).into_engine()
    })?;
    let mantissa = trimmed.split(['e', 'E']).next().unwrap_or_default();
    let has_digits = mantissa.bytes().any(|it| it.is_ascii_digit());
    let is_nonzero = mantissa.bytes().any(|it| matches!(it, b'1'..=b'9'));
    Ok((value, has_digits && is_infinite(value) || is_nonzero && is_zero(value)))
}

fn lost(text: &str, to: To) -> datafusion::common::DataFusionError {
    let what = format!("{text:?} is out of range for type {}", to.sql_name());
    SqlError::new(SqlState::OUT_OF_RANGE, what).into_engine()
}

#[expect(clippy::cast_possible_truncation, reason = "what does not fit is an error")]
fn narrow(value: f64) -> Result<f32> {
    let narrowed = value as f32;
    let is_lost = narrowed.is_infinite() && value.is_finite() || narrowed == 0.0 && value != 0.0;
    match is_lost {
        true => {
            let way = if narrowed == 0.0 { "underflow" } else { "overflow" };
            let what = format!("value out of range: {way}");
            Err(SqlError::new(SqlState::OUT_OF_RANGE, what).into_engine())
        }
        false => Ok(narrowed),
    }
}

/// Parses bytea in PostgreSQL's formats: `\x` with hexadecimal digits, or characters with the
/// escapes `\\` and `\000`.
fn bytea(text: &str) -> Result<Vec<u8>> {
    let invalid = |state, what: &str| SqlError::new(state, what).into_engine();
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = digits.bytes().filter(|it| !it.is_ascii_whitespace()).collect();
        if !digits.len().is_multiple_of(2) {
            let what = "invalid hexadecimal data: odd number of digits";
            return Err(invalid(SqlState::INVALID_PARAMETER, what));
        }
        let digit = |it: u8| char::from(it).to_digit(16).and_then(|it| u8::try_from(it).ok());
        let bytes = digits.chunks(2).map(|it| Some(digit(it[0])? << 4 | digit(it[1])?));
        return bytes
            .collect::<Option<_>>()
            .ok_or_else(|| invalid(SqlState::INVALID_PARAMETER, "invalid hexadecimal digit"));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        match rest {
            [b'\\', more @ ..] => {
                bytes.push(b'\\');
                rest = more;
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', more @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = more;
            }
            _ => {
                let what = "invalid input syntax for type bytea";
                return Err(invalid(SqlState::INVALID_TEXT, what));
            }
        }
    }
    Ok(bytes)
}

/// A conversion that returns NULL on errors.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Lenient {
    inner: Arc<ScalarUDF>,
}

/// Wraps a function so that it returns NULL on errors.
pub(in crate::engine) fn lenient(inner: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::new_from_impl(Lenient { inner })
}

/// Unwraps a lenient function.
pub(super) fn strict(function: &ScalarUDF) -> &ScalarUDF {
    let inner: &dyn Any = function.inner().as_ref();
    inner.downcast_ref::<Lenient>().map_or(function, |it| &it.inner)
}

impl ScalarUDFImpl for Lenient {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn evaluate_bounds(&self, operands: &[&Interval]) -> Result<Interval> {
        self.inner.inner().evaluate_bounds(operands)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let found = self.inner.invoke_with_args(args.clone());
        if found.is_ok() {
            return found;
        }
        let array = args.args[0].to_array(args.number_rows)?;
        let rows = (0..array.len()).map(|row| {
            let one = ScalarFunctionArgs {
                args: vec![ColumnarValue::Array(array.slice(row, 1))],
                number_rows: 1,
                ..args.clone()
            };
            match self.inner.invoke_with_args(one) {
                Ok(value) => value.to_array(1),
                Err(_) => Ok(new_null_array(args.return_type(), 1)),
            }
        });
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let all = match rows.is_empty() {
            true => new_null_array(args.return_type(), 0),
            false => concat(&rows.iter().map(AsRef::as_ref).collect::<Vec<_>>())?,
        };
        Ok(ColumnarValue::Array(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_times_floats_and_bytes_as_in_postgresql() {
        let time = |to: To, text: &str| to.time(text).ok();
        let second = Some(1_767_225_601_000_000);
        assert_eq!(time(To::Timestamptz, "2026-01-01 00:00:00.9999999+00"), second);
        assert_eq!(time(To::Timestamptz, "2026-01-01T02:00:01+02"), second);
        assert_eq!(time(To::Timestamp, "2026-01-01 00:00:01-05:00"), second);
        assert_eq!(time(To::Timestamp, "2026-01-01 00:00"), Some(1_767_225_600_000_000));
        assert_eq!(time(To::Timestamp, "nothing"), None);
        let floats = [" 1.5 ", "-inf", "NaN", "1e400", "1e-400", "0e400", "x", ""];
        let found = floats.map(|it| float8(it).is_ok());
        assert_eq!(found, [true, true, true, false, false, true, false, false]);
        assert_eq!(bytea("\\x6A 6b").ok(), Some(b"jk".to_vec()));
        assert_eq!(bytea("a\\\\\\101").ok(), Some(b"a\\A".to_vec()));
        assert!(["\\x6", "\\xzz", "\\9"].iter().all(|it| bytea(it).is_err()));
    }
}
