//! Numbers and times in PostgreSQL's formats.

use std::fmt::Write;

use bytes::{BufMut, BytesMut};

/// Days and microseconds between 1970-01-01 and PostgreSQL's epoch, 2000-01-01.
pub(crate) const EPOCH_DAYS: i32 = 10_957;
pub(crate) const EPOCH_US: i64 = EPOCH_DAYS as i64 * DAY_US;

pub(crate) const DAY_US: i64 = 86_400_000_000;

const SECOND_US: i64 = 1_000_000;

/// Decimal digits in one group of a binary numeric.
const GROUP_DIGITS: usize = 4;

/// Appends an integer as text.
pub(crate) fn put_integer(out: &mut BytesMut, value: i64) {
    out.put_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends the shortest text that parses to the same float, with exponents as in PostgreSQL.
pub(crate) fn put_float(out: &mut BytesMut, value: f64, digits_max: i32) {
    if value.is_nan() {
        return out.put_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.put_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
    let scientific = match digits_max {
        FLOAT4_DIGITS => format!("{:e}", narrow(value)),
        _ => format!("{value:e}"),
    };
    let (mantissa, exponent) = scientific.split_once('e').expect("the form has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    let written = if (-4..digits_max).contains(&exponent) {
        match digits_max {
            FLOAT4_DIGITS => write!(out, "{}", narrow(value)),
            _ => write!(out, "{value}"),
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{mantissa}e{sign}{:02}", exponent.unsigned_abs())
    };
    written.expect("memory takes all");
}

/// Exponents from which PostgreSQL uses exponential notation, for both sizes of floats.
pub(crate) const FLOAT4_DIGITS: i32 = 6;
pub(crate) const FLOAT8_DIGITS: i32 = 15;

#[expect(clippy::cast_possible_truncation, reason = "the value came from a float of this size")]
fn narrow(value: f64) -> f32 {
    value as f32
}

/// Inserts the decimal point of a number with `scale` fractional digits.
pub(crate) fn decimal_text(digits: &str, scale: i8) -> String {
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", digits),
    };
    let Ok(scale) = usize::try_from(scale) else {
        let zeros = "0".repeat(usize::from(scale.unsigned_abs()));
        return if digits == "0" { digits.to_owned() } else { format!("{sign}{digits}{zeros}") };
    };
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    let padded = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    format!("{sign}{whole}.{fraction}")
}

/// Appends a decimal in PostgreSQL's binary format: groups of four digits.
pub(crate) fn put_numeric(out: &mut BytesMut, text: &str) {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole = whole.trim_start_matches('0');
    let lead = (GROUP_DIGITS - whole.len() % GROUP_DIGITS) % GROUP_DIGITS;
    let trail = (GROUP_DIGITS - fraction.len() % GROUP_DIGITS) % GROUP_DIGITS;
    let digits = format!("{}{whole}{fraction}{}", "0".repeat(lead), "0".repeat(trail));
    let mut groups: Vec<i16> = digits
        .as_bytes()
        .chunks(GROUP_DIGITS)
        .map(|group| group.iter().fold(0, |sum, digit| sum * 10 + i16::from(digit - b'0')))
        .collect();
    let mut weight = i16::try_from((whole.len() + lead) / GROUP_DIGITS).expect("few digits") - 1;
    while groups.first() == Some(&0) {
        groups.remove(0);
        weight -= 1;
    }
    while groups.last() == Some(&0) {
        groups.pop();
    }
    if groups.is_empty() {
        weight = 0;
    }
    out.put_i16(i16::try_from(groups.len()).expect("few digits"));
    out.put_i16(weight);
    out.put_u16(if is_negative && !groups.is_empty() { 0x4000 } else { 0 });
    out.put_i16(i16::try_from(fraction.len()).expect("few digits"));
    groups.iter().for_each(|group| out.put_i16(*group));
}

/// Converts a binary numeric to text. Returns `None` if it is malformed.
pub(crate) fn numeric_text(bytes: &[u8]) -> Option<String> {
    let field = |at: usize| Some(i16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let (count, weight, sign, scale) = (field(0)?, field(2)?, field(4)?, field(6)?);
    let count = usize::try_from(count).ok()?;
    let scale = usize::try_from(scale).ok()?;
    let is_negative = match sign.cast_unsigned() {
        0 => false,
        0x4000 => true,
        0xC000 => return Some("NaN".to_owned()),
        0xD000 => return Some("Infinity".to_owned()),
        0xF000 => return Some("-Infinity".to_owned()),
        _ => return None,
    };
    if bytes.len() != 8 + 2 * count || scale > 1_000 || !(-1_000..=1_000).contains(&weight) {
        return None;
    }
    let group = |index: i32| -> Option<i16> {
        match usize::try_from(index).ok().filter(|index| *index < count) {
            Some(index) => field(8 + 2 * index).filter(|group| (0..10_000).contains(group)),
            None => Some(0),
        }
    };
    let mut text = String::new();
    for index in 0..=i32::from(weight) {
        text.push_str(&format!("{:04}", group(index)?));
    }
    let mut fraction = String::new();
    let mut index = i32::from(weight) + 1;
    while fraction.len() < scale {
        fraction.push_str(&format!("{:04}", group(index)?));
        index += 1;
    }
    fraction.truncate(scale);
    let whole = text.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let point = if fraction.is_empty() { "" } else { "." };
    let sign = if is_negative { "-" } else { "" };
    Some(format!("{sign}{whole}{point}{fraction}"))
}

/// Appends a date, given in days since 1970-01-01, as 2026-11-22.
pub(crate) fn put_date(out: &mut BytesMut, days: i64) {
    let (year, month, day) = civil(days);
    let (year, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    write!(out, "{year:04}-{month:02}-{day:02}{era}").expect("memory takes all");
}

/// Appends a time of day, given in microseconds, as 21:59:21.123.
pub(crate) fn put_time(out: &mut BytesMut, us: i64) {
    let (seconds, fraction) = (us / SECOND_US, us % SECOND_US);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    write!(out, "{hour:02}:{minute:02}:{second:02}").expect("memory takes all");
    if fraction != 0 {
        let digits = format!("{fraction:06}");
        out.put_u8(b'.');
        out.put_slice(digits.trim_end_matches('0').as_bytes());
    }
}

/// Style in which intervals are written as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IntervalStyle {
    /// `1 year 2 mons 3 days 04:05:06`.
    #[default]
    Postgres,
    /// `P1Y2M3DT4H5M6S`.
    Iso8601,
}

/// Appends an interval as text.
pub(crate) fn put_interval(out: &mut BytesMut, interval: Interval, style: IntervalStyle) {
    match style {
        IntervalStyle::Postgres => put_postgres_interval(out, interval),
        IntervalStyle::Iso8601 => put_iso_interval(out, interval),
    }
}

fn put_iso_interval(out: &mut BytesMut, Interval { months, days, us }: Interval) {
    const MEMORY: &str = "memory takes all";
    let (seconds, fraction) = (us / SECOND_US, (us % SECOND_US).unsigned_abs());
    let put_all = |out: &mut BytesMut, parts: &[(i64, char)]| {
        for (number, unit) in parts.iter().filter(|it| it.0 != 0) {
            write!(out, "{number}{unit}").expect(MEMORY);
        }
    };
    out.put_u8(b'P');
    let (years, months) = (i64::from(months / 12), i64::from(months % 12));
    put_all(out, &[(years, 'Y'), (months, 'M'), (i64::from(days), 'D')]);
    let is_zero = (years, months, days, us) == (0, 0, 0, 0);
    if us != 0 || is_zero {
        out.put_u8(b'T');
        put_all(out, &[(seconds / 3_600, 'H'), (seconds / 60 % 60, 'M')]);
    }
    let seconds = (seconds % 60).unsigned_abs();
    if seconds != 0 || fraction != 0 || is_zero {
        let sign = if us < 0 { "-" } else { "" };
        write!(out, "{sign}{seconds}").expect(MEMORY);
        if fraction != 0 {
            let digits = format!("{fraction:06}");
            write!(out, ".{}", digits.trim_end_matches('0')).expect(MEMORY);
        }
        out.put_u8(b'S');
    }
}

fn put_postgres_interval(out: &mut BytesMut, interval: Interval) {
    let Interval { months, days, us } = interval;
    let (mut is_empty, mut is_behind_negative) = (true, false);
    for (number, unit) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
        if number == 0 {
            continue;
        }
        let space = if is_empty { "" } else { " " };
        let sign = if is_behind_negative && number > 0 { "+" } else { "" };
        let plural = if number == 1 { "" } else { "s" };
        write!(out, "{space}{sign}{number} {unit}{plural}").expect("memory takes all");
        (is_empty, is_behind_negative) = (false, number < 0);
    }
    if us == 0 && !is_empty {
        return;
    }
    let space = if is_empty { "" } else { " " };
    let sign = match (us < 0, is_behind_negative) {
        (true, _) => "-",
        (false, true) => "+",
        (false, false) => "",
    };
    out.put_slice(space.as_bytes());
    out.put_slice(sign.as_bytes());
    put_time(out, i64::try_from(us.unsigned_abs()).unwrap_or(i64::MAX));
}

/// An interval. Its parts are independent: days are not derived from microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Interval {
    pub(crate) months: i32,
    pub(crate) days: i32,
    pub(crate) us: i64,
}

/// Appends a timestamp, given in microseconds since 1970, followed by `zone`.
pub(crate) fn put_timestamp(out: &mut BytesMut, us: i64, zone: &str) {
    let days = us.div_euclid(DAY_US);
    let (year, month, day) = civil(days);
    let (year, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    write!(out, "{year:04}-{month:02}-{day:02} ").expect("memory takes all");
    put_time(out, us.rem_euclid(DAY_US));
    out.put_slice(zone.as_bytes());
    out.put_slice(era.as_bytes());
}

/// Converts days since 1970-01-01 to year, month and day in the Gregorian calendar. Source: Howard
/// Hinnant, "chrono-Compatible Low-Level Date Algorithms".
pub(crate) fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(put: impl FnOnce(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        put(&mut out);
        String::from_utf8(out.to_vec()).expect("text")
    }

    #[test]
    fn intervals_are_written_as_postgresql_does() {
        const HOUR_US: i64 = 3_600_000_000;
        for ((months, days, us), expected) in [
            ((0, 0, 0), "00:00:00"),
            ((14, 3, 4 * HOUR_US + 5_500_000), "1 year 2 mons 3 days 04:00:05.5"),
            ((1, 0, 0), "1 mon"),
            ((0, -1, HOUR_US), "-1 days +01:00:00"),
            ((-1, 2, -HOUR_US), "-1 mons +2 days -01:00:00"),
            ((0, 0, 100 * HOUR_US), "100:00:00"),
        ] {
            let interval = Interval { months, days, us };
            assert_eq!(text(|out| put_interval(out, interval, IntervalStyle::Postgres)), expected);
        }
        for ((months, days, us), expected) in [
            ((0, 0, 0), "PT0S"),
            ((14, 3, 4 * HOUR_US + 5_500_000), "P1Y2M3DT4H5.5S"),
            ((-14, 0, 0), "P-1Y-2M"),
            ((0, -1, HOUR_US), "P-1DT1H"),
            ((0, 0, -500_000), "PT-0.5S"),
            ((0, 0, -100 * HOUR_US - 61_000_000), "PT-100H-1M-1S"),
        ] {
            let interval = Interval { months, days, us };
            assert_eq!(text(|out| put_interval(out, interval, IntervalStyle::Iso8601)), expected);
        }
    }

    #[test]
    fn floats_are_written_as_postgresql_does() {
        for (value, expected) in [
            (0.0, "0"),
            (1.5, "1.5"),
            (-0.0001, "-0.0001"),
            (0.00001, "1e-05"),
            (123_456_789_012_345.0, "123456789012345"),
            (1e15, "1e+15"),
            (1.5e300, "1.5e+300"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(text(|out| put_float(out, value, FLOAT8_DIGITS)), expected);
        }
        assert_eq!(text(|out| put_float(out, f64::from(0.1_f32), FLOAT4_DIGITS)), "0.1");
        assert_eq!(text(|out| put_float(out, f64::from(1e6_f32), FLOAT4_DIGITS)), "1e+06");
    }

    #[test]
    fn decimals_have_their_point() {
        for (digits, scale, expected) in [
            ("0", 0, "0"),
            ("5", 2, "0.05"),
            ("-12345", 2, "-123.45"),
            ("100", 2, "1.00"),
            ("12", -3, "12000"),
        ] {
            assert_eq!(decimal_text(digits, scale), expected);
        }
    }

    #[test]
    fn binary_numbers_come_back() {
        for text in ["0", "0.00", "1", "-1", "10000", "12345.678", "0.0001", "-99999999.5", "0.10"]
        {
            let mut out = BytesMut::new();
            put_numeric(&mut out, text);
            assert_eq!(numeric_text(&out).as_deref(), Some(text));
        }
        for bytes in [&[0_u8; 7][..], &[0, 1, 0, 0, 0, 0, 0, 0], &[0, 0, 0, 0, 0x80, 0, 0, 0]] {
            assert_eq!(numeric_text(bytes), None);
        }
        assert_eq!(numeric_text(&[0, 0, 0, 0, 0xC0, 0, 0, 0]).as_deref(), Some("NaN"));
    }

    #[test]
    fn times_are_written_with_as_many_digits_as_they_have() {
        for (us, expected) in [
            (0, "1970-01-01 00:00:00+00"),
            (1_000, "1970-01-01 00:00:00.001+00"),
            (-1, "1969-12-31 23:59:59.999999+00"),
            (951_782_400_000_000, "2000-02-29 00:00:00+00"),
            (1_795_384_761_120_000, "2026-11-22 21:59:21.12+00"),
        ] {
            assert_eq!(text(|out| put_timestamp(out, us, "+00")), expected);
        }
        assert_eq!(text(|out| put_date(out, i64::from(EPOCH_DAYS))), "2000-01-01");
        assert_eq!(text(|out| put_date(out, -719_529)), "0002-12-31 BC");
    }
}
