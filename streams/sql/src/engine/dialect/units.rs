//! Names of date/time units.

use crate::error::{SqlError, SqlState};

/// A unit, or a field, of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    Dow,
    Isodow,
    Doy,
    Isoyear,
    Epoch,
    Timezone,
}

/// Types to which a unit applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// Types with a time of day.
    Time,
    /// Dates and intervals.
    Date,
    /// Dates.
    Calendar,
    All,
    Zone,
}

const NAMES: &[(Unit, &[&str])] = &[
    (Unit::Microsecond, &["microseconds", "microsecond", "us", "usec", "usecs"]),
    (Unit::Millisecond, &["milliseconds", "millisecond", "ms", "msec", "msecs"]),
    (Unit::Second, &["second", "seconds", "s", "sec", "secs"]),
    (Unit::Minute, &["minute", "minutes", "m", "min", "mins"]),
    (Unit::Hour, &["hour", "hours", "h", "hr", "hrs"]),
    (Unit::Day, &["day", "days", "d"]),
    (Unit::Week, &["week", "weeks", "w"]),
    (Unit::Month, &["month", "months", "mon", "mons"]),
    (Unit::Quarter, &["quarter"]),
    (Unit::Year, &["year", "years", "y", "yr", "yrs"]),
    (Unit::Decade, &["decade", "decades", "dec", "decs"]),
    (Unit::Century, &["century", "centuries", "c", "cent"]),
    (Unit::Millennium, &["millennium", "millennia", "mil", "mils"]),
    (Unit::Dow, &["dow"]),
    (Unit::Isodow, &["isodow"]),
    (Unit::Doy, &["doy"]),
    (Unit::Isoyear, &["isoyear"]),
    (Unit::Epoch, &["epoch"]),
    (Unit::Timezone, &["timezone", "timezone_hour", "timezone_minute"]),
];

impl Unit {
    /// Parses the name of a unit, ignoring case.
    pub(super) fn of(name: &str) -> Result<Self, SqlError> {
        let name = name.to_ascii_lowercase();
        let found = NAMES.iter().find(|(_, names)| names.contains(&name.as_str()));
        found.map(|(unit, _)| *unit).ok_or_else(|| match name.as_str() {
            "julian" => SqlError::unsupported("unit \"julian\" is not supported"),
            _ => {
                let what = format!("unit {name:?} not recognized");
                SqlError::new(SqlState::INVALID_PARAMETER, what)
            }
        })
    }

    pub(super) fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(unit, _)| *unit == self);
        found.map_or("", |(_, names)| names[0])
    }

    pub(super) fn span(self) -> Span {
        match self {
            Self::Microsecond | Self::Millisecond | Self::Second | Self::Minute | Self::Hour => {
                Span::Time
            }
            Self::Day
            | Self::Month
            | Self::Quarter
            | Self::Year
            | Self::Decade
            | Self::Century
            | Self::Millennium => Span::Date,
            Self::Week | Self::Dow | Self::Isodow | Self::Doy | Self::Isoyear => Span::Calendar,
            Self::Epoch => Span::All,
            Self::Timezone => Span::Zone,
        }
    }
}
