//! Timestamps and intervals: parsing, formatting and fields. All times are UTC.

use std::fmt::Write;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, Timelike, Utc};
use rust_decimal::Decimal;

use crate::error::RowError;
use crate::types::Type;

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;
const INVALID_TIME: RowError = RowError::InvalidText(Type::Timestamptz);
const INVALID_INTERVAL: RowError = RowError::InvalidText(Type::Interval);

/// Parses `2026-01-31[ T]10:20[:30[.5]][ ][Z|UTC|+01[[:]30]]`, or a date only.
pub(super) fn parse_time(text: &str) -> Result<i64, RowError> {
    let (text, zone_us) = split_zone(text)?;
    let (date, time) = text.split_once([' ', 'T', 't']).unwrap_or((text, "00:00"));
    let date = NaiveDate::parse_from_str(date, "%Y-%m-%d").map_err(|_| INVALID_TIME)?;
    let formats = ["%H:%M:%S%.f", "%H:%M"];
    let time = formats.iter().find_map(|it| NaiveTime::parse_from_str(time.trim(), it).ok());
    let time = NaiveDateTime::new(date, time.ok_or(INVALID_TIME)?).and_utc().timestamp_micros();
    time.checked_sub(zone_us).ok_or(RowError::OutOfRange(Type::Timestamptz))
}

/// Splits off the time zone at the end, as microseconds east of Greenwich.
fn split_zone(text: &str) -> Result<(&str, i64), RowError> {
    for suffix in ["Z", "z", " UTC", " utc"] {
        if let Some(rest) = text.strip_suffix(suffix) {
            return Ok((rest.trim_end(), 0));
        }
    }
    let Some(clock) = text.find(':') else { return Ok((text, 0)) };
    let Some(sign) = text[clock..].find(['+', '-']).map(|it| clock + it) else {
        return Ok((text, 0));
    };
    let digits: String = text[sign + 1..].chars().filter(|it| *it != ':').collect();
    let (hours, minutes) = match digits.len() {
        1 | 2 => (digits.parse::<i64>(), Ok(0)),
        4 if digits.is_ascii() => (digits[..2].parse(), digits[2..].parse::<i64>()),
        _ => return Err(INVALID_TIME),
    };
    let (hours, minutes) = (hours.map_err(|_| INVALID_TIME)?, minutes.map_err(|_| INVALID_TIME)?);
    if !(0..16).contains(&hours) || !(0..60).contains(&minutes) {
        return Err(INVALID_TIME);
    }
    let offset = (hours * 60 + minutes) * 60 * SECOND_US;
    let is_west = text.as_bytes()[sign] == b'-';
    Ok((text[..sign].trim_end(), if is_west { -offset } else { offset }))
}

pub(super) fn format_time(time_us: i64) -> String {
    let Some(time) = DateTime::<Utc>::from_timestamp_micros(time_us) else {
        return format!("{time_us} us");
    };
    let mut text = time.format("%Y-%m-%d %H:%M:%S").to_string();
    push_fraction(&mut text, time_us.rem_euclid(SECOND_US));
    text.push_str("+00");
    text
}

fn push_fraction(text: &mut String, us: i64) {
    if us != 0 {
        let digits = format!(".{us:06}");
        text.push_str(digits.trim_end_matches('0'));
    }
}

/// Parses `1 day 2 hours`, `100 ms`, `01:30:00`. Months and years are rejected, as their length
/// varies.
pub(super) fn parse_interval(text: &str) -> Result<i64, RowError> {
    let mut words = text.split_whitespace().peekable();
    let mut sum: i64 = 0;
    if words.peek().is_none() {
        return Err(INVALID_INTERVAL);
    }
    while let Some(word) = words.next() {
        let part = match word.contains(':') {
            true => parse_clock(word)?,
            false => {
                let split = word.find(|it: char| it.is_ascii_alphabetic()).unwrap_or(word.len());
                let (number, unit) = match &word[split..] {
                    "" => (word, words.next().ok_or(INVALID_INTERVAL)?),
                    unit => (&word[..split], unit),
                };
                let number: Decimal = number.parse().map_err(|_| INVALID_INTERVAL)?;
                scaled(number, unit_us(unit)?)?
            }
        };
        sum = sum.checked_add(part).ok_or(RowError::OutOfRange(Type::Interval))?;
    }
    Ok(sum)
}

fn scaled(number: Decimal, unit_us: i64) -> Result<i64, RowError> {
    let us = number.checked_mul(Decimal::from(unit_us)).map(|it| it.round());
    us.and_then(|it| i64::try_from(it).ok()).ok_or(RowError::OutOfRange(Type::Interval))
}

fn parse_clock(text: &str) -> Result<i64, RowError> {
    let (is_negative, clock) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut sum = Decimal::ZERO;
    for (part, unit_us) in clock.splitn(3, ':').zip([3_600 * SECOND_US, 60 * SECOND_US, SECOND_US])
    {
        let number: Decimal = part.parse().map_err(|_| INVALID_INTERVAL)?;
        sum += number.checked_mul(Decimal::from(unit_us)).ok_or(INVALID_INTERVAL)?;
    }
    let us = i64::try_from(sum.round()).map_err(|_| INVALID_INTERVAL)?;
    Ok(if is_negative { -us } else { us })
}

fn unit_us(unit: &str) -> Result<i64, RowError> {
    Ok(match unit.to_ascii_lowercase().as_str() {
        "us" | "microsecond" | "microseconds" => 1,
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => 1_000,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND_US,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * SECOND_US,
        "h" | "hour" | "hours" => 3_600 * SECOND_US,
        "d" | "day" | "days" => DAY_US,
        "w" | "week" | "weeks" => 7 * DAY_US,
        _ => return Err(INVALID_INTERVAL),
    })
}

pub(super) fn format_interval(interval_us: i64) -> String {
    let (days, rest) = (interval_us / DAY_US, interval_us % DAY_US);
    let mut text = String::new();
    if days != 0 {
        let plural = if days == 1 { "" } else { "s" };
        write!(text, "{days} day{plural}").expect("a String takes all");
        if rest == 0 {
            return text;
        }
        text.push(' ');
    }
    let sign = if rest < 0 { "-" } else { "" };
    let seconds = rest.abs() / SECOND_US;
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    write!(text, "{sign}{hours:02}:{minutes:02}:{seconds:02}").expect("a String takes all");
    push_fraction(&mut text, rest.abs() % SECOND_US);
    text
}

/// Evaluates `date_trunc(unit, time)`.
pub(crate) fn truncate_time(unit: &str, time_us: i64) -> Result<i64, RowError> {
    let fixed_us = match unit {
        "microseconds" | "microsecond" => 1,
        "milliseconds" | "millisecond" => 1_000,
        "second" => SECOND_US,
        "minute" => 60 * SECOND_US,
        "hour" => 3_600 * SECOND_US,
        "day" => DAY_US,
        "week" | "month" | "year" => return truncate_date(unit, time_us),
        _ => return Err(RowError::InvalidArgument("unit not recognized for date_trunc")),
    };
    Ok(time_us - time_us.rem_euclid(fixed_us))
}

fn truncate_date(unit: &str, time_us: i64) -> Result<i64, RowError> {
    let out_of_range = RowError::OutOfRange(Type::Timestamptz);
    let time = DateTime::<Utc>::from_timestamp_micros(time_us).ok_or(out_of_range)?;
    let date = time.date_naive();
    let date = match unit {
        "week" => date
            .checked_sub_days(chrono::Days::new(u64::from(date.weekday().num_days_from_monday()))),
        "month" => date.with_day(1),
        _ => NaiveDate::from_ymd_opt(date.year(), 1, 1),
    };
    let midnight = date.ok_or(out_of_range)?.and_time(NaiveTime::MIN);
    Ok(midnight.and_utc().timestamp_micros())
}

/// Evaluates `extract(field FROM time)`.
pub(crate) fn date_part(field: &str, time_us: i64) -> Result<Decimal, RowError> {
    let out_of_range = RowError::OutOfRange(Type::Timestamptz);
    let time = DateTime::<Utc>::from_timestamp_micros(time_us).ok_or(out_of_range)?;
    let second_us = time_us.rem_euclid(60 * SECOND_US);
    Ok(match field {
        "epoch" => Decimal::new(time_us, 6),
        "year" => Decimal::from(time.year()),
        "month" => Decimal::from(time.month()),
        "day" => Decimal::from(time.day()),
        "dow" => Decimal::from(time.weekday().num_days_from_sunday()),
        "isodow" => Decimal::from(time.weekday().number_from_monday()),
        "doy" => Decimal::from(time.ordinal()),
        "week" => Decimal::from(time.iso_week().week()),
        "hour" => Decimal::from(time.hour()),
        "minute" => Decimal::from(time.minute()),
        "second" => Decimal::new(second_us, 6),
        "milliseconds" => Decimal::new(second_us, 3),
        "microseconds" => Decimal::from(second_us),
        _ => return Err(RowError::InvalidArgument("field not recognized for extract")),
    })
}
