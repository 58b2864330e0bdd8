//! `date_trunc` and `date_bin`, for the same types and units as in PostgreSQL.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, IntervalMonthDayNanoArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, DurationMicrosecondType, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::logical_expr::ScalarUDF;

use super::extract::first_day;
use super::own::{Own, numbers, of_arrow, texts};
use super::units::Unit;
use crate::error::{SqlError, SqlState};
use crate::wire::{DAY_US, civil};

const SECOND_US: i64 = 1_000_000;

/// The start of the year 2000.
const EPOCH_US: i64 = 946_684_800 * SECOND_US;

/// Function that rounds a time to a number of fractional digits of seconds.
pub(super) const ROUNDED: &str = "rounded_time";

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Own::udf(ROUNDED, 2, |types| Some(types[0].clone()), rounded),
        interval_of_time(),
        Own::udf("date_trunc", 2, |types| moment(&types[1]), date_trunc),
        Own::udf("date_bin", 3, bin_type, date_bin),
        Own::udf("make_date", 3, date_type, make_date),
    ]
}

/// Returns the result type of truncating a time. A date becomes timestamptz.
fn moment(data_type: &DataType) -> Option<DataType> {
    let zone = match data_type {
        DataType::Timestamp(_, zone) => zone.clone(),
        DataType::Date32 | DataType::Date64 | DataType::Null => Some("UTC".into()),
        DataType::Interval(_) | DataType::Duration(_) | DataType::Time64(_) => {
            return Some(DataType::Interval(IntervalUnit::MonthDayNano));
        }
        // A literal or an untyped parameter.
        it if it.is_string() => Some("UTC".into()),
        _ => return None,
    };
    Some(DataType::Timestamp(TimeUnit::Microsecond, zone))
}

fn moments(array: &ArrayRef, to: &DataType) -> Result<TimestampMicrosecondArray, SqlError> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let array = cast_with_options(array, to, &options).map_err(of_arrow)?;
    Ok(array.as_primitive::<TimestampMicrosecondType>().clone())
}

fn date_trunc(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    if matches!(arrays[1].data_type(), DataType::Interval(_) | DataType::Time64(_)) {
        return trunc_intervals(arrays);
    }
    let to = moment(arrays[1].data_type()).unwrap_or(DataType::Null);
    let times = moments(&arrays[1], &to)?;
    let names = texts(&arrays[0])?;
    let mut last = (String::new(), Unit::Day);
    let mut found = Vec::with_capacity(times.len());
    for (name, time) in names.iter().zip(&times) {
        let (Some(name), Some(time)) = (name, time) else {
            found.push(None);
            continue;
        };
        if last.0 != name {
            last = (name.to_owned(), Unit::of(name)?);
        }
        found.push(Some(truncated(last.1, time)?));
    }
    let found = TimestampMicrosecondArray::from(found);
    Ok(Arc::new(found.with_data_type(to)))
}

/// Rounds half away from the year 2000, as PostgreSQL does.
fn rounded(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    const DIGITS_MAX: i64 = 6;
    let to = arrays[0].data_type().clone();
    let times = moments(&arrays[0], &to)?;
    let digits = numbers(&arrays[1])?;
    let found = times.iter().zip(digits).map(|(time, digits)| {
        let digits = u32::try_from(digits?.min(DIGITS_MAX)).ok()?;
        let unit = SECOND_US / 10_i64.pow(digits);
        let since = time? - EPOCH_US;
        let whole = (since.abs() + unit / 2) / unit * unit;
        Some(EPOCH_US + whole * since.signum())
    });
    let found: TimestampMicrosecondArray = found.collect();
    Ok(Arc::new(found.with_data_type(to)))
}

/// Function that converts times of day, and differences of times, to intervals.
pub(super) fn interval_of_time() -> Arc<ScalarUDF> {
    let result = |_: &[DataType]| Some(DataType::Interval(IntervalUnit::MonthDayNano));
    Own::udf("interval_of_time", 1, result, |arrays| intervals(&arrays[0]))
}

/// Converts times of day, differences of times and intervals to intervals. A difference has whole
/// days and the remainder.
fn intervals(array: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let as_type = |to: &DataType| cast(array, to).map_err(of_arrow);
    let intervals: IntervalMonthDayNanoArray = match array.data_type() {
        DataType::Time64(_) => {
            let times = as_type(&DataType::Time64(TimeUnit::Nanosecond))?;
            let times = times.as_primitive::<Time64NanosecondType>().iter();
            times.map(|it| it.map(|it| IntervalMonthDayNano::new(0, 0, it))).collect()
        }
        DataType::Duration(_) => {
            let spans = as_type(&DataType::Duration(TimeUnit::Microsecond))?;
            let spans = spans.as_primitive::<DurationMicrosecondType>().iter();
            let interval = |us: i64| {
                // 64 bits of microseconds hold fewer days.
                let days = i32::try_from(us / DAY_US).expect("fewer than 2^27 days");
                IntervalMonthDayNano::new(0, days, us % DAY_US * 1_000)
            };
            spans.map(|it| it.map(interval)).collect()
        }
        _ => return as_type(&DataType::Interval(IntervalUnit::MonthDayNano)),
    };
    Ok(Arc::new(intervals))
}

fn trunc_intervals(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let intervals = intervals(&arrays[1])?;
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
    let names = texts(&arrays[0])?;
    let found = names.iter().zip(intervals).map(|it| match it {
        (Some(name), Some(interval)) => truncated_interval(Unit::of(name)?, interval).map(Some),
        _ => Ok(None),
    });
    Ok(Arc::new(found.collect::<Result<IntervalMonthDayNanoArray, SqlError>>()?))
}

/// Truncates months, days and time separately, towards zero.
fn truncated_interval(
    unit: Unit,
    of: IntervalMonthDayNano,
) -> Result<IntervalMonthDayNano, SqlError> {
    let months = |count: i32| Ok(IntervalMonthDayNano::new(of.months / count * count, 0, 0));
    let time = |us: i64| {
        let nanos = us * 1_000;
        let nanoseconds = of.nanoseconds / nanos * nanos;
        Ok(IntervalMonthDayNano { nanoseconds, ..of })
    };
    match unit {
        Unit::Microsecond => time(1),
        Unit::Millisecond => time(1_000),
        Unit::Second => time(SECOND_US),
        Unit::Minute => time(60 * SECOND_US),
        Unit::Hour => time(3_600 * SECOND_US),
        Unit::Day => Ok(IntervalMonthDayNano { nanoseconds: 0, ..of }),
        Unit::Month => months(1),
        Unit::Quarter => months(3),
        Unit::Year => months(12),
        Unit::Decade => months(120),
        Unit::Century => months(1_200),
        Unit::Millennium => months(12_000),
        _ => {
            let what = format!("unit {:?} not supported for type interval", unit.name());
            Err(SqlError::new(SqlState::NOT_SUPPORTED, what))
        }
    }
}

fn truncated(unit: Unit, us: i64) -> Result<i64, SqlError> {
    let step = |length: i64| Ok(us - us.rem_euclid(length));
    let days = us.div_euclid(DAY_US);
    let (year, month, day) = civil(days);
    let of_year = |year: i64| Ok(first_day(year) * DAY_US);
    // Centuries and similar units start with year 1.
    let of_years = |count: i64| of_year((year - 1).div_euclid(count) * count + 1);
    match unit {
        Unit::Microsecond => Ok(us),
        Unit::Millisecond => step(1_000),
        Unit::Second => step(SECOND_US),
        Unit::Minute => step(60 * SECOND_US),
        Unit::Hour => step(3_600 * SECOND_US),
        Unit::Day => step(DAY_US),
        Unit::Week => Ok((days - (days + 3).rem_euclid(7)) * DAY_US),
        Unit::Month => Ok((days - day + 1) * DAY_US),
        Unit::Quarter => {
            let mut first = days - day + 1;
            for _ in 0..(month - 1) % 3 {
                first -= civil(first - 1).2;
            }
            Ok(first * DAY_US)
        }
        Unit::Year => of_year(year),
        Unit::Decade => of_year(year.div_euclid(10) * 10),
        Unit::Century => of_years(100),
        Unit::Millennium => of_years(1_000),
        _ => {
            let what = format!("unit {:?} not supported for type timestamp", unit.name());
            Err(SqlError::new(SqlState::NOT_SUPPORTED, what))
        }
    }
}

fn bin_type(types: &[DataType]) -> Option<DataType> {
    let is_stride =
        matches!(types[0], DataType::Interval(_) | DataType::Null) || types[0].is_string();
    let is_moment = |it: &DataType| matches!(it, DataType::Timestamp(..) | DataType::Null);
    (is_stride && is_moment(&types[1]) && is_moment(&types[2])).then(|| moment(&types[1]))?
}

fn date_bin(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let to = moment(arrays[1].data_type()).unwrap_or(DataType::Null);
    let (times, origins) = (moments(&arrays[1], &to)?, moments(&arrays[2], &to)?);
    let strides = cast(&arrays[0], &DataType::Interval(IntervalUnit::MonthDayNano));
    let strides = strides.map_err(of_arrow)?;
    let strides = strides.as_primitive::<IntervalMonthDayNanoType>();
    let mut found = Vec::with_capacity(times.len());
    for (row, (time, origin)) in times.iter().zip(&origins).enumerate() {
        let (Some(time), Some(origin), false) = (time, origin, strides.is_null(row)) else {
            found.push(None);
            continue;
        };
        let stride = strides.value(row);
        if stride.months != 0 {
            let what = "timestamps cannot be binned into intervals containing months or years";
            return Err(SqlError::unsupported(what));
        }
        let step = i64::from(stride.days) * DAY_US + stride.nanoseconds / 1_000;
        if step <= 0 {
            let what = "stride must be greater than zero";
            return Err(SqlError::new(SqlState::DATETIME_OVERFLOW, what));
        }
        let range = || SqlError::new(SqlState::DATETIME_OVERFLOW, "timestamp out of range");
        let apart = time.checked_sub(origin).ok_or_else(range)?;
        found.push(Some(origin + apart.div_euclid(step) * step));
    }
    let found = TimestampMicrosecondArray::from(found);
    Ok(Arc::new(found.with_data_type(to)))
}

fn date_type(types: &[DataType]) -> Option<DataType> {
    types.iter().all(|it| it.is_integer() || it.is_null()).then_some(DataType::Date32)
}

fn make_date(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let columns = arrays.iter().map(numbers).collect::<Result<Vec<_>, _>>()?;
    let dates =
        (0..arrays[0].len()).map(|row| match (columns[0][row], columns[1][row], columns[2][row]) {
            (Some(year), Some(month), Some(day)) => date_of(year, month, day).map(Some),
            _ => Ok(None),
        });
    Ok(Arc::new(dates.collect::<Result<Date32Array, SqlError>>()?))
}

/// Returns the days since 1970-01-01. Years BC are negative.
pub(super) fn date_of(year: i64, month: i64, day: i64) -> Result<i32, SqlError> {
    let none = || {
        let what = format!("date field value out of range: {year}-{month:02}-{day:02}");
        SqlError::new(SqlState::DATETIME_OVERFLOW, what)
    };
    let is_near = year != 0 && year.unsigned_abs() < 1_000_000 && (1..=12).contains(&month);
    if !is_near || !(1..=31).contains(&day) {
        return Err(none());
    }
    let counted = if year < 0 { year + 1 } else { year };
    let mut days = first_day(counted);
    for _ in 1..month {
        days += 31;
        days -= civil(days).2 - 1;
    }
    days += day - 1;
    match civil(days) == (counted, month, day) {
        true => i32::try_from(days).map_err(|_| none()),
        false => Err(none()),
    }
}
