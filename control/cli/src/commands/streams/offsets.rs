//! Offsets that users name by words, times and ages.

use std::collections::BTreeMap;
use std::time::SystemTime;

use kafka_client::{Client, Isolation, OffsetAt};

use crate::arguments::streams::OffsetSpec;
use crate::failure::Failure;

/// Extent of a partition: offsets from `earliest` on, below `latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) earliest: i64,
    pub(super) latest: i64,
}

impl Extent {
    pub(super) fn count(&self) -> u64 {
        u64::try_from(self.latest.saturating_sub(self.earliest)).unwrap_or(0)
    }
}

/// The extents of all partitions of a topic.
pub(super) async fn extents(
    client: &Client,
    topic: &str,
    isolation: Isolation,
) -> Result<BTreeMap<i32, Extent>, Failure> {
    let earliest = client.topic_offsets(topic, OffsetAt::Earliest, isolation).await?;
    let latest = client.topic_offsets(topic, OffsetAt::Latest, isolation).await?;
    let extent = |(from, to): (&kafka_client::PartitionOffset, &kafka_client::PartitionOffset)| {
        let extent = Extent { earliest: from.offset.unwrap_or(0), latest: to.offset.unwrap_or(0) };
        (from.partition, extent)
    };
    Ok(earliest.iter().zip(&latest).map(extent).collect())
}

/// The offset of `spec` in each partition, inside of what the partition holds.
pub(super) async fn offsets(
    client: &Client,
    topic: &str,
    spec: OffsetSpec,
    extents: &BTreeMap<i32, Extent>,
) -> Result<BTreeMap<i32, i64>, Failure> {
    let time = match spec {
        OffsetSpec::Earliest => {
            return Ok(extents.iter().map(|(&at, it)| (at, it.earliest)).collect());
        }
        OffsetSpec::Latest => return Ok(extents.iter().map(|(&at, it)| (at, it.latest)).collect()),
        OffsetSpec::Offset(offset) => {
            let inside = |it: &Extent| offset.clamp(it.earliest, it.latest.max(it.earliest));
            return Ok(extents.iter().map(|(&at, it)| (at, inside(it))).collect());
        }
        OffsetSpec::Time(time) => time,
        OffsetSpec::Ago(duration) => {
            let time = SystemTime::now().checked_sub(duration);
            let since_1970 = time.and_then(|it| it.duration_since(SystemTime::UNIX_EPOCH).ok());
            i64::try_from(since_1970.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
        }
    };
    let isolation = Isolation::ReadUncommitted;
    let found = client.topic_offsets(topic, OffsetAt::Time(time), isolation).await?;
    let offset_of = |partition: &i32| found.iter().find(|it| it.partition == *partition)?.offset;
    // A time after the last record is where the next one will be.
    let offset = |(at, extent): (&i32, &Extent)| (*at, offset_of(at).unwrap_or(extent.latest));
    Ok(extents.iter().map(offset).collect())
}
