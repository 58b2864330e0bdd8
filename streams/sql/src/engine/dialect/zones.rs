//! Time zones by name: their offset east of UTC at a given time.
//!
//! The rules are those of the tz database. Before 1970, and after the last year that all of them
//! cover, its releases and builds differ, so such times are rejected.

use std::str::FromStr;

use chrono::{DateTime, LocalResult, NaiveDateTime, Offset, TimeDelta, TimeZone};
use datafusion::arrow::array::timezone::Tz;

use super::refusal::refused;
use crate::error::{SqlError, SqlState};

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;
const DAY_US: i64 = 24 * HOUR_US;

/// Aliases of UTC.
const UTC: &[&str] = &["UTC", "GMT", "ETC/UTC", "Z", "ZULU", "UCT"];

/// Range of supported times, 1970-01-02 to 2037-01-01. Later times have rules in some releases
/// only.
const FIRST_US: i64 = DAY_US;
const LAST_US: i64 = 2_114_380_800 * SECOND_US;

/// A time zone.
#[derive(Clone, Copy, Debug)]
pub(super) enum Zone {
    /// Constant offset.
    Fixed(i64),
    Named(Tz),
}

impl Zone {
    /// Parses a time zone. Numeric offsets count westwards, as in POSIX. Abbreviations are not
    /// supported, because they are ambiguous.
    pub(super) fn of(zone: &str) -> Result<Self, SqlError> {
        let zone = zone.trim();
        if UTC.contains(&zone.to_ascii_uppercase().as_str()) {
            return Ok(Self::Fixed(0));
        }
        let named = || {
            let is_name = zone.contains('/') && zone.starts_with(|it: char| it.is_alphabetic());
            is_name.then(|| Tz::from_str(zone).ok())?
        };
        if let Some(zone) = named() {
            return Ok(Self::Named(zone));
        }
        written(zone).map(Self::Fixed).ok_or_else(|| {
            refused(&format!("time zone {zone:?}")).with_hint(
                "Use a name such as 'Europe/Berlin', or hours west of UTC such as '-02'.",
            )
        })
    }

    /// Returns the offset in microseconds at a UTC time.
    pub(super) fn at(self, us: i64) -> Result<i64, SqlError> {
        let zone = match self {
            Self::Fixed(east) => return Ok(east),
            Self::Named(zone) => zone,
        };
        let time = within(us)?;
        let east = zone.offset_from_utc_datetime(&time).fix().local_minus_utc();
        Ok(i64::from(east) * SECOND_US)
    }

    /// Returns the offset in microseconds at a local time. A repeated hour counts as its second
    /// occurrence. A skipped hour has the offset from before the gap.
    pub(super) fn at_local(self, us: i64) -> Result<i64, SqlError> {
        let zone = match self {
            Self::Fixed(east) => return Ok(east),
            Self::Named(zone) => zone,
        };
        let time = within(us)?;
        let east = match zone.offset_from_local_datetime(&time) {
            LocalResult::Single(it) => it.fix(),
            LocalResult::Ambiguous(_, second) => second.fix(),
            LocalResult::None => zone.offset_from_utc_datetime(&(time - TimeDelta::days(1))).fix(),
        };
        Ok(i64::from(east.local_minus_utc()) * SECOND_US)
    }
}

fn within(us: i64) -> Result<NaiveDateTime, SqlError> {
    let time = DateTime::from_timestamp_micros(us).filter(|_| (FIRST_US..LAST_US).contains(&us));
    match time {
        Some(time) => Ok(time.naive_utc()),
        None => Err(refused("a timestamp before 1970 or after 2036 in a named time zone")
            .with_hint("Use hours west of UTC, such as '-02'.")),
    }
}

/// Parses a numeric offset in hours and minutes.
fn written(zone: &str) -> Option<i64> {
    let (sign, digits) = match zone.as_bytes().first()? {
        b'-' => (1, &zone[1..]),
        b'+' => (-1, &zone[1..]),
        _ => return None,
    };
    let (hours, minutes) = digits.split_once(':').unwrap_or((digits, "0"));
    let number = |it: &str| {
        let is_short = it.len() <= 2 && it.bytes().all(|it| it.is_ascii_digit());
        it.parse::<i64>().ok().filter(|_| is_short)
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let is_real = hours < 16 && minutes < 60;
    is_real.then_some(sign * (hours * HOUR_US + minutes * MINUTE_US))
}

/// Error: a time is out of range in another zone.
pub(super) fn out_of_range() -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, "timestamp out of range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_names_or_numbers_that_count_westwards() {
        for (zone, expected) in [
            ("UTC", Some(0)),
            ("+02", Some(-2 * HOUR_US)),
            ("-05:30", Some(5 * HOUR_US + 30 * MINUTE_US)),
            ("Europe/Berlin", Some(HOUR_US)),
            ("europe/berlin", None),
            ("CET", None),
            ("+99", None),
        ] {
            let found = Zone::of(zone).and_then(|it| it.at(1_767_225_600 * SECOND_US)).ok();
            assert_eq!(found, expected, "{zone}");
        }
    }

    #[test]
    fn an_hour_that_is_not_there_is_as_before_it_and_one_that_is_twice_is_the_second() {
        let berlin = Zone::of("Europe/Berlin").expect("a zone");
        // 2026-03-29 and 2026-10-25, at half past two.
        for (local_s, expected) in [(1_774_751_400, HOUR_US), (1_792_895_400, HOUR_US)] {
            assert_eq!(berlin.at_local(local_s * SECOND_US), Ok(expected));
        }
        assert!(berlin.at(-SECOND_US).is_err(), "before 1970");
    }
}
