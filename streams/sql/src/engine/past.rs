//! Current values of the past: `FOR SYSTEM_TIME AS OF` a time, or offsets.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use record_log::Partition;
use values::{AsOf, AsOfStep, Snapshot, Values, ValuesError};

use crate::error::{SqlError, SqlState};

/// Separator of a table and the time in the name that statements have for both.
pub(crate) const AS_OF: &str = " AS OF ";

/// What the keys that have changed since may take of each partition.
const BYTES_MAX: usize = 256 << 20;

/// Up to where records count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    /// Those that are not newer, in Unix milliseconds.
    Time(i64),
    /// By partition, those before the offset; of others, none.
    Offsets(BTreeMap<u32, i64>),
}

impl Past {
    /// Reads `2026-01-31 12:00:00+00`, or `0:17,1:20`.
    pub(crate) fn read(text: &str) -> Result<Self, SqlError> {
        if let Some(offsets) = offsets_of(text) {
            return Ok(Self::Offsets(offsets));
        }
        let to = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
        match ScalarValue::from(text).cast_to(&to) {
            Ok(ScalarValue::TimestampMillisecond(Some(ms), _)) => Ok(Self::Time(ms)),
            _ => {
                let what = format!("invalid time or offsets behind AS OF: {text:?}");
                Err(SqlError::new(SqlState::INVALID_TEXT, what).with_hint(
                    "A time is written as '2026-01-31 12:00:00+00', offsets as '0:17,1:20'.",
                ))
            }
        }
    }

    /// At which time values must not have expired; `now_ms` where none is said.
    pub(super) fn time_ms(&self, now_ms: i64) -> i64 {
        match self {
            Self::Time(ms) => *ms,
            Self::Offsets(_) => now_ms,
        }
    }

    /// The values of then, as far as `is_wanted`; `None` where they are not.
    ///
    /// # Errors
    /// The log does not reach back so far: the message says from where it does.
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
        // A time before the first record that is left may be any time before it.
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
        "the log of partition {number} does not tell the values of then: it does from offset \
         {first} to {last}"
    );
    // The batch there tells when that was; a log that cannot be read says so to the next query.
    let mut bytes = Vec::new();
    if let Ok(range) = partition.read(first, 1, &mut bytes)
        && let Some(header) = record_batch::BatchHeader::read(&bytes[range])
    {
        let since = ScalarValue::TimestampMillisecond(Some(header.max_timestamp), None);
        if let Ok(ScalarValue::Utf8(Some(text))) = since.cast_to(&DataType::Utf8) {
            what = format!("{what}, which is since {text}Z");
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
