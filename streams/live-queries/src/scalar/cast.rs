//! Casts between types.

use std::borrow::Cow;

use rust_decimal::prelude::ToPrimitive;
use rust_decimal::{Decimal, RoundingStrategy};

use crate::error::RowError;
use crate::json;
use crate::scalar::{Value, number, text};
use crate::types::Type;

/// Bounds of bigint as doubles. The upper one is the first that does not fit.
const INT8_FLOAT_MIN: f64 = -9_223_372_036_854_775_808.0;
const INT8_FLOAT_END: f64 = 9_223_372_036_854_775_808.0;

/// Returns whether a cast between these types exists.
pub(crate) fn can_cast(from: Type, to: Type) -> bool {
    let is_text = |it: Type| matches!(it, Type::Text | Type::Unknown);
    match (from, to) {
        _ if from == to || is_text(from) => to != Type::Unknown,
        (_, Type::Text) => true,
        (Type::Bool, Type::Int4) | (Type::Int4, Type::Bool) => true,
        (Type::Json, Type::Bool) => true,
        (Type::Json, _) => to.is_number(),
        _ => from.is_number() && to.is_number(),
    }
}

/// Casts `value` to type `to`. NULL stays NULL.
pub(crate) fn cast(value: Value<'_>, to: Type) -> Result<Value<'_>, RowError> {
    match (value, to) {
        (Value::Null, _) => Ok(Value::Null),
        (value, Type::Text) => Ok(value.into_text()),
        (Value::Text(text), _) => text::parse(&text, to),
        (Value::Json(text), Type::Json) => Ok(Value::Json(text)),
        (Value::Json(text), _) => cast_json(&text, to),
        (Value::Bool(it), Type::Int4) => Ok(Value::Int(i64::from(it))),
        (Value::Int(it), Type::Bool) => Ok(Value::Bool(it != 0)),
        (Value::Int(it), Type::Int4 | Type::Int8) => Ok(Value::Int(text::check_integer(it, to)?)),
        (Value::Int(it), Type::Numeric) => Ok(Value::Numeric(Decimal::from(it))),
        (Value::Int(it), Type::Float8) => {
            Ok(Value::Float(it.to_f64().ok_or(RowError::OutOfRange(to))?))
        }
        (Value::Numeric(it), Type::Float8) => {
            Ok(Value::Float(it.to_f64().ok_or(RowError::OutOfRange(to))?))
        }
        (Value::Numeric(it), Type::Int4 | Type::Int8) => {
            let rounded = it.round_dp_with_strategy(0, RoundingStrategy::MidpointAwayFromZero);
            let integer = rounded.to_i64().ok_or(RowError::OutOfRange(to))?;
            Ok(Value::Int(text::check_integer(integer, to)?))
        }
        (Value::Float(it), Type::Numeric) => Ok(Value::Numeric(number::float_to_numeric(it)?)),
        (Value::Float(it), Type::Int4 | Type::Int8) => {
            Ok(Value::Int(text::check_integer(float_to_integer(it, to)?, to)?))
        }
        (value, _) => Ok(value),
    }
}

/// Casts a JSON scalar to a number or boolean, as casts from `jsonb` do.
fn cast_json(text: &str, to: Type) -> Result<Value<'static>, RowError> {
    let text = text.trim_matches(json::is_space);
    let is_fit = match to {
        Type::Bool => matches!(text, "true" | "false"),
        _ => text.starts_with(|it: char| it == '-' || it.is_ascii_digit()),
    };
    if !is_fit {
        return Err(RowError::JsonKind(to));
    }
    let number =
        text::parse(&Cow::Borrowed(text), if to == Type::Bool { to } else { Type::Numeric });
    match (number, to) {
        // Double precision has a larger range than numeric has here.
        (_, Type::Float8) => Ok(text::parse(&Cow::Borrowed(text), to)?.into_owned()),
        (number, _) => Ok(cast(number?, to)?.into_owned()),
    }
}

fn float_to_integer(number: f64, to: Type) -> Result<i64, RowError> {
    let rounded = number.round_ties_even();
    if !(INT8_FLOAT_MIN..INT8_FLOAT_END).contains(&rounded) {
        return Err(RowError::OutOfRange(to));
    }
    rounded.to_i64().ok_or(RowError::OutOfRange(to))
}
