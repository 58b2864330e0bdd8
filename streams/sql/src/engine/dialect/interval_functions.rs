//! Interval and date/time functions of PostgreSQL that the engine lacks, and multiplication and
//! division of intervals by numbers.

use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, IntervalMonthDayNano, IntervalUnit, TimeUnit,
};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;
use datafusion::sql::sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, FunctionArguments};

use std::sync::Arc;

use super::by_row::{Body, Returns, Row, function, is_text};
use super::truncated::date_of;
use super::written::{call, number};
use super::zones::{Zone, out_of_range};
use crate::error::{SqlError, SqlState};
use crate::wire::DAY_US;

/// Functions that implement `*` and `/` of an interval and a number.
pub(super) const TIMES: &str = "interval_times";
pub(super) const OVER: &str = "interval_over";

/// Function `make_interval`, and its arguments in order.
pub(super) const MAKE_INTERVAL: &str = "make_interval";
const PARTS: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];

/// Functions with a single interval argument.
pub(super) const OF_INTERVAL: &[&str] = &["justify_days", "justify_hours", "justify_interval"];

const MONTH_DAYS: i64 = 30;
const SECOND_US: f64 = 1_000_000.0;
const DAY_SECONDS: f64 = 86_400.0;
const HOUR_US: i64 = 3_600_000_000;
const MINUTE_US: i64 = 60_000_000;

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    const ALL: &[(&str, Returns, Body)] = &[
        (TIMES, of_interval_and_number, |row| scaled(row, |part, by| part * by)),
        ("justify_days", of_interval, |row| justified(row, justify_days)),
        ("justify_hours", of_interval, |row| justified(row, justify_hours)),
        ("justify_interval", of_interval, |row| justified(row, justify_interval)),
        (MAKE_INTERVAL, of_parts, make_interval),
        ("make_timestamp", of_fields, make_timestamp),
        ("make_timestamptz", of_zoned_fields, make_timestamptz),
        ("make_time", of_clock, make_time),
        ("isfinite", of_time, is_finite),
    ];
    let all = ALL.iter().map(|(name, returns, body)| function(name, *returns, *body));
    all.chain([interval_over()]).collect()
}

/// Returns the function that divides an interval by a number.
pub(super) fn interval_over() -> Arc<ScalarUDF> {
    function(OVER, of_interval_and_number, over)
}

/// Rewrites `make_interval` to all arguments in order.
pub(super) fn interval_of_parts(given: &FunctionArguments) -> Result<Expr, SqlError> {
    let wrong = || {
        let what = "function make_interval with these arguments does not exist";
        SqlError::new(SqlState::UNDEFINED_FUNCTION, what)
    };
    let FunctionArguments::List(list) = given else { return Err(wrong()) };
    let mut parts: [Option<Expr>; PARTS.len()] = Default::default();
    for (index, argument) in list.args.iter().enumerate() {
        let (index, expr) = match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => (Some(index), expr),
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expr), .. } => {
                let name = name.value.to_ascii_lowercase();
                (PARTS.iter().position(|it| *it == name), expr)
            }
            _ => return Err(wrong()),
        };
        let part = index.and_then(|it| parts.get_mut(it)).ok_or_else(wrong)?;
        if part.replace(expr.clone()).is_some() {
            return Err(wrong());
        }
    }
    let parts = parts.into_iter().map(|it| it.unwrap_or_else(|| number("0")));
    Ok(call(MAKE_INTERVAL, parts.collect()))
}

/// Parts of an interval: months, days and microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    pub(super) months: i64,
    pub(super) days: i64,
    pub(super) us: i64,
}

/// Returns the length of an interval in nanoseconds.
pub(super) fn length_of(it: IntervalMonthDayNano) -> i128 {
    const DAY_NS: i128 = 86_400_000_000_000;
    let days = i128::from(it.months) * i128::from(MONTH_DAYS) + i128::from(it.days);
    days * DAY_NS + i128::from(it.nanoseconds)
}

fn interval_field() -> Field {
    Field::new("", DataType::Interval(IntervalUnit::MonthDayNano), true)
}

fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_) | DataType::Duration(_))
}

fn is_number(field: &FieldRef) -> bool {
    field.data_type().is_numeric() || field.data_type().is_null()
}

fn is_whole(field: &FieldRef) -> bool {
    matches!(field.data_type(), DataType::Int16 | DataType::Int32 | DataType::Null)
}

fn of_interval(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [one] if is_interval(one.data_type()) || one.data_type().is_null() => Ok(interval_field()),
        _ => Err(String::new()),
    }
}

fn of_interval_and_number(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [one, by] if is_interval(one.data_type()) && is_number(by) => Ok(interval_field()),
        _ => Err(String::new()),
    }
}

fn of_parts(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [whole @ .., seconds] if whole.len() == 6 => {
            match whole.iter().all(is_whole) && is_number(seconds) {
                true => Ok(interval_field()),
                false => Err(String::new()),
            }
        }
        _ => Err(String::new()),
    }
}

fn of_fields(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [whole @ .., seconds]
            if whole.len() == 5 && whole.iter().all(is_whole) && is_number(seconds) =>
        {
            Ok(Field::new("", DataType::Timestamp(TimeUnit::Microsecond, None), true))
        }
        _ => Err(String::new()),
    }
}

fn of_zoned_fields(fields: &[FieldRef]) -> Result<Field, String> {
    let to = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let fields = match fields {
        [fields @ .., zone] if fields.len() == 6 && is_text(zone) => fields,
        fields => fields,
    };
    of_fields(fields).map(|it| it.with_data_type(to))
}

fn of_clock(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [hour, minute, seconds] if is_whole(hour) && is_whole(minute) && is_number(seconds) => {
            Ok(Field::new("", DataType::Time64(TimeUnit::Microsecond), true))
        }
        _ => Err(String::new()),
    }
}

fn of_time(fields: &[FieldRef]) -> Result<Field, String> {
    let is_time = |it: &DataType| matches!(it, DataType::Timestamp(..) | DataType::Date32);
    match fields {
        [one] if is_time(one.data_type()) || is_interval(one.data_type()) => {
            Ok(Field::new("", DataType::Boolean, true))
        }
        _ => Err(String::new()),
    }
}

/// `isfinite`: always true, because infinite values are not supported.
fn is_finite(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    Ok(ScalarValue::Boolean(row.values.first().filter(|it| !it.is_null()).map(|_| true)))
}

/// Returns the parts of an interval.
fn parts(value: &ScalarValue) -> Result<Option<Parts>, SqlError> {
    if value.is_null() {
        return Ok(None);
    }
    let value = value.cast_to(&DataType::Interval(IntervalUnit::MonthDayNano))?;
    let ScalarValue::IntervalMonthDayNano(value) = value else { return Ok(None) };
    Ok(value.map(|it| Parts {
        months: i64::from(it.months),
        days: i64::from(it.days),
        us: it.nanoseconds / 1_000,
    }))
}

pub(super) fn range() -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, "interval out of range")
}

pub(super) fn interval(Parts { months, days, us }: Parts) -> Result<ScalarValue, SqlError> {
    let small = |it: i64| i32::try_from(it).map_err(|_| range());
    let (months, days) = (small(months)?, small(days)?);
    // The engine's nanoseconds have a smaller range.
    let far =
        || SqlError::unsupported("an interval with hours of more than 292 years is not supported");
    let nanoseconds = us.checked_mul(1_000).ok_or_else(far)?;
    let interval = IntervalMonthDayNano { months, days, nanoseconds };
    Ok(ScalarValue::IntervalMonthDayNano(Some(interval)))
}

const NONE: ScalarValue = ScalarValue::IntervalMonthDayNano(None);

fn float(value: &ScalarValue) -> Result<Option<f64>, SqlError> {
    match value.cast_to(&DataType::Float64)? {
        ScalarValue::Float64(value) => Ok(value),
        _ => Ok(None),
    }
}

fn over(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    match float(&row.values[1])? {
        Some(by) if by == 0.0 && !row.values[0].is_null() => {
            Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"))
        }
        _ => scaled(row, |part, by| part / by),
    }
}

/// Scales each part. Fractions of months become days, and fractions of days become hours.
#[expect(clippy::cast_possible_truncation, reason = "PostgreSQL cuts off too, within bounds")]
#[expect(clippy::cast_precision_loss, reason = "PostgreSQL computes with floats")]
fn scaled(row: &Row<'_>, scale: fn(f64, f64) -> f64) -> Result<ScalarValue, SqlError> {
    let (Some(given), Some(by)) = (parts(&row.values[0])?, float(&row.values[1])?) else {
        return Ok(NONE);
    };
    let whole = |part: i64| {
        let scaled = scale(part as f64, by);
        let fits = scaled.is_finite() && scaled.abs() < f64::from(i32::MAX);
        if fits { Ok((scaled, scaled.trunc())) } else { Err(range()) }
    };
    let rounded = |it: f64| (it * SECOND_US).round_ties_even() / SECOND_US;
    let (months, whole_months) = whole(given.months)?;
    let (days, whole_days) = whole(given.days)?;
    let more_days = rounded((months - whole_months) * MONTH_DAYS as f64);
    let seconds = (days - whole_days + more_days - more_days.trunc()) * DAY_SECONDS;
    let mut seconds = rounded(seconds);
    let mut days = whole_days as i64;
    if seconds.abs() >= DAY_SECONDS {
        let carried = (seconds / DAY_SECONDS).trunc();
        days += carried as i64;
        seconds -= carried * DAY_SECONDS;
    }
    days += more_days.trunc() as i64;
    let us = (scale(given.us as f64, by) + seconds * SECOND_US).round_ties_even();
    if !us.is_finite() || us.abs() >= i64::MAX as f64 {
        return Err(range());
    }
    interval(Parts { months: whole_months as i64, days, us: us as i64 })
}

fn justified(row: &Row<'_>, justify: fn(Parts) -> Parts) -> Result<ScalarValue, SqlError> {
    match parts(&row.values[0])? {
        Some(parts) => interval(justify(parts)),
        None => Ok(NONE),
    }
}

/// Makes the signs of days and hours equal.
fn of_one_sign(mut it: Parts) -> Parts {
    if it.days > 0 && it.us < 0 {
        (it.us, it.days) = (it.us + DAY_US, it.days - 1);
    } else if it.days < 0 && it.us > 0 {
        (it.us, it.days) = (it.us - DAY_US, it.days + 1);
    }
    it
}

fn justify_hours(mut it: Parts) -> Parts {
    it.days += it.us / DAY_US;
    it.us %= DAY_US;
    of_one_sign(it)
}

fn justify_days(mut it: Parts) -> Parts {
    it.months += it.days / MONTH_DAYS;
    it.days %= MONTH_DAYS;
    if it.months > 0 && it.days < 0 {
        (it.days, it.months) = (it.days + MONTH_DAYS, it.months - 1);
    } else if it.months < 0 && it.days > 0 {
        (it.days, it.months) = (it.days - MONTH_DAYS, it.months + 1);
    }
    it
}

fn justify_interval(mut it: Parts) -> Parts {
    it.days += it.us / DAY_US;
    it.us %= DAY_US;
    it.months += it.days / MONTH_DAYS;
    it.days %= MONTH_DAYS;
    let is_less = it.days < 0 || it.days == 0 && it.us < 0;
    let is_more = it.days > 0 || it.days == 0 && it.us > 0;
    if it.months > 0 && is_less {
        (it.days, it.months) = (it.days + MONTH_DAYS, it.months - 1);
    } else if it.months < 0 && is_more {
        (it.days, it.months) = (it.days - MONTH_DAYS, it.months + 1);
    }
    of_one_sign(it)
}

/// Returns the integer arguments before the seconds, and the seconds in microseconds, or `None` if
/// one is NULL.
fn fields(row: &Row<'_>) -> Result<Option<(Vec<i64>, f64)>, SqlError> {
    let Some((seconds, whole)) = row.values.split_last() else { return Ok(None) };
    let mut found = Vec::with_capacity(whole.len());
    for value in whole {
        match value.cast_to(&DataType::Int64)? {
            ScalarValue::Int64(Some(value)) => found.push(value),
            _ => return Ok(None),
        }
    }
    Ok(float(seconds)?.map(|it| (found, (it * SECOND_US).round_ties_even())))
}

#[expect(clippy::cast_possible_truncation, reason = "the bounds are checked")]
#[expect(clippy::cast_precision_loss, reason = "a bound need not be exact")]
fn make_interval(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let Some((whole, us)) = fields(row)? else { return Ok(NONE) };
    if !us.is_finite() || us.abs() >= i64::MAX as f64 {
        return Err(range());
    }
    let [years, months, weeks, days, hours, minutes] = whole[..] else { return Ok(NONE) };
    let us = (hours * HOUR_US + minutes * MINUTE_US).checked_add(us as i64).ok_or_else(range)?;
    interval(Parts { months: years * 12 + months, days: weeks * 7 + days, us })
}

/// Returns microseconds since midnight, up to 24:00:00.
#[expect(clippy::cast_possible_truncation, reason = "the bounds are checked")]
fn time_of_day(hour: i64, minute: i64, us: f64) -> Result<i64, SqlError> {
    let is_time = (0..=24).contains(&hour)
        && (0..60).contains(&minute)
        && (0.0..=60.0 * SECOND_US).contains(&us);
    let found = if is_time { hour * HOUR_US + minute * MINUTE_US + us as i64 } else { i64::MAX };
    match found <= DAY_US {
        true => Ok(found),
        false => {
            let what = format!("time field value out of range: {hour}:{minute:02}");
            Err(SqlError::new(SqlState::DATETIME_OVERFLOW, what))
        }
    }
}

fn make_time(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let Some((whole, us)) = fields(row)? else { return Ok(ScalarValue::Time64Microsecond(None)) };
    let [hour, minute] = whole[..] else { return Ok(ScalarValue::Time64Microsecond(None)) };
    match time_of_day(hour, minute, us)? {
        DAY_US => Err(SqlError::unsupported("the time 24:00:00 is not supported")),
        us => Ok(ScalarValue::Time64Microsecond(Some(us))),
    }
}

fn make_timestamp(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let none = ScalarValue::TimestampMicrosecond(None, None);
    let Some((whole, us)) = fields(row)? else { return Ok(none) };
    let [year, month, day, hour, minute] = whole[..] else { return Ok(none) };
    let days = i64::from(date_of(year, month, day)?);
    let us = time_of_day(hour, minute, us)?;
    let time = days.checked_mul(DAY_US).and_then(|it| it.checked_add(us));
    let range = || SqlError::new(SqlState::DATETIME_OVERFLOW, "timestamp out of range");
    Ok(ScalarValue::TimestampMicrosecond(Some(time.ok_or_else(range)?), None))
}

/// `make_timestamptz`: in UTC, the zone of all sessions, or in the zone that the last argument
/// names. The sign of a numeric zone is that of ISO 8601 here: eastwards.
fn make_timestamptz(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let at = |time| ScalarValue::TimestampMicrosecond(time, Some("UTC".into()));
    let (values, zone) = row.values.split_at(row.values.len().min(6));
    let (zone, is_zoned) = (row.text(6), !zone.is_empty());
    let local = make_timestamp(&Row { values, fields: row.fields })?;
    let ScalarValue::TimestampMicrosecond(Some(local), _) = local else { return Ok(at(None)) };
    let east = match zone {
        None if is_zoned => return Ok(at(None)),
        None => 0,
        Some(offset) if offset.trim_start().starts_with(['+', '-']) => -Zone::of(offset)?.at(0)?,
        Some(name) => Zone::of(name)?.at_local(local)?,
    };
    Ok(at(Some(local.checked_sub(east).ok_or_else(out_of_range)?)))
}
