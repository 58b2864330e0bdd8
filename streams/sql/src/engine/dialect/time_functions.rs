//! Date/time functions of PostgreSQL that the engine lacks: `age`, and parsing by a template.

use std::sync::Arc;

use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, IntervalMonthDayNano, IntervalUnit, TimeUnit,
};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;

use super::by_row::{Body, Returns, Row, function, is_text};
use super::refusal::refused;
use super::to_char::MONTHS;
use crate::error::{SqlError, SqlState};
use crate::wire::{DAY_US, civil};

/// Functions that implement `to_timestamp` and `to_date` of two texts.
pub(super) const TIME_BY_PATTERN: &str = "time_by_pattern";
pub(super) const DATE_BY_PATTERN: &str = "date_by_pattern";

/// Function that tests whether two periods have a time in common.
pub(super) const OVERLAPS: &str = "overlaps";

const SECOND_US: i64 = 1_000_000;

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    const ALL: &[(&str, Returns, Body)] = &[
        ("age", of_times, age),
        (OVERLAPS, of_periods, overlap),
        (TIME_BY_PATTERN, time_of_texts, time_by_pattern),
        (DATE_BY_PATTERN, date_of_texts, date_by_pattern),
    ];
    ALL.iter().map(|(name, returns, body)| function(name, *returns, *body)).collect()
}

fn of_times(fields: &[FieldRef]) -> Result<Field, String> {
    let is_time = |it: &FieldRef| {
        let of = it.data_type();
        matches!(of, DataType::Timestamp(..) | DataType::Date32 | DataType::Null)
    };
    match fields {
        [one, other] if is_time(one) && is_time(other) => {
            Ok(Field::new("", DataType::Interval(IntervalUnit::MonthDayNano), true))
        }
        _ => Err(String::new()),
    }
}

fn of_periods(fields: &[FieldRef]) -> Result<Field, String> {
    let is_time = |it: &FieldRef| {
        let of = it.data_type();
        matches!(of, DataType::Timestamp(..) | DataType::Date32 | DataType::Null)
    };
    let is_end = |it: &FieldRef| is_time(it) || matches!(it.data_type(), DataType::Interval(_));
    match fields {
        [one, end, other, other_end]
            if is_time(one) && is_time(other) && is_end(end) && is_end(other_end) =>
        {
            Ok(Field::new("", DataType::Boolean, true))
        }
        [_, _, _, _] => Err("OVERLAPS of these types".to_owned()),
        _ => Err(String::new()),
    }
}

/// Returns the two times of a period in order, as microseconds. The first one is NULL only if both
/// are.
fn period(row: &Row<'_>, index: usize) -> Result<(Option<i64>, Option<i64>), SqlError> {
    let plain = DataType::Timestamp(TimeUnit::Microsecond, None);
    let us = |value: &ScalarValue| match value.cast_to(&plain) {
        Ok(ScalarValue::TimestampMicrosecond(us, _)) => Ok(us),
        Ok(_) => Ok(None),
        Err(error) => Err(SqlError::from(error)),
    };
    let end = &row.values[index + 1];
    let end = match matches!(end.data_type(), DataType::Interval(_)) {
        true => row.values[index].cast_to(&plain)?.add(end)?,
        false => end.clone(),
    };
    let (start, end) = (us(&row.values[index])?, us(&end)?);
    Ok(match (start, end) {
        (None, end) => (end, None),
        (Some(start), Some(end)) if start > end => (Some(end), Some(start)),
        pair => pair,
    })
}

/// Same as `overlaps` of PostgreSQL, which also has results for some periods without an end.
fn overlap(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let ((one, end), (other, other_end)) = (period(row, 0)?, period(row, 2)?);
    let (Some(one), Some(other)) = (one, other) else { return Ok(ScalarValue::Boolean(None)) };
    let ((first, first_end), (later, later_end)) = match one <= other {
        true => ((one, end), (other, other_end)),
        false => ((other, other_end), (one, end)),
    };
    let found = match (first == later, first_end, later_end) {
        (true, Some(_), Some(_)) => Some(true),
        (true, ..) | (false, None, _) => None,
        (false, Some(end), _) if later < end => Some(true),
        (false, _, later_end) => later_end.map(|_| false),
    };
    Ok(ScalarValue::Boolean(found))
}

fn texts(fields: &[FieldRef], data_type: DataType) -> Result<Field, String> {
    match fields {
        [one, other] if is_text(one) && is_text(other) => Ok(Field::new("", data_type, true)),
        _ => Err(String::new()),
    }
}

fn time_of_texts(fields: &[FieldRef]) -> Result<Field, String> {
    texts(fields, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())))
}

fn date_of_texts(fields: &[FieldRef]) -> Result<Field, String> {
    texts(fields, DataType::Date32)
}

/// Year, month, day, and microseconds since midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fields {
    year: i64,
    month: i64,
    day: i64,
    us: i64,
}

impl Fields {
    fn of(us: i64) -> Self {
        let (year, month, day) = civil(us.div_euclid(DAY_US));
        Self { year, month, day, us: us.rem_euclid(DAY_US) }
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

/// Returns months, days and time between two timestamps. Days are borrowed from the month of the
/// earlier one.
fn between(later: Fields, earlier: Fields) -> (i64, i64, i64) {
    let mut months = (later.year - earlier.year) * 12 + later.month - earlier.month;
    let (mut days, mut us) = (later.day - earlier.day, later.us - earlier.us);
    if us < 0 {
        (us, days) = (us + DAY_US, days - 1);
    }
    if days < 0 {
        days += days_of_month(earlier.year, earlier.month);
        months -= 1;
    }
    (months, days, us)
}

fn age(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let time = |index: usize| {
        let plain = DataType::Timestamp(TimeUnit::Microsecond, None);
        match row.values[index].cast_to(&plain) {
            Ok(ScalarValue::TimestampMicrosecond(us, _)) => Ok(us),
            Ok(_) => Ok(None),
            Err(error) => Err(SqlError::from(error)),
        }
    };
    let (Some(one), Some(other)) = (time(0)?, time(1)?) else {
        return Ok(ScalarValue::IntervalMonthDayNano(None));
    };
    let sign = if one < other { -1 } else { 1 };
    let (later, earlier) = (Fields::of(one.max(other)), Fields::of(one.min(other)));
    let (months, days, us) = between(later, earlier);
    let range = || SqlError::new(SqlState::DATETIME_OVERFLOW, "interval out of range");
    let small = |it: i64| i32::try_from(it * sign).map_err(|_| range());
    let (months, days) = (small(months)?, small(days)?);
    let nanoseconds = us * sign * 1_000;
    let interval = IntervalMonthDayNano { months, days, nanoseconds };
    Ok(ScalarValue::IntervalMonthDayNano(Some(interval)))
}

/// Supported template patterns, and the number of digits of each.
const NUMBERS: &[(&str, usize)] = &[
    ("YYYY", 4),
    ("HH24", 2),
    ("HH12", 2),
    ("MM", 2),
    ("DD", 2),
    ("HH", 2),
    ("MI", 2),
    ("SS", 2),
    ("MS", 3),
    ("US", 6),
];

const HALVES: &[&str] = &["AM", "PM", "am", "pm"];

/// Fields parsed from a text.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    year: Option<i64>,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    us: i64,
    is_of_twelve: bool,
    is_afternoon: Option<bool>,
}

/// Parses a text by a template. Numbers must have all their digits, and all other characters must
/// match exactly. Other texts, for which PostgreSQL has special rules per pattern, are rejected.
fn read(text: &str, pattern: &str) -> Result<Found, SqlError> {
    let strange = || {
        refused(&format!(
            "parsing {text:?}, which does not match format {pattern:?} digit for digit,"
        ))
        .with_hint("Every number needs all digits of its template pattern, such as 05 for MM.")
    };
    let mut found = Found { month: 1, day: 1, ..Found::default() };
    let (mut text_left, mut left) = (text, pattern);
    while let Some(letter) = left.chars().next() {
        if let Some((sign, count)) = NUMBERS.iter().find(|(sign, _)| starts_with(left, sign)) {
            let digits = text_left.get(..*count).filter(|it| {
                let follows = text_left.as_bytes().get(*count).copied().unwrap_or(b' ');
                let is_next_sign =
                    left.as_bytes().get(sign.len()).is_some_and(u8::is_ascii_alphabetic);
                it.bytes().all(|it| it.is_ascii_digit())
                    && (is_next_sign || !follows.is_ascii_digit())
            });
            let number: i64 = digits.and_then(|it| it.parse().ok()).ok_or_else(strange)?;
            (text_left, left) = (&text_left[*count..], &left[sign.len()..]);
            found.take(&sign.to_ascii_uppercase(), number, text)?;
        } else if let Some(half) = HALVES.iter().find(|it| left.starts_with(**it)) {
            let given = text_left.get(..2).ok_or_else(strange)?;
            found.is_afternoon = Some(match given.to_ascii_uppercase().as_str() {
                "AM" => false,
                "PM" => true,
                _ => return Err(strange()),
            });
            (text_left, left) = (&text_left[2..], &left[half.len()..]);
        } else if starts_with(left, "MON") && !starts_with(left, "MONTH") {
            let name = text_left.get(..3).ok_or_else(strange)?;
            let is_it = |it: &str| it[..3].eq_ignore_ascii_case(name);
            let month = MONTHS.iter().position(|it| is_it(it)).ok_or_else(strange)?;
            found.month = i64::try_from(month).unwrap_or(0) + 1;
            (text_left, left) = (&text_left[3..], &left[3..]);
        } else if let Some(quoted) = left.strip_prefix('"') {
            let Some((inside, behind)) = quoted.split_once('"') else { return Err(strange()) };
            text_left = text_left.strip_prefix(inside).ok_or_else(strange)?;
            left = behind;
        } else if letter.is_ascii_alphanumeric() {
            let what = format!("template pattern {left:?} for parsing dates and times");
            return Err(refused(&what));
        } else {
            text_left = text_left.strip_prefix(letter).ok_or_else(strange)?;
            left = &left[letter.len_utf8()..];
        }
    }
    if !text_left.is_empty() {
        return Err(strange());
    }
    Ok(found)
}

fn starts_with(text: &str, sign: &str) -> bool {
    text.get(..sign.len()).is_some_and(|it| it.eq_ignore_ascii_case(sign))
}

impl Found {
    fn take(&mut self, sign: &str, number: i64, text: &str) -> Result<(), SqlError> {
        let (least, most) = match sign {
            "YYYY" => (1, 9_999),
            "MM" => (1, 12),
            "DD" => (1, 31),
            "HH24" => (0, 23),
            "HH" | "HH12" => (1, 12),
            "MI" | "SS" => (0, 59),
            _ => (0, i64::MAX),
        };
        if !(least..=most).contains(&number) {
            return Err(out_of_range(text));
        }
        match sign {
            "YYYY" => self.year = Some(number),
            "MM" => self.month = number,
            "DD" => self.day = number,
            "HH24" => self.hour = number,
            "HH" | "HH12" => (self.hour, self.is_of_twelve) = (number, true),
            "MI" => self.minute = number,
            "SS" => self.us += number * SECOND_US,
            "MS" => self.us += number * 1_000,
            _ => self.us += number,
        }
        Ok(())
    }

    /// Returns the days since 1970-01-01, and the microseconds since midnight.
    fn time(self, text: &str) -> Result<(i64, i64), SqlError> {
        let Some(year) = self.year else {
            return Err(refused("parsing a date or time without YYYY in its format"));
        };
        if self.day > days_of_month(year, self.month) {
            return Err(out_of_range(text));
        }
        let hour = match (self.is_of_twelve, self.is_afternoon) {
            (false, None) => self.hour,
            (true, afternoon) => self.hour % 12 + if afternoon == Some(true) { 12 } else { 0 },
            (false, Some(_)) => return Err(refused("AM or PM together with HH24")),
        };
        let us = (hour * 60 + self.minute) * 60 * SECOND_US + self.us;
        Ok((days_of(year, self.month, self.day), us))
    }
}

fn out_of_range(text: &str) -> SqlError {
    let what = format!("date/time field value out of range: {text:?}");
    SqlError::new(SqlState::DATETIME_OVERFLOW, what)
}

/// Returns the days since 1970-01-01: the inverse of [`civil`].
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn found(row: &Row<'_>) -> Result<Option<(i64, i64)>, SqlError> {
    match (row.text(0), row.text(1)) {
        (Some(text), Some(pattern)) => read(text, pattern)?.time(text).map(Some),
        _ => Ok(None),
    }
}

fn time_by_pattern(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let us = found(row)?.map(|(days, us)| days * DAY_US + us);
    Ok(ScalarValue::TimestampMicrosecond(us, Some("UTC".into())))
}

fn date_by_pattern(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let days = found(row)?.and_then(|(days, _)| i32::try_from(days).ok());
    Ok(ScalarValue::Date32(days))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_as_they_are_shown() {
        for days in (-800_000..3_000_000).step_by(97) {
            let (year, month, day) = civil(days);
            assert_eq!(days_of(year, month, day), days);
        }
    }

    #[test]
    fn texts_are_read_by_their_patterns_or_refused() {
        let us = |text: &str, pattern: &str| {
            let found = read(text, pattern).and_then(|it| it.time(text));
            found.map(|(days, us)| days * DAY_US + us).map_err(|it| it.state)
        };
        let second = 1_767_225_601_000_000;
        assert_eq!(us("2026-01-01 00:00:01", "YYYY-MM-DD HH24:MI:SS"), Ok(second));
        assert_eq!(us("20260101000001", "yyyymmddhh24miss"), Ok(second));
        assert_eq!(us("01 Jan 2026 12:00:01 am", "DD Mon YYYY HH:MI:SS AM"), Ok(second));
        assert_eq!(us("2026-02-29", "YYYY-MM-DD"), Err(SqlState::DATETIME_OVERFLOW));
        assert_eq!(us("2026-13-01", "YYYY-MM-DD"), Err(SqlState::DATETIME_OVERFLOW));
        for (text, pattern) in [
            ("2026-1-1", "YYYY-MM-DD"),
            ("2026-01-01 ", "YYYY-MM-DD"),
            ("12345-01-01", "YYYY-MM-DD"),
            ("2026/01/01", "YYYY-MM-DD"),
            ("2026-W01", "IYYY-IW"),
            ("01-01", "MM-DD"),
        ] {
            assert_eq!(us(text, pattern), Err(SqlState::NOT_SUPPORTED), "{text} {pattern}");
        }
    }
}
