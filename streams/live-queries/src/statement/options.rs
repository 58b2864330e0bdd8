//! `WITH (name = value, …)` and points in the log.

use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use crate::error::{SqlError, SqlState};
use crate::scalar::{Value, parse};
use crate::statement::syntax::{Backpressure, OnError, Point, SubscribeOptions};
use crate::statement::text::{expect, name, take_word, unexpected};
use crate::types::Type;

const EVERY_MS_MAX: u64 = 3_600_000;
const SPEED_MAX: f64 = 1e6;
const OPTIONS_MAX: usize = 64;

/// Parses the options after WITH, if present: names in lower case, `true` for those without a
/// value.
pub(super) fn options(parser: &mut Parser<'_>) -> Result<Vec<(String, String)>, SqlError> {
    let mut options: Vec<(String, String)> = Vec::new();
    if !take_word(parser, "WITH") {
        return Ok(options);
    }
    expect(parser, &Token::LParen)?;
    loop {
        let option = name(parser)?;
        let has_value = parser.consume_token(&Token::Eq)
            || !matches!(parser.peek_token().token, Token::Comma | Token::RParen);
        let value = if has_value { literal(parser)? } else { "true".to_owned() };
        if options.iter().any(|(it, _)| *it == option) || options.len() == OPTIONS_MAX {
            let message =
                format!("option \"{option}\" specified more than once, or too many options");
            return Err(SqlError::new(SqlState::SYNTAX, message));
        }
        options.push((option, value));
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    expect(parser, &Token::RParen)?;
    Ok(options)
}

fn literal(parser: &mut Parser<'_>) -> Result<String, SqlError> {
    let text = match parser.peek_token().token {
        Token::Word(word) => word.value,
        Token::SingleQuotedString(text) | Token::Number(text, _) => text,
        _ => return Err(unexpected(parser, "a value")),
    };
    parser.advance_token();
    Ok(text)
}

pub(super) fn subscribe_options(
    options: Vec<(String, String)>,
) -> Result<SubscribeOptions, SqlError> {
    let mut parsed = SubscribeOptions::default();
    for (name, value) in options {
        match name.as_str() {
            "snapshot" => parsed.snapshot = truth(&name, &value)?,
            "progress" => parsed.progress = truth(&name, &value)?,
            "position" => parsed.position = truth(&name, &value)?,
            "every" => parsed.every_ms = Some(every(&name, &value)?),
            "speed" => parsed.speed = Some(speed(&name, &value)?),
            "backpressure" => parsed.backpressure = backpressure(&name, &value)?,
            "on_error" => parsed.on_error = on_error(&name, &value)?,
            _ => {
                let message = format!("unrecognized parameter \"{name}\"");
                return Err(SqlError::new(SqlState::INVALID_PARAMETER, message).with_hint(
                    "options: SNAPSHOT, PROGRESS, POSITION, EVERY, SPEED, BACKPRESSURE, ON_ERROR",
                ));
            }
        }
    }
    Ok(parsed)
}

fn invalid(name: &str, value: &str, wanted: &str) -> SqlError {
    let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
    SqlError::new(SqlState::INVALID_PARAMETER, message).with_hint(wanted)
}

fn truth(name: &str, value: &str) -> Result<bool, SqlError> {
    match parse(&value.into(), Type::Bool) {
        Ok(Value::Bool(it)) => Ok(it),
        _ => Err(invalid(name, value, "true or false")),
    }
}

/// Parses an interval in whole milliseconds.
pub(super) fn milliseconds(value: &str) -> Option<u64> {
    match parse(&value.into(), Type::Interval) {
        Ok(Value::Interval(us)) => u64::try_from(us / 1_000).ok(),
        _ => None,
    }
}

fn every(name: &str, value: &str) -> Result<u64, SqlError> {
    let every_ms = milliseconds(value).filter(|it| (1..=EVERY_MS_MAX).contains(it));
    every_ms.ok_or_else(|| invalid(name, value, "an interval from '1 ms' to '1 hour'"))
}

fn speed(name: &str, value: &str) -> Result<f64, SqlError> {
    let speed = value.parse().ok().filter(|it: &f64| *it > 0.0 && *it <= SPEED_MAX);
    speed.ok_or_else(|| invalid(name, value, "a positive number, 1.0 for the speed of the log"))
}

fn backpressure(name: &str, value: &str) -> Result<Backpressure, SqlError> {
    match value.to_ascii_lowercase().as_str() {
        "wait" => Ok(Backpressure::Wait),
        "conflate" => Ok(Backpressure::Conflate),
        "disconnect" => Ok(Backpressure::Disconnect),
        _ => Err(invalid(name, value, "wait, conflate or disconnect")),
    }
}

fn on_error(name: &str, value: &str) -> Result<OnError, SqlError> {
    match value.to_ascii_lowercase().as_str() {
        "skip" => Ok(OnError::Skip),
        "fail" => Ok(OnError::Fail),
        _ => Err(invalid(name, value, "skip or fail")),
    }
}

pub(super) fn point(parser: &mut Parser<'_>) -> Result<Point, SqlError> {
    if take_word(parser, "OFFSET") {
        return match number(parser)? {
            Some(offset) => Ok(Point::Offset(offset)),
            None => Err(unexpected(parser, "an offset")),
        };
    }
    if let Some(time_ms) = number(parser)? {
        return Ok(Point::TimeMs(time_ms));
    }
    let _ = take_word(parser, "TIMESTAMP") || take_word(parser, "TIMESTAMPTZ");
    let Token::SingleQuotedString(text) = parser.peek_token().token else {
        return Err(unexpected(parser, "a time or an offset"));
    };
    parser.advance_token();
    if let Some(positions) = positions(&text) {
        return Ok(Point::Positions(positions));
    }
    match parse(&text.as_str().into(), Type::Timestamptz) {
        Ok(Value::Time(us)) => Ok(Point::TimeMs(us.div_euclid(1_000))),
        _ => {
            let message = format!("invalid timestamp or position: \"{text}\"");
            Err(SqlError::new(SqlState::INVALID_DATETIME, message).with_hint(
                "use a timestamp such as '2026-01-31 10:00:00+00', or a position such \
                            as '0:17,1:20'",
            ))
        }
    }
}

fn number(parser: &mut Parser<'_>) -> Result<Option<i64>, SqlError> {
    let Token::Number(digits, _) = parser.peek_token().token else { return Ok(None) };
    let number = digits.parse().map_err(|_| unexpected(parser, "a whole number"))?;
    parser.advance_token();
    Ok(Some(number))
}

/// Parses `partition:offset,…`. Partitions must be unique.
fn positions(text: &str) -> Option<Vec<(i32, i64)>> {
    let mut positions: Vec<(i32, i64)> = Vec::new();
    for part in text.split(',') {
        let (partition, offset) = part.trim().split_once(':')?;
        let (partition, offset): (i32, i64) = (partition.parse().ok()?, offset.parse().ok()?);
        let is_new = positions.iter().all(|(it, _)| *it != partition);
        (is_new && partition >= 0 && offset >= 0).then(|| positions.push((partition, offset)))?;
    }
    Some(positions)
}
