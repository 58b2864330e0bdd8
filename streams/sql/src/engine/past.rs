//! Current values at a point in the past: `FOR SYSTEM_TIME AS OF` a time or offsets.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use record_log::Partition;
use values::{AsOf, AsOfStep, Snapshot, Values, ValuesError};

use crate::error::{SqlError, SqlState};

/// Separator between table and time in the combined name that statements use internally.
pub(crate) const AS_OF: &str = " AS OF ";

/// Memory limit per partition for keys that have changed since.
const BYTES_MAX: usize = 256 << 20;

/// Point up to which records count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    /// Records up to this time, in Unix milliseconds.
    Time(i64),
    /// Records before this offset, by partition. Other partitions have none.
    Offsets(BTreeMap<u32, i64>),
}

impl Past {
    /// Parses `2026-01-31 12:00:00+00`, or `0:17,1:20`.
    pub(crate) fn read(text: &str) -> Result<Self, SqlError> {
        if let Some(offsets) = offsets_of(text) {
            return Ok(Self::Offsets(offsets));
        }
        let to = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
        match ScalarValue::from(text).cast_to(&to) {
            Ok(ScalarValue::TimestampMillisecond(Some(ms), _)) => Ok(Self::Time(ms)),
            _ => {
                let what = format!("invalid timestamp or offsets in AS OF: {text:?}");
                Err(SqlError::new(SqlState::INVALID_TEXT, what).with_hint(
                    "Use a timestamp such as '2026-01-31 12:00:00+00', or offsets such as \
                     '0:17,1:20'.",
                ))
            }
        }
    }

    /// Returns the time for the expiration of values; `now_ms` if none is given.
    pub(super) fn time_ms(&self, now_ms: i64) -> i64 {
        match self {
            Self::Time(ms) => *ms,
            Self::Offsets(_) => now_ms,
        }
    }

    /// Returns a snapshot of the values at that point, or `None` if the partition is not given or
    /// the result is no longer wanted.
    ///
    /// # Errors
    /// The log does not reach back far enough. The message names the earliest point.
    pub(super) fn snapshot(
        &self,
        partition: &Partition,
        values: &Arc<Values>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Option<Snapshot>, SqlError> {
        let last = values.applied();
        let offset = match self {
            Self::Offsets(offsets) => match offsets.get(&partition.number()) {
                Some(offset) => *offset,
                None => return Ok(None),
            },
            Self::Time(ms) => {
                let found = partition.find_time(ms.saturating_add(1))?;
                found.map_or(last, |it| it.offset.min(last))
            }
        };
        let first = partition.start_offset().max(partition.compacted_before());
        // For a time at or before the first remaining record, deleted records may count.
        let is_before =
            matches!(self, Self::Time(_)) && first > 0 && offset <= first && first < last;
        if is_before {
            return Err(out_of_reach(partition, (first, last)));
        }
        let mut search = AsOf::begin(values, offset, BYTES_MAX).map_err(|error| match error {
            ValuesError::OutOfReach { first, last, .. } => out_of_reach(partition, (first, last)),
            other => other.into(),
        })?;
        while is_wanted() {
            match search.step()? {
                AsOfStep::More(rest) => search = rest,
                AsOfStep::Found(snapshot) => return Ok(Some(snapshot)),
            }
        }
        Ok(None)
    }
}

fn out_of_reach(partition: &Partition, (first, last): (i64, i64)) -> SqlError {
    let number = partition.number();
    let mut what = format!(
        "AS OF is out of the range of the log of partition {number}: values are available from \
         offset {first} to {last}"
    );
    // The batch there has the time. Errors in reading the log are left to the next query.
    let mut bytes = Vec::new();
    if let Ok(range) = partition.read(first, 1, &mut bytes)
        && let Some(header) = record_batch::BatchHeader::read(&bytes[range])
    {
        let since = ScalarValue::TimestampMillisecond(Some(header.max_timestamp), None);
        if let Ok(ScalarValue::Utf8(Some(text))) = since.cast_to(&DataType::Utf8) {
            what = format!("{what}, beginning at {text}Z");
        }
    }
    SqlError::new(SqlState::INVALID_PARAMETER, what)
}

fn offsets_of(text: &str) -> Option<BTreeMap<u32, i64>> {
    let pairs = text.split(',').map(|pair| {
        let (partition, offset) = pair.split_once(':')?;
        let offset: i64 = offset.trim().parse().ok().filter(|it| *it >= 0)?;
        Some((partition.trim().parse().ok()?, offset))
    });
    pairs.collect()
}

impl fmt::Display for Past {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(ms) => write!(f, "{ms}ms"),
            Self::Offsets(offsets) => {
                let pairs: Vec<_> =
                    offsets.iter().map(|(it, offset)| format!("{it}:{offset}")).collect();
                f.write_str(&pairs.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_or_offsets_are_read() {
        assert_eq!(Past::read("1970-01-01 00:00:01.5+00"), Ok(Past::Time(1_500)));
        assert_eq!(Past::read("1970-01-01T00:00:01Z"), Ok(Past::Time(1_000)));
        let offsets = BTreeMap::from([(0, 17), (1, 20)]);
        assert_eq!(Past::read("0:17, 1:20"), Ok(Past::Offsets(offsets)));
        for text in ["", "yesterday", "0:-1", "0:1,", "17"] {
            assert_eq!(Past::read(text).expect_err(text).state, SqlState::INVALID_TEXT, "{text}");
        }
    }
}
