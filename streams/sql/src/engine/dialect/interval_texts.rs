//! Parsing of intervals, times of day and dates from text as in PostgreSQL. Months, days and
//! microseconds of intervals are separate, and fractions of one carry over to the next smaller.

use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, IntervalMonthDayNanoArray, Time64MicrosecondArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, ScalarUDF};

use super::conversions::To;
use super::own::{Own, changed, of_arrow, texts};
use crate::error::{SqlError, SqlState};

const SECOND_US: i128 = 1_000_000;
const DAY_US: i128 = 86_400 * SECOND_US;
const MONTH_DAYS: i128 = 30;
const WEEK_DAYS: i128 = 7;

/// Maximum number of digits before and after the decimal point.
const DIGITS_MAX: usize = 9;

/// Signs between a date and the time of day.
const CLOCK_SIGNS: [char; 3] = [' ', 'T', 't'];

/// Suffix that negates an interval.
const AGO: &str = " ago";

/// Bits of units, each of which a text may use once. A number of seconds with a fraction uses those
/// of [`SECONDS`], and a time with colons those of [`CLOCK`].
const SECONDS: u16 = 0b111;
const CLOCK: u16 = 0b1_1111;

static INTERVAL: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let type_of =
        |types: &[DataType]| of_text(types, DataType::Interval(IntervalUnit::MonthDayNano));
    Own::udf("interval", 1, type_of, |arrays| {
        let read = |text: &str| Span::of(text).map_err(|it| it.error(text, "interval"));
        let spans = texts(&arrays[0])?;
        let spans =
            spans.iter().map(|text| text.map(read).transpose()?.map(Span::value).transpose());
        let spans = spans.collect::<Result<IntervalMonthDayNanoArray, SqlError>>()?;
        Ok(Arc::new(spans) as ArrayRef)
    })
});

static TIME: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let type_of = |types: &[DataType]| of_text(types, DataType::Time64(TimeUnit::Microsecond));
    Own::udf("time", 1, type_of, |arrays| {
        let read = |text: &str| time_of(text).map_err(|it| it.error(text, "time"));
        let times = texts(&arrays[0])?;
        let times = times.iter().map(|text| text.map(read).transpose());
        Ok(Arc::new(times.collect::<Result<Time64MicrosecondArray, SqlError>>()?) as ArrayRef)
    })
});

static DATE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let type_of = |types: &[DataType]| of_text(types, DataType::Date32);
    Own::udf("date", 1, type_of, |arrays| {
        let days = changed(&arrays[0], |text| day_of(text).map(|it| Some(it.to_owned())))?;
        let options = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(&days, &DataType::Date32, &options).map_err(of_arrow)
    })
});

/// Returns the date in a text. The time of day and the zone behind it are checked, and ignored.
pub(super) fn day_of(text: &str) -> Result<&str, SqlError> {
    let text = text.trim_ascii();
    match text.find(CLOCK_SIGNS) {
        Some(at) => To::Timestamp.time(text).map(|_| &text[..at]).map_err(SqlError::from),
        None => Ok(text),
    }
}

/// Returns whether the text of a literal has a time of day behind a date.
fn has_clock(literal: &ScalarValue) -> bool {
    literal.try_as_str().flatten().is_some_and(|it| it.trim_ascii().contains(CLOCK_SIGNS))
}

fn of_text(types: &[DataType], to: DataType) -> Option<DataType> {
    types[0].is_string().then_some(to)
}

/// Returns a call that parses a text expression as interval, time or date. Returns `None` for other
/// types, and for literals that the engine reads as PostgreSQL does.
pub(super) fn read_text(text: &Expr, to: &DataType) -> Option<Expr> {
    let function = match (to, text) {
        (DataType::Date32, Expr::Literal(literal, _)) if has_clock(literal) => &DATE,
        (_, Expr::Literal(..)) => return None,
        (DataType::Interval(_), _) => &INTERVAL,
        (DataType::Time64(_), _) => &TIME,
        (DataType::Date32, _) => &DATE,
        _ => return None,
    };
    Some(function.call(vec![text.clone()]))
}

/// Rewrites an interval to units that the engine parses without change. Returns `None` if the
/// syntax is not supported here.
pub(super) fn spelled(text: &str) -> Result<Option<String>, SqlError> {
    match Span::of(text) {
        Ok(span) => {
            let value = span.value()?;
            let (months, days) = (value.months, value.days);
            Ok(Some(format!("{months} months {days} days {} microseconds", span.us)))
        }
        Err(Unread::Form) if let Some(units) = of_designators(text) => spelled(&units),
        Err(Unread::Form) if text.trim().starts_with(['P', 'p']) => {
            Err(SqlError::unsupported("interval input in ISO 8601 format is not supported"))
        }
        Err(Unread::Form) => match years_and_months(text) {
            Some(spelled) => Ok(Some(spelled)),
            None => Err(Unread::Form.error(text, "interval")),
        },
        Err(Unread::Invalid) => Err(Unread::Invalid.error(text, "interval")),
    }
}

/// Rewrites `P1Y2M3DT4H5M6S` to numbers with units. Returns `None` for other forms.
fn of_designators(text: &str) -> Option<String> {
    let rest = text.trim().strip_prefix('P')?;
    let (date, clock) = rest.split_once('T').unwrap_or((rest, ""));
    let mut units = String::new();
    for (part, names) in [
        (date, &[('Y', "years"), ('M', "months"), ('W', "weeks"), ('D', "days")][..]),
        (clock, &[('H', "hours"), ('M', "minutes"), ('S', "seconds")][..]),
    ] {
        let (mut rest, mut names) = (part, names.iter());
        while let Some(at) = rest.find(|it: char| it.is_ascii_alphabetic()) {
            let number = &rest[..at];
            let letter = rest[at..].chars().next()?;
            let (_, name) = names.find(|(it, _)| *it == letter)?;
            number.parse::<f64>().ok()?;
            units.push_str(&format!("{number} {name} "));
            rest = &rest[at + 1..];
        }
        if !rest.is_empty() {
            return None;
        }
    }
    (!units.is_empty()).then_some(units)
}

/// Parses `1-2`: one year and two months.
fn years_and_months(text: &str) -> Option<String> {
    let (sign, digits) = match text.trim().strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.trim()),
    };
    let (years, months) = digits.split_once('-')?;
    let number = |it: &str| match it.len() <= 4 && it.bytes().all(|it| it.is_ascii_digit()) {
        true => it.parse::<i64>().ok(),
        false => None,
    };
    let (years, months) = (number(years)?, number(months).filter(|it| *it < 12)?);
    Some(format!("{} months 0 days 0 microseconds", sign * (years * 12 + months)))
}

/// Reason why a text was not parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    /// PostgreSQL may accept the syntax.
    Form,
    Invalid,
}

impl Unread {
    fn error(self, text: &str, name: &str) -> SqlError {
        match self {
            Self::Form if text.bytes().any(|it| it.is_ascii_digit()) => {
                SqlError::unsupported(format!("input {text:?} for type {name} is not supported"))
                    .with_hint("Write numbers with units, such as 1 day 2 hours, or 04:05:06.")
            }
            _ => {
                let what = format!("invalid input syntax for type {name}: {text:?}");
                SqlError::new(SqlState::INVALID_DATETIME, what)
            }
        }
    }
}

/// Sum of a text's parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    months: i128,
    days: i128,
    us: i128,
}

impl Span {
    fn of(text: &str) -> Result<Self, Unread> {
        let text = text.trim_ascii_end();
        let (text, is_ago) = match text.len().checked_sub(AGO.len()).and_then(|it| text.get(it..)) {
            Some(end) if end.eq_ignore_ascii_case(AGO) => (&text[..text.len() - AGO.len()], true),
            _ => (text, false),
        };
        let mut words = text.split_ascii_whitespace().peekable();
        let (mut span, mut named) = (Self::default(), 0);
        if words.peek().is_none() {
            return Err(Unread::Invalid);
        }
        while let Some(word) = words.next() {
            // A sign may stand apart from its number.
            let apart = match (word, words.peek()) {
                ("+" | "-", Some(next)) if next.starts_with(|it: char| it.is_ascii_digit()) => {
                    format!("{word}{}", words.next().unwrap_or_default())
                }
                _ => word.to_owned(),
            };
            let word = apart.as_str();
            let units = match word.contains(':') {
                true => {
                    span.us += clock(word)?;
                    CLOCK
                }
                false => {
                    let is_letter = |it: char| it.is_ascii_alphabetic();
                    let (number, unit) = word.split_at(word.find(is_letter).unwrap_or(word.len()));
                    let number = Number::of(number)?;
                    let unit = match (unit, words.peek().copied()) {
                        ("", None) => "seconds",
                        ("", Some(next)) if next.starts_with(is_letter) => {
                            words.next().unwrap_or_default()
                        }
                        // Days precede a time of day.
                        ("", Some(next)) if next.contains(':') => "days",
                        ("", Some(_)) => return Err(Unread::Form),
                        (unit, _) => unit,
                    };
                    span.add(number, unit)?
                }
            };
            if named & units != 0 {
                return Err(Unread::Invalid);
            }
            named |= units;
        }
        Ok(match is_ago {
            true => Self { months: -span.months, days: -span.days, us: -span.us },
            false => span,
        })
    }

    /// Adds a number of units. Returns the bits of the units used.
    fn add(&mut self, number: Number, unit: &str) -> Result<u16, Unread> {
        let unit = unit.to_ascii_lowercase();
        let (units, to) = match unit.as_str() {
            "us" | "usec" | "usecs" | "microsecond" | "microseconds" => (0b1, (0, 0, 1)),
            "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => (0b10, (0, 0, 1_000)),
            "s" | "sec" | "secs" | "second" | "seconds" => (0b100, (0, 0, SECOND_US)),
            "m" | "min" | "mins" | "minute" | "minutes" => (0b1000, (0, 0, 60 * SECOND_US)),
            "h" | "hr" | "hrs" | "hour" | "hours" => (1 << 4, (0, 0, 3_600 * SECOND_US)),
            "d" | "day" | "days" => (1 << 5, (0, 1, DAY_US)),
            "w" | "week" | "weeks" => (1 << 6, (0, WEEK_DAYS, WEEK_DAYS * DAY_US)),
            "mon" | "mons" | "month" | "months" => (1 << 7, (1, MONTH_DAYS, 0)),
            "y" | "yr" | "yrs" | "year" | "years" => (1 << 8, (12, 0, 0)),
            "decade" | "decades" => (1 << 9, (120, 0, 0)),
            "century" | "centuries" => (1 << 10, (1_200, 0, 0)),
            _ => return Err(Unread::Form),
        };
        let (months, days, us) = to;
        match (months, days) {
            (0, 0) => self.us += number.rounded(us)?,
            (0, 1) => {
                self.days += number.whole;
                self.us += Number { whole: 0, ..number }.rounded(us)?;
            }
            (0, _) => {
                let whole = number.whole * days + number.part * days / number.unit;
                self.days += whole;
                self.us += number.times(us)? - whole * DAY_US;
            }
            (1, days) => {
                self.months += number.whole;
                let (part, unit) = (number.part * days, number.unit);
                self.days += part / unit;
                self.us += Number { whole: 0, part: part % unit, unit }.times(DAY_US)?;
            }
            _ if number.part != 0 => return Err(Unread::Form),
            _ => self.months += number.whole * months,
        }
        Ok(if units == 0b100 && number.part != 0 { SECONDS } else { units })
    }

    fn value(self) -> Result<IntervalMonthDayNano, SqlError> {
        let value = || {
            let (months, days) = (self.months.try_into().ok()?, self.days.try_into().ok()?);
            Some(IntervalMonthDayNano::new(months, days, (self.us * 1_000).try_into().ok()?))
        };
        value().ok_or_else(|| SqlError::new(SqlState("22015"), "interval field value out of range"))
    }
}

/// A signed decimal number. The fraction is in units of its last digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    whole: i128,
    part: i128,
    unit: i128,
}

impl Number {
    fn of(text: &str) -> Result<Self, Unread> {
        let (sign, digits) = signed(text);
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let is_number =
            |it: &str| it.len() <= DIGITS_MAX && it.bytes().all(|it| it.is_ascii_digit());
        if whole.is_empty() && part.is_empty() || !is_number(whole) || !is_number(part) {
            return Err(Unread::Form);
        }
        let read = |it: &str| if it.is_empty() { Ok(0) } else { it.parse::<i128>() };
        let (Ok(whole), Ok(part_of_unit)) = (read(whole), read(part)) else {
            return Err(Unread::Form);
        };
        let mut unit = 1;
        part.bytes().for_each(|_| unit *= 10);
        Ok(Self { whole: sign * whole, part: sign * part_of_unit, unit })
    }

    /// Multiplies by a unit in microseconds. Fails for fractions of a microsecond, whose rounding
    /// in PostgreSQL depends on floats.
    fn times(self, us: i128) -> Result<i128, Unread> {
        match self.part * us % self.unit {
            0 => Ok(self.whole * us + self.part * us / self.unit),
            _ => Err(Unread::Form),
        }
    }

    /// Multiplies by a unit, and rounds fractions of a microsecond as PostgreSQL does: up if the
    /// float exceeds one half.
    fn rounded(self, us: i128) -> Result<i128, Unread> {
        self.near(us, |_, rest| rest > 0.5)
    }

    /// Multiplies by a unit, and rounds fractions of a microsecond. For an exact half, `is_up`
    /// decides by the float that PostgreSQL computes, which can be smaller or larger.
    fn near(self, us: i128, is_up: fn(bool, f64) -> bool) -> Result<i128, Unread> {
        let (part, sign) = (self.part.abs() * us, self.part.signum());
        let (whole, rest) = (part / self.unit, part % self.unit);
        let up = match (rest * 2).cmp(&self.unit) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal => {
                let float = |it: i128| u32::try_from(it).map(f64::from).map_err(|_| Unread::Form);
                let seconds = float(us / SECOND_US)?;
                let scale = if us < SECOND_US { float(us)? } else { seconds * 1e6 };
                let parts = float(self.part.abs())? / float(self.unit)? * scale;
                is_up(whole % 2 == 1, parts.fract())
            }
        };
        Ok(self.whole * us + sign * (whole + i128::from(up)))
    }
}

fn signed(text: &str) -> (i128, &str) {
    match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// Parses `[-]hours:minutes[:seconds[.fraction]]` as microseconds.
fn clock(text: &str) -> Result<i128, Unread> {
    let (sign, digits) = signed(text);
    let mut parts = digits.split(':');
    let part = |it: Option<&str>| {
        let digits = it.filter(|it| it.starts_with(|sign: char| sign.is_ascii_digit()));
        Number::of(digits.ok_or(Unread::Form)?)
    };
    let (hours, minutes) = (part(parts.next())?, part(parts.next())?);
    let seconds = match parts.next() {
        Some(it) => part(Some(it))?,
        None => Number { whole: 0, part: 0, unit: 1 },
    };
    let is_clock = parts.next().is_none()
        && hours.unit == 1
        && minutes.unit == 1
        && minutes.whole < 60
        && seconds.whole < 60;
    if !is_clock {
        return Err(Unread::Form);
    }
    let minutes = hours.times(60)? + minutes.whole;
    // Rounds half to even.
    let is_up = |is_odd: bool, rest: f64| rest > 0.5 || is_odd && (rest - 0.5).abs() == 0.0;
    Ok(sign * (minutes * 60 * SECOND_US + seconds.near(SECOND_US, is_up)?))
}

/// Parses a time of day as microseconds.
fn time_of(text: &str) -> Result<i64, Unread> {
    let text = text.trim_matches(|it: char| it.is_ascii_whitespace());
    if !text.contains(':') {
        return Err(Unread::Form);
    }
    let us = clock(text)?;
    let is_time = text.starts_with(|it: char| it.is_ascii_digit()) && us < DAY_US;
    i64::try_from(us).ok().filter(|_| is_time).ok_or(Unread::Form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_months_days_and_microseconds() {
        let span = |months, days, us| Ok(Span { months, days, us });
        for (text, expected) in [
            ("3", span(0, 0, 3 * SECOND_US)),
            ("1 day 2 hours", span(0, 1, 7_200 * SECOND_US)),
            ("1.5 weeks", span(0, 10, DAY_US / 2)),
            ("-0.5w", span(0, -3, -DAY_US / 2)),
            ("1.5 months", span(1, 15, 0)),
            ("-1 year 2 mons +3 days -04:05:06.5", span(-10, 3, -14_706_500_000)),
            ("25 hours", span(0, 0, 90_000 * SECOND_US)),
            ("1.5 seconds 1 ms", Err(Unread::Invalid)),
            ("1 day 2 days", Err(Unread::Invalid)),
            ("1 hour 02:00", Err(Unread::Invalid)),
            ("", Err(Unread::Invalid)),
            ("1 2:03", span(0, 1, 7_380 * SECOND_US)),
            ("1 month - 1 day", span(1, -1, 0)),
            ("+ 1 day -02:00", span(0, 1, -7_200 * SECOND_US)),
            ("1 day -", Err(Unread::Form)),
            ("1.5 years", Err(Unread::Form)),
            ("P1Y", Err(Unread::Form)),
            ("1 day ago", span(0, -1, 0)),
            ("02:60", Err(Unread::Form)),
            ("0.0000001 seconds", span(0, 0, 0)),
            ("99999999999 days", Err(Unread::Form)),
        ] {
            assert_eq!(Span::of(text), expected, "{text}");
        }
        let times = ["04:05", " 23:59:59.5 ", "3", "24:00", "-01:00"].map(|it| time_of(it).ok());
        assert_eq!(times, [Some(14_700_000_000), Some(86_399_500_000), None, None, None]);
    }
}
