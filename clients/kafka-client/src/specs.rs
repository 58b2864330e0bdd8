//! Offsets of partitions by kind, number or time, and ranges of offsets.

use std::collections::BTreeMap;

use crate::client::Client;
use crate::error::ClientError;
use crate::fetch::Isolation;
use crate::offsets::{OffsetAt, PartitionOffset};

/// Offset to select in each partition of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    Earliest,
    Latest,
    /// This offset, clamped to the partition's range.
    Offset(i64),
    /// First record with this timestamp or a later one, in milliseconds since 1970.
    Time(i64),
}

/// Offset range of a partition: `earliest` inclusive, `latest` exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub earliest: i64,
    pub latest: i64,
}

impl Extent {
    /// Number of offsets in the range. There may be fewer records.
    pub fn count(&self) -> u64 {
        u64::try_from(self.latest.saturating_sub(self.earliest)).unwrap_or(0)
    }

    fn nearest(&self, offset: i64) -> i64 {
        offset.clamp(self.earliest, self.latest.max(self.earliest))
    }
}

impl Client {
    /// Looks up the offset ranges of all partitions of a topic, by partition index.
    pub async fn extents(
        &self,
        topic: &str,
        isolation: Isolation,
    ) -> Result<BTreeMap<i32, Extent>, ClientError> {
        let earliest = self.topic_offsets(topic, OffsetAt::Earliest, isolation).await?;
        let latest = self.topic_offsets(topic, OffsetAt::Latest, isolation).await?;
        let extent = |(from, to): (&PartitionOffset, &PartitionOffset)| {
            let (earliest, latest) = (from.offset.unwrap_or(0), to.offset.unwrap_or(0));
            (from.partition, Extent { earliest, latest })
        };
        Ok(earliest.iter().zip(&latest).map(extent).collect())
    }

    /// Looks up the offset that `spec` selects in each partition, clamped to the partition's range.
    pub async fn offsets_of_spec(
        &self,
        topic: &str,
        spec: OffsetSpec,
        extents: &BTreeMap<i32, Extent>,
    ) -> Result<BTreeMap<i32, i64>, ClientError> {
        let in_each = |offset: &dyn Fn(&Extent) -> i64| {
            Ok(extents.iter().map(|(&partition, extent)| (partition, offset(extent))).collect())
        };
        let time = match spec {
            OffsetSpec::Earliest => return in_each(&|it| it.earliest),
            OffsetSpec::Latest => return in_each(&|it| it.latest),
            OffsetSpec::Offset(offset) => return in_each(&|it| it.nearest(offset)),
            OffsetSpec::Time(time) => time,
        };
        let at = OffsetAt::Time(time);
        let found = self.topic_offsets(topic, at, Isolation::ReadUncommitted).await?;
        let offset_of = |partition| found.iter().find(|it| it.partition == partition)?.offset;
        // A time after the last record selects the log end offset.
        let offset = |(&partition, extent): (&i32, &Extent)| {
            (partition, offset_of(partition).unwrap_or(extent.latest))
        };
        Ok(extents.iter().map(offset).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_outside_of_a_partition_is_the_end_that_is_nearest() {
        let extent = Extent { earliest: 5, latest: 9 };
        for (asked, expected) in [(0, 5), (5, 5), (7, 7), (9, 9), (10, 9)] {
            assert_eq!(extent.nearest(asked), expected, "{asked}");
        }
        assert_eq!(Extent { earliest: 5, latest: 4 }.nearest(7), 5, "an end that is not known");
    }
}
