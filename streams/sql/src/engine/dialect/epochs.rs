//! `to_timestamp` of a number: seconds since 1970, rounded to microseconds as in PostgreSQL. The
//! engine's version uses 64-bit nanoseconds, which only cover the years 1678 to 2262.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, TimeUnit};
use datafusion::logical_expr::ScalarUDF;

use super::own::{Own, of_arrow};
use crate::error::{SqlError, SqlState};

const OUT_OF_RANGE: SqlState = SqlState("22008");

/// Seconds from 1970 to PostgreSQL's epoch, 2000-01-01.
const SECONDS_TO_2000: f64 = 946_684_800.0;

const MICROS_TO_2000: i64 = 946_684_800_000_000;
const MICROS_IN_SECOND: f64 = 1e6;

/// Range of PostgreSQL's timestamps: from 4714 BC to the end of 294276.
const SECONDS_MIN: f64 = -210_866_803_200.0;
const SECONDS_END: f64 = 9_224_318_016_000.0;

/// End of the timestamps that have a text here, in the year 262143.
const SECONDS_HERE_END: f64 = 8_210_266_876_800.0;

pub(super) fn function() -> Arc<ScalarUDF> {
    Own::udf("to_timestamp", 1, type_of, |arrays| times(&arrays[0]))
}

fn type_of(types: &[DataType]) -> Option<DataType> {
    let is_number = types[0].is_numeric() || types[0].is_null();
    is_number.then(|| DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())))
}

fn times(seconds: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let seconds = cast(seconds, &DataType::Float64).map_err(of_arrow)?;
    let seconds = seconds.as_primitive::<Float64Type>();
    let times = seconds.iter().map(|it| it.map(micros).transpose());
    let times = times.collect::<Result<TimestampMicrosecondArray, SqlError>>()?;
    Ok(Arc::new(times.with_timezone("UTC")))
}

#[expect(clippy::cast_possible_truncation, reason = "the range is looked at before")]
fn micros(seconds: f64) -> Result<i64, SqlError> {
    if seconds.is_nan() {
        return Err(SqlError::new(OUT_OF_RANGE, "timestamp cannot be NaN"));
    }
    if seconds.is_infinite() {
        return Err(SqlError::unsupported("an infinite timestamp is not supported"));
    }
    if !(SECONDS_MIN..SECONDS_END).contains(&seconds) {
        let what = format!("timestamp out of range: \"{seconds:e}\"");
        return Err(SqlError::new(OUT_OF_RANGE, what));
    }
    if seconds >= SECONDS_HERE_END {
        return Err(SqlError::unsupported("a timestamp after the year 262142 is not supported"));
    }
    let since_2000 = ((seconds - SECONDS_TO_2000) * MICROS_IN_SECOND).round_ties_even();
    Ok(since_2000 as i64 + MICROS_TO_2000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_times_of_microseconds_or_refused() {
        for (seconds, expected) in [
            (0.0, Ok(0)),
            (-1.25, Ok(-1_250_000)),
            (1e10, Ok(10_000_000_000_000_000)),
            (SECONDS_MIN, Ok(-210_866_803_200_000_000)),
            (SECONDS_MIN - 1.0, Err("22008")),
            (SECONDS_HERE_END, Err("0A000")),
            (SECONDS_END, Err("22008")),
            (f64::NAN, Err("22008")),
            (f64::INFINITY, Err("0A000")),
        ] {
            let found = micros(seconds).map_err(|it| it.state.0);
            assert_eq!(found, expected, "{seconds}");
        }
    }
}
