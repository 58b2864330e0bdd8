//! `to_char` of times and intervals, with PostgreSQL's template patterns.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewArray, StringViewBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::extract::first_day;
use super::own::{does_not_exist, of_arrow};
use super::refusal::refused;
use super::to_char_numbers::Template;
use crate::error::SqlError;
use crate::wire::{DAY_US, civil, output_texts};

/// Maximum length of a template. Each character produces at most nine.
const PATTERN_BYTES_MAX: usize = 1_000;

const SECOND_US: i64 = 1_000_000;

/// Julian day number of 1970-01-01.
const JULIAN_DAY: i64 = 2_440_588;

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Patterns of PostgreSQL that are not supported.
const NO_SIGNS: [&str; 14] = [
    "IDDD", "IY", "I,", "RM", "FF", "TZH", "TZM", "OF", "SSSSS", "Y,YYY", "BC", "AD", "B.C", "A.D",
];

/// Returns a template in upper case, without quoted parts and IYYY.
fn signs_of(pattern: &str) -> String {
    let bare = pattern.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    bare.to_uppercase().replace("IYYY", " ")
}

pub(super) fn to_char() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(ToChar { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToChar {
    signature: Signature,
}

impl ScalarUDFImpl for ToChar {
    fn name(&self) -> &'static str {
        "to_char"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match &types[0] {
            DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 | DataType::Null => {
                Ok(DataType::Utf8View)
            }
            DataType::Interval(_) | DataType::Duration(_) => Ok(DataType::Utf8View),
            it if it.is_numeric() => Ok(DataType::Utf8View),
            _ => Err(does_not_exist(self.name(), types).into_engine()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|it| matches!(it, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let values = args.args[0].to_array(rows)?;
        let patterns = cast(&args.args[1].to_array(rows)?, &DataType::Utf8View)?;
        let patterns = patterns.as_string_view();
        let texts = if values.data_type().is_numeric() {
            of_numbers(&values, patterns).map_err(SqlError::into_engine)?
        } else {
            let moments = moments(&values)?;
            let mut texts = StringViewBuilder::with_capacity(rows);
            for (moment, pattern) in moments.iter().zip(patterns) {
                let pattern = pattern.filter(|it| !it.is_empty());
                let (Some(moment), Some(pattern)) = (moment, pattern) else {
                    texts.append_null();
                    continue;
                };
                check_length(pattern).map_err(SqlError::into_engine)?;
                if let Some(sign) = NO_SIGNS.iter().find(|it| signs_of(pattern).contains(*it)) {
                    let what = format!("to_char with {sign} is not supported");
                    return Err(SqlError::unsupported(what).into_engine());
                }
                texts.append_value(moment.format(pattern).map_err(SqlError::into_engine)?);
            }
            texts.finish()
        };
        let texts: ArrayRef = Arc::new(texts);
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?),
            false => ColumnarValue::Array(texts),
        })
    }
}

fn check_length(pattern: &str) -> Result<(), SqlError> {
    match pattern.len() > PATTERN_BYTES_MAX {
        true => Err(SqlError::unsupported(format!(
            "to_char formats of more than {PATTERN_BYTES_MAX} bytes are not supported"
        ))),
        false => Ok(()),
    }
}

/// Splits times or intervals into fields.
fn moments(values: &ArrayRef) -> Result<Vec<Option<Moment>>> {
    let zone = match values.data_type() {
        DataType::Interval(_) => {
            let spans = cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let spans = spans.as_primitive::<IntervalMonthDayNanoType>();
            return Ok(spans.iter().map(|it| it.map(Moment::of_interval)).collect());
        }
        DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    };
    let name = if zone.is_some() { "UTC" } else { "" };
    let times = cast(values, &DataType::Timestamp(TimeUnit::Microsecond, zone))?;
    let times = times.as_primitive::<TimestampMicrosecondType>();
    Ok(times.iter().map(|it| it.map(|it| Moment::of(it, name))).collect())
}

fn of_numbers(values: &ArrayRef, patterns: &StringViewArray) -> Result<StringViewArray, SqlError> {
    let floats_digits_max = match values.data_type() {
        DataType::Float64 => Some(f64::DIGITS),
        DataType::Float16 | DataType::Float32 => Some(f32::DIGITS),
        _ => None,
    };
    let texts = output_texts(values).map_err(of_arrow)?;
    let floats = match floats_digits_max {
        Some(_) => Some(cast(values, &DataType::Float64).map_err(of_arrow)?),
        None => None,
    };
    let mut last: Option<(&str, Template)> = None;
    let mut found = StringViewBuilder::with_capacity(values.len());
    for (row, (text, pattern)) in texts.as_string_view().iter().zip(patterns).enumerate() {
        let (Some(text), Some(pattern)) = (text, pattern) else {
            found.append_null();
            continue;
        };
        if pattern.is_empty() {
            found.append_value("");
            continue;
        }
        if last.as_ref().is_none_or(|(it, _)| *it != pattern) {
            check_length(pattern)?;
            last = Some((pattern, Template::of(pattern)?));
        }
        let Some((_, template)) = &last else { continue };
        let mut number = text.to_owned();
        if let (Some(floats), Some(digits_max)) = (&floats, floats_digits_max) {
            let value = floats.as_primitive::<Float64Type>().value(row);
            number = format!("{value:.*}", template.scale());
            let whole = format!("{value:.0}").trim_start_matches('-').len();
            if !value.is_finite()
                || whole + template.scale() > usize::try_from(digits_max).unwrap_or(0)
            {
                return Err(refused("to_char of a float with so many digits, NaN or infinity")
                    .with_hint("Cast it to numeric."));
            }
        }
        found.append_value(template.written(&number));
    }
    Ok(found.finish())
}

/// Patterns for parts of intervals.
const OF_INTERVALS: &[&str] =
    &["YYYY", "MM", "DD", "HH24", "HH12", "HH", "MI", "SS", "SSSS", "MS", "US", "AM", "PM"];

/// A timestamp, split into fields.
struct Moment {
    days: i64,
    year: i64,
    month: i64,
    day: i64,
    day_of_year: i64,
    /// Days since Sunday.
    weekday: i64,
    second: i64,
    us: i64,
    zone: &'static str,
    is_interval: bool,
}

/// Output of a template pattern.
#[derive(Clone, Copy)]
enum Piece {
    /// A number with a minimum number of digits.
    Number(i64, usize),
    Text(&'static str, Case),
    /// A name padded to nine characters.
    Padded(&'static str, Case),
    Short(&'static str, Case),
}

#[derive(Clone, Copy)]
enum Case {
    AsIs,
    Upper,
    Lower,
}

impl Moment {
    fn of(time_us: i64, zone: &'static str) -> Self {
        let days = time_us.div_euclid(DAY_US);
        let us_of_day = time_us.rem_euclid(DAY_US);
        let (year, month, day) = civil(days);
        Self {
            days,
            year,
            month,
            day,
            day_of_year: days - first_day(year) + 1,
            weekday: (days + 4).rem_euclid(7),
            second: us_of_day / SECOND_US,
            us: us_of_day % SECOND_US,
            zone,
            is_interval: false,
        }
    }

    /// The parts of an interval, of which each has its own sign.
    fn of_interval(interval: IntervalMonthDayNano) -> Self {
        let us = interval.nanoseconds / 1_000;
        Self {
            year: i64::from(interval.months / 12),
            month: i64::from(interval.months % 12),
            day: interval.days.into(),
            days: 0,
            day_of_year: 0,
            weekday: 0,
            second: us / SECOND_US,
            us: us % SECOND_US,
            zone: "",
            is_interval: true,
        }
    }

    fn format(&self, pattern: &str) -> Result<String, SqlError> {
        let mut out = String::new();
        let mut rest = pattern;
        while let Some(sign) = rest.chars().next() {
            if let Some(quoted) = rest.strip_prefix('"') {
                let (text, after) = quoted.split_once('"').unwrap_or((quoted, ""));
                out.push_str(text);
                rest = after;
                continue;
            }
            let (is_filled, bare) = match rest.get(..2) {
                Some(mode) if mode.eq_ignore_ascii_case("FM") => (false, &rest[2..]),
                _ => (true, rest),
            };
            match self.piece(bare)? {
                Some((length, piece)) => {
                    rest = &bare[length..];
                    let number = put(&mut out, piece, is_filled);
                    let suffix = rest.get(..2).filter(|it| it.eq_ignore_ascii_case("TH"));
                    if let (Some(number), Some(suffix)) = (number, suffix) {
                        let ending = ordinal(number);
                        match suffix == "TH" {
                            true => out.push_str(&ending.to_uppercase()),
                            false => out.push_str(ending),
                        }
                        rest = &rest[2..];
                    }
                }
                None if is_filled => {
                    out.push(sign);
                    rest = &rest[sign.len_utf8()..];
                }
                None => rest = bare,
            }
        }
        Ok(out)
    }

    /// Returns the longest pattern at the start of a template, and its length.
    fn piece(&self, pattern: &str) -> Result<Option<(usize, Piece)>, SqlError> {
        const LONGEST: usize = 5;
        let found = (1..=LONGEST).rev().find_map(|length| {
            let name = pattern.get(..length)?;
            self.named(name).map(|piece| (length, piece))
        });
        match found {
            Some((length, _)) if self.is_interval => {
                let name = pattern[..length].to_ascii_uppercase();
                match OF_INTERVALS.contains(&name.as_str()) {
                    true => Ok(found),
                    false => Err(refused(&format!("to_char of an interval with {name}"))),
                }
            }
            found => Ok(found),
        }
    }

    fn named(&self, name: &str) -> Option<Piece> {
        let case = case_of(name);
        let number = |value, width| Some(Piece::Number(value, width));
        // A negative part of an interval has a digit more.
        let signed = |value: i64, width| number(value, width + usize::from(value < 0));
        let name_in = |names: &[&'static str], index| {
            usize::try_from(index).ok().and_then(|it| names.get(it).copied()).unwrap_or_default()
        };
        let month = name_in(&MONTHS, self.month - 1);
        let day = name_in(&DAYS, self.weekday);
        let hour = self.second / 3_600;
        let is_morning = hour % 24 < 12;
        let half = if is_morning { "am" } else { "pm" };
        let dotted = if is_morning { "a.m." } else { "p.m." };
        let hour_of_half = if hour % 12 == 0 { 12 } else { hour % 12 };
        let (iso_year, iso_week) = self.iso_week();
        match name.to_ascii_uppercase().as_str() {
            "YYYY" => signed(self.year, 4),
            "YYY" => number(self.year.rem_euclid(1_000), 3),
            "YY" => number(self.year.rem_euclid(100), 2),
            "Y" => number(self.year.rem_euclid(10), 1),
            "IYYY" => number(iso_year, 4),
            "CC" => number((self.year - 1).div_euclid(100) + 1, 2),
            "Q" => number((self.month - 1) / 3 + 1, 1),
            "MM" => signed(self.month, 2),
            "MONTH" => Some(Piece::Padded(month, case)),
            "MON" => Some(Piece::Short(month, case)),
            "WW" => number((self.day_of_year - 1) / 7 + 1, 2),
            "IW" => number(iso_week, 2),
            "W" => number((self.day - 1) / 7 + 1, 1),
            "DDD" => number(self.day_of_year, 3),
            "DD" => number(self.day, 2),
            "D" => number(self.weekday + 1, 1),
            "ID" => number((self.weekday + 6) % 7 + 1, 1),
            "DAY" => Some(Piece::Padded(day, case)),
            "DY" => Some(Piece::Short(day, case)),
            "J" => number(self.days + JULIAN_DAY, 1),
            "HH24" => signed(hour, 2),
            "HH" | "HH12" => signed(hour_of_half, 2),
            "MI" => signed(self.second / 60 % 60, 2),
            "SS" => signed(self.second % 60, 2),
            "SSSS" | "SSSSS" => number(self.second, 1),
            "MS" => number(self.us / 1_000, 3),
            "US" => number(self.us, 6),
            "AM" | "PM" => Some(Piece::Text(half, case)),
            "A.M." | "P.M." => Some(Piece::Text(dotted, case)),
            "TZ" => Some(Piece::Text(self.zone, case)),
            _ => None,
        }
    }

    /// Returns the ISO 8601 year and week. A week belongs to the year that contains its Thursday.
    fn iso_week(&self) -> (i64, i64) {
        let thursday = self.days - (self.weekday + 6) % 7 + 3;
        let (year, ..) = civil(thursday);
        (year, (thursday - first_day(year)) / 7 + 1)
    }
}

/// Returns the case of a pattern, from its first two letters.
fn case_of(name: &str) -> Case {
    let mut letters = name.chars().filter(char::is_ascii_alphabetic);
    let is_lower = |it: Option<char>| it.is_some_and(|it| it.is_ascii_lowercase());
    match (is_lower(letters.next()), is_lower(letters.next())) {
        (true, _) => Case::Lower,
        (false, true) => Case::AsIs,
        (false, false) => Case::Upper,
    }
}

/// Appends the output of a pattern. Returns its value if it is a number.
fn put(out: &mut String, piece: Piece, is_filled: bool) -> Option<i64> {
    let cased = |text: &str, case| match case {
        Case::AsIs => text.to_owned(),
        Case::Upper => text.to_uppercase(),
        Case::Lower => text.to_lowercase(),
    };
    let written = match piece {
        Piece::Number(number, width) => {
            let width = if is_filled { width } else { 1 };
            write!(out, "{number:0width$}")
        }
        Piece::Text(text, case) => write!(out, "{}", cased(text, case)),
        Piece::Short(text, case) => {
            write!(out, "{}", cased(text.get(..3).unwrap_or_default(), case))
        }
        Piece::Padded(text, case) => {
            let width = if is_filled { 9 } else { 1 };
            write!(out, "{:width$}", cased(text, case))
        }
    };
    written.expect("memory takes all");
    match piece {
        Piece::Number(number, _) => Some(number),
        _ => None,
    }
}

fn ordinal(number: i64) -> &'static str {
    let number = number.abs();
    match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_postgresql() {
        // 2026-05-06 10:20:30.0456, a Wednesday.
        const TIME_US: i64 = 1_778_062_830_045_600;
        let moment = Moment::of(TIME_US, "UTC");
        for (pattern, expected) in [
            ("YYYY-MM-DD HH24:MI:SS.US", "2026-05-06 10:20:30.045600"),
            ("YYYY-MM-DD\"T\"HH24:MI:SS.MS", "2026-05-06T10:20:30.045"),
            ("Day, DDth Month", "Wednesday, 06th May      "),
            ("FMDay, FMDDth FMMonth", "Wednesday, 6th May"),
            ("Dy DY dy Mon MON mon", "Wed WED wed May MAY may"),
            ("HH:MI am HH12 PM", "10:20 am 10 AM"),
            ("IYYY-IW ID D DDD Q WW W CC", "2026-19 3 4 126 2 18 1 21"),
            ("J SSSS TZ tz", "2461167 37230 UTC utc"),
            ("yy y yyy", "26 6 026"),
        ] {
            assert_eq!(moment.format(pattern).expect(pattern), expected);
        }
        let night = Moment::of(-1, "");
        let shown = night.format("YYYY-MM-DD HH12 p.m. IYYY-IW").expect("it is known");
        assert_eq!(shown, "1969-12-31 11 p.m. 1970-01");
    }
}
