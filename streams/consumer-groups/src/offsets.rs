//! Committed offsets of a group, and pending offsets of transactions.

use std::collections::BTreeMap;

use kafka_protocol::protocol::StrBytes;

use crate::effect::Record;
use crate::fields::{Reader, Writer};
use crate::keys::Key;
use crate::options::ENTRY_BYTES;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offset {
    pub(crate) offset: i64,
    pub(crate) leader_epoch: i32,
    pub(crate) metadata: StrBytes,
    pub(crate) commit_ms: i64,
    /// Set if the request contained a retention time.
    pub(crate) expire_ms: Option<i64>,
    /// Global sequence number of the commit. Between a transactional and another commit, the later
    /// one takes precedence.
    pub(crate) order: u64,
}

impl Offset {
    fn put(&self, value: &mut Writer) {
        value.i64(self.offset).i32(self.leader_epoch).text(&self.metadata).i64(self.commit_ms);
        value.i64(self.expire_ms.unwrap_or(-1)).u64(self.order);
    }

    fn take(value: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            offset: value.i64()?,
            leader_epoch: value.i32()?,
            metadata: value.text()?,
            commit_ms: value.i64()?,
            expire_ms: Some(value.i64()?).filter(|it| *it >= 0),
            order: value.u64()?,
        })
    }

    pub(crate) fn size(&self, topic: &StrBytes) -> usize {
        ENTRY_BYTES + topic.len() + self.metadata.len()
    }
}

/// Topic name and partition index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) topic: StrBytes,
    pub(crate) partition: i32,
}

/// Offsets of one producer's open transaction.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) epoch: i16,
    offsets: BTreeMap<Place, Offset>,
}

/// All offsets of one group.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    committed: BTreeMap<Place, Offset>,
    pending: BTreeMap<i64, Pending>,
    count: usize,
    bytes: usize,
}

impl Offsets {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of offsets, including pending ones.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the approximate memory usage.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, place: &Place) -> Option<&Offset> {
        self.committed.get(place)
    }

    pub(crate) fn committed(&self) -> impl Iterator<Item = (&Place, &Offset)> {
        self.committed.iter()
    }

    pub(crate) fn has_pending(&self, place: &Place) -> bool {
        self.pending.values().any(|it| it.offsets.contains_key(place))
    }

    pub(crate) fn pending_epoch(&self, producer_id: i64) -> Option<i16> {
        self.pending.get(&producer_id).map(|it| it.epoch)
    }

    pub(crate) fn producers(&self) -> impl Iterator<Item = i64> {
        self.pending.keys().copied()
    }

    /// Returns the producers with a pending offset of a partition.
    pub(crate) fn producers_of(&self, place: &Place) -> Vec<i64> {
        let has_it = |it: &Pending| it.offsets.contains_key(place);
        self.pending.iter().filter(|(_, it)| has_it(it)).map(|(id, _)| *id).collect()
    }

    /// Returns the partitions of a topic with committed offsets.
    pub(crate) fn of_topic(&self, topic: &StrBytes) -> impl Iterator<Item = &Place> {
        places_of(&self.committed, topic)
    }

    /// Returns the distinct topics of committed offsets.
    pub(crate) fn committed_topics(&self) -> impl Iterator<Item = &StrBytes> {
        let mut last = None;
        let topics = self.committed.keys().map(|place| &place.topic);
        topics.filter(move |topic| last.replace(*topic) != Some(*topic))
    }

    /// Returns whether there is any offset of this topic, including pending ones.
    pub(crate) fn has_topic(&self, topic: &StrBytes) -> bool {
        let mut all = self.pending.values().map(|it| &it.offsets).chain([&self.committed]);
        all.any(|offsets| places_of(offsets, topic).next().is_some())
    }

    /// Returns the offset that a new one replaces: immediately or, if it is pending, at the end of
    /// the transaction. Only one pending offset per partition can count as a replacement of the
    /// committed one; further ones need additional memory.
    pub(crate) fn replaced(&self, place: &Place, producer_id: Option<i64>) -> Option<&Offset> {
        let committed = self.committed.get(place);
        let Some(producer_id) = producer_id else { return committed };
        let own = self.pending.get(&producer_id).and_then(|it| it.offsets.get(place));
        own.or_else(|| committed.filter(|_| !self.has_pending(place)))
    }

    /// Returns the partitions of one topic with pending offsets of a producer.
    pub(crate) fn pending_of(&self, producer_id: i64, topic: &StrBytes) -> Vec<Place> {
        let pending = self.pending.get(&producer_id).into_iter();
        pending.flat_map(|it| places_of(&it.offsets, topic)).cloned().collect()
    }

    /// Returns the topic of each pending offset of a producer, with duplicates.
    pub(crate) fn pending_topics(&self, producer_id: i64) -> impl Iterator<Item = &StrBytes> {
        let pending = self.pending.get(&producer_id).into_iter();
        pending.flat_map(|it| it.offsets.keys().map(|place| &place.topic))
    }

    pub(crate) fn commit(&mut self, place: Place, offset: Offset) {
        self.added(&place, &offset);
        if let Some(before) = self.committed.insert(place.clone(), offset) {
            self.removed(&place, &before);
        }
    }

    pub(crate) fn remove(&mut self, place: &Place) -> bool {
        let Some(before) = self.committed.remove(place) else { return false };
        self.removed(place, &before);
        true
    }

    pub(crate) fn hold(&mut self, producer_id: i64, epoch: i16, place: Place, offset: Offset) {
        self.added(&place, &offset);
        let pending = self.pending.entry(producer_id).or_default();
        pending.epoch = epoch;
        if let Some(before) = pending.offsets.insert(place.clone(), offset) {
            self.removed(&place, &before);
        }
    }

    /// Removes and returns the pending offsets of a producer's transaction.
    pub(crate) fn take_pending(&mut self, producer_id: i64) -> Vec<(Place, Offset)> {
        let Some(pending) = self.pending.remove(&producer_id) else { return Vec::new() };
        for (place, offset) in &pending.offsets {
            self.removed(place, offset);
        }
        pending.offsets.into_iter().collect()
    }

    pub(crate) fn release(&mut self, producer_id: i64, place: &Place) {
        let Some(pending) = self.pending.get_mut(&producer_id) else { return };
        let before = pending.offsets.remove(place);
        if pending.offsets.is_empty() {
            self.pending.remove(&producer_id);
        }
        if let Some(before) = before {
            self.removed(place, &before);
        }
    }

    /// Returns the highest sequence number of a commit.
    pub(crate) fn order_max(&self) -> u64 {
        let pending = self.pending.values().flat_map(|it| it.offsets.values());
        self.committed.values().chain(pending).map(|it| it.order).max().unwrap_or(0)
    }

    pub(crate) fn records(&self, group: &StrBytes) -> Vec<Record> {
        let committed = self.committed.iter().map(|(place, it)| record(group, place, it));
        let pending = self.pending.iter().flat_map(|(producer_id, pending)| {
            let producer = Producer { id: *producer_id, epoch: pending.epoch };
            let record = move |(place, it)| pending_record(group, producer, place, it);
            pending.offsets.iter().map(record)
        });
        committed.chain(pending).collect()
    }

    /// Returns records that delete all offsets.
    pub(crate) fn gone(&self, group: &StrBytes) -> Vec<Record> {
        self.records(group).into_iter().map(|it| Record { key: it.key, value: None }).collect()
    }

    fn added(&mut self, place: &Place, offset: &Offset) {
        self.count += 1;
        self.bytes += offset.size(&place.topic);
    }

    fn removed(&mut self, place: &Place, offset: &Offset) {
        self.count -= 1;
        self.bytes -= offset.size(&place.topic);
    }
}

/// Returns the partitions of one topic. The map is ordered, so no others are visited.
fn places_of<'a>(
    offsets: &'a BTreeMap<Place, Offset>,
    topic: &StrBytes,
) -> impl Iterator<Item = &'a Place> {
    let first = Place { topic: topic.clone(), partition: i32::MIN };
    let last = Place { topic: topic.clone(), partition: i32::MAX };
    offsets.range(first..=last).map(|(place, _)| place)
}

/// A producer id and epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Producer {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

pub(crate) fn key(group: &StrBytes, place: &Place) -> Key {
    Key::Offset(group.clone(), place.topic.clone(), place.partition)
}

pub(crate) fn pending_key(group: &StrBytes, producer_id: i64, place: &Place) -> Key {
    Key::Pending(group.clone(), producer_id, place.topic.clone(), place.partition)
}

pub(crate) fn record(group: &StrBytes, place: &Place, offset: &Offset) -> Record {
    let mut value = Writer::default();
    offset.put(&mut value);
    key(group, place).with(value)
}

pub(crate) fn pending_record(
    group: &StrBytes,
    producer: Producer,
    place: &Place,
    offset: &Offset,
) -> Record {
    let mut value = Writer::default();
    value.i16(producer.epoch);
    offset.put(&mut value);
    pending_key(group, producer.id, place).with(value)
}

pub(crate) fn decode(value: &[u8]) -> Option<Offset> {
    let mut value = Reader::new(value);
    let offset = Offset::take(&mut value)?;
    value.is_done().then_some(offset)
}

/// Decodes the producer's epoch and the offset.
pub(crate) fn decode_pending(value: &[u8]) -> Option<(i16, Offset)> {
    let mut value = Reader::new(value);
    let epoch = value.i16()?;
    let offset = Offset::take(&mut value)?;
    value.is_done().then_some((epoch, offset))
}
