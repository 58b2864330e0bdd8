//! Evaluation of functions.

use std::borrow::Cow;

use rust_decimal::prelude::ToPrimitive;
use rust_decimal::{Decimal, RoundingStrategy};

use crate::error::RowError;
use crate::expr::operate::check_length;
use crate::expr::syntax::Call;
use crate::letters::{lowercase, uppercase};
use crate::scalar::{Value, date_part, truncate_time};
use crate::types::Type;

const OUT_OF_RANGE: RowError = RowError::OutOfRange(Type::Int4);

/// Evaluates a function for the values of its arguments.
pub(super) fn apply(call: Call, mut values: Vec<Value<'_>>) -> Result<Value<'_>, RowError> {
    match call {
        Call::Concat => concat(values),
        Call::Greatest | Call::Least => Ok(extreme(call, values)),
        Call::NullIf => Ok(match values.as_slice() {
            [left, right] if !left.is_null() && left.order(right).is_eq() => Value::Null,
            _ => values.swap_remove(0),
        }),
        _ if values.iter().any(Value::is_null) => Ok(Value::Null),
        _ => strict(call, values),
    }
}

/// Evaluates a strict function: no argument is NULL. The binder has checked the types.
fn strict(call: Call, mut values: Vec<Value<'_>>) -> Result<Value<'_>, RowError> {
    match (call, values.as_mut_slice()) {
        (_, [Value::Text(text), rest @ ..]) => text_call(call, std::mem::take(text), rest),
        (Call::Abs, [Value::Int(it)]) => {
            Ok(Value::Int(it.checked_abs().ok_or(RowError::OutOfRange(Type::Int8))?))
        }
        (Call::Abs, [Value::Numeric(it)]) => Ok(Value::Numeric(it.abs())),
        (Call::Abs, [Value::Float(it)]) => Ok(Value::Float(it.abs())),
        (Call::Floor, [Value::Numeric(it)]) => Ok(Value::Numeric(it.floor())),
        (Call::Floor, [Value::Float(it)]) => Ok(Value::Float(it.floor())),
        (Call::Ceil, [Value::Numeric(it)]) => Ok(Value::Numeric(it.ceil())),
        (Call::Ceil, [Value::Float(it)]) => Ok(Value::Float(it.ceil())),
        (Call::Round, [Value::Float(it)]) => Ok(Value::Float(it.round_ties_even())),
        (Call::Round, [Value::Numeric(it)]) => round(*it, 0).map(Value::Numeric),
        (Call::Round, [Value::Numeric(it), Value::Int(digits)]) => {
            round(*it, *digits).map(Value::Numeric)
        }
        (Call::OctetLength | Call::Length, [Value::Bytes(bytes)]) => count(bytes.len()),
        (Call::ToTimestamp, [Value::Float(seconds)]) => time_of(*seconds),
        _ => Err(RowError::InvalidArgument("function does not exist for these argument types")),
    }
}

fn text_call<'a>(
    call: Call,
    text: Cow<'a, str>,
    rest: &mut [Value<'a>],
) -> Result<Value<'a>, RowError> {
    match (call, rest) {
        (Call::Lower, []) => Ok(Value::Text(Cow::Owned(lowercase(&text)))),
        (Call::Upper, []) => Ok(Value::Text(Cow::Owned(uppercase(&text)))),
        (Call::Length, []) => count(text.chars().count()),
        (Call::OctetLength, []) => count(text.len()),
        (Call::DatePart, [Value::Time(it)]) => Ok(Value::Numeric(date_part(&text, *it)?)),
        (Call::DateTrunc, [Value::Time(it)]) => Ok(Value::Time(truncate_time(&text, *it)?)),
        (Call::Position, [Value::Text(part)]) => {
            let found = text.find(&**part).map(|at| text[..at].chars().count() + 1);
            count(found.unwrap_or(0))
        }
        (Call::StartsWith, [Value::Text(part)]) => Ok(Value::Bool(text.starts_with(&**part))),
        (Call::Replace, [Value::Text(from), Value::Text(to)]) => replace(text, from, to),
        (Call::Left, [Value::Int(length)]) => {
            let end = if *length < 0 { length.saturating_add(length_of(&text)) } else { *length };
            Ok(Value::Text(cut(text, 0, end)))
        }
        (Call::Right, [Value::Int(length)]) => {
            let all = length_of(&text);
            let start =
                if *length < 0 { length.saturating_neg() } else { all - (*length).min(all) };
            Ok(Value::Text(cut(text, start, all)))
        }
        (Call::Substring, [Value::Int(start)]) => {
            Ok(Value::Text(cut(text, start.saturating_sub(1), i64::MAX)))
        }
        (Call::Substring, [Value::Int(start), Value::Int(length)]) => {
            if *length < 0 {
                return Err(RowError::NegativeLength);
            }
            let start = start.saturating_sub(1);
            Ok(Value::Text(cut(text, start, start.saturating_add(*length))))
        }
        (Call::Trim | Call::TrimStart | Call::TrimEnd, letters) => {
            let letters = match letters {
                [Value::Text(letters)] => &**letters,
                _ => " ",
            };
            Ok(Value::Text(trim(call, text, letters)))
        }
        _ => Err(RowError::InvalidArgument("function does not exist for these argument types")),
    }
}

fn concat(values: Vec<Value<'_>>) -> Result<Value<'_>, RowError> {
    let mut text = String::new();
    for value in values {
        if let Value::Bool(it) = value {
            text.push(if it { 't' } else { 'f' });
        } else if let Value::Text(part) = value.into_text() {
            check_length(text.len() + part.len())?;
            text.push_str(&part);
        }
    }
    Ok(Value::Text(Cow::Owned(text)))
}

/// Evaluates GREATEST and LEAST, which ignore NULL.
fn extreme(call: Call, values: Vec<Value<'_>>) -> Value<'_> {
    let values = values.into_iter().filter(|it| !it.is_null());
    let value = match call {
        Call::Greatest => values.max_by(|left, right| left.order(right)),
        _ => values.min_by(|left, right| left.order(right)),
    };
    value.unwrap_or(Value::Null)
}

/// Rounds half away from zero. Negative `digits` round before the decimal point.
fn round(number: Decimal, digits: i64) -> Result<Decimal, RowError> {
    let strategy = RoundingStrategy::MidpointAwayFromZero;
    let out_of_range = RowError::OutOfRange(Type::Numeric);
    match u32::try_from(digits) {
        Ok(digits) => {
            let scale = digits.min(Decimal::MAX_SCALE);
            let mut rounded = number.round_dp_with_strategy(scale, strategy);
            rounded.rescale(scale);
            Ok(rounded)
        }
        Err(_) if digits < -28 => Ok(Decimal::ZERO),
        Err(_) => {
            let places = digits.unsigned_abs().to_u32().ok_or(out_of_range)?;
            let unit = Decimal::from_i128_with_scale(10_i128.pow(places), 0);
            let units = number.checked_div(unit).ok_or(out_of_range)?;
            let units = units.round_dp_with_strategy(0, strategy);
            units.checked_mul(unit).ok_or(out_of_range)
        }
    }
}

fn time_of(seconds: f64) -> Result<Value<'static>, RowError> {
    let us = (seconds * 1e6).round();
    match us.to_i64() {
        Some(us) if seconds.is_finite() => Ok(Value::Time(us)),
        _ => Err(RowError::OutOfRange(Type::Timestamptz)),
    }
}

fn replace<'a>(text: Cow<'a, str>, from: &str, to: &str) -> Result<Value<'a>, RowError> {
    if from.is_empty() {
        return Ok(Value::Text(text));
    }
    let found = text.matches(from).count();
    check_length(text.len().saturating_add(found.saturating_mul(to.len())))?;
    Ok(Value::Text(Cow::Owned(text.replace(from, to))))
}

fn trim<'a>(call: Call, text: Cow<'a, str>, letters: &str) -> Cow<'a, str> {
    let is_trimmed = |letter: char| letters.contains(letter);
    let kept = match call {
        Call::TrimStart => text.trim_start_matches(is_trimmed),
        Call::TrimEnd => text.trim_end_matches(is_trimmed),
        _ => text.trim_matches(is_trimmed),
    };
    match kept.len() == text.len() {
        true => text,
        false => Cow::Owned(kept.to_owned()),
    }
}

/// Returns the characters from `start` to `end`, counted from 0 and clamped to the text.
fn cut(text: Cow<'_, str>, start: i64, end: i64) -> Cow<'_, str> {
    let (start, end) = (start.max(0), end.max(0));
    let byte_of = |index: i64| {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        text.char_indices().nth(index).map_or(text.len(), |(at, _)| at)
    };
    let (first, last) = (byte_of(start), byte_of(end));
    match first < last {
        true if first == 0 && last == text.len() => text,
        true => Cow::Owned(text[first..last].to_owned()),
        false => Cow::Borrowed(""),
    }
}

fn length_of(text: &str) -> i64 {
    i64::try_from(text.chars().count()).unwrap_or(i64::MAX)
}

fn count(count: usize) -> Result<Value<'static>, RowError> {
    Ok(Value::Int(i64::from(i32::try_from(count).map_err(|_| OUT_OF_RANGE)?)))
}
