//! A partition of keyed records, written by idempotent and transactional producers, with what a
//! reader of it must find: whatever is compacted, deleted, and cut.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use model::Random;
use record_batch::{Marker, TransactionEnd};
use record_log::{Batch, Compaction, CompactionOptions, CompactionStep, LogError, Partition};

use super::records::{Entry, decode, keyed_batch, value};
use super::{From, append, read_left};

const KEY_COUNT: usize = 9;

/// The first has no transactions.
const PRODUCERS: [i64; 3] = [70, 71, 72];

/// How long tombstones stay, in the history's own time.
const DELETE_RETENTION_MS: i64 = 20;

/// What was appended in one batch.
#[derive(Clone, Debug)]
pub(crate) struct Appended {
    producer_id: i64,
    is_transactional: bool,
    marker: Option<Marker>,
    base_offset: i64,
    entries: Vec<Entry>,
    unix_ms: i64,
    bytes: Vec<u8>,
}

impl Appended {
    fn next_offset(&self) -> i64 {
        self.base_offset + i64::try_from(self.entries.len().max(1)).expect("short")
    }
}

/// What is known of the partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keyed {
    appended: Vec<Appended>,
    /// So many of them were flushed.
    stable: usize,
    start_offset: i64,
    /// What was being done when the disk died: it may have happened.
    maybe_appended: Option<Appended>,
    maybe_start: Option<i64>,
    now_ms: i64,
}

impl Keyed {
    pub(crate) fn next_offset(&self) -> i64 {
        self.appended.last().map_or(0, Appended::next_offset)
    }

    pub(crate) fn note_flush(&mut self) {
        self.stable = self.appended.len();
    }

    /// What a cut may leave between two moments: all of this may be there, and what was promised at
    /// the first one is.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            stable: before.stable,
            start_offset: before.start_offset,
            maybe_start: Some(self.start_offset),
            ..self.clone()
        }
    }

    fn sequence(&self, producer_id: i64) -> i32 {
        let of_it = self.appended.iter().filter(|it| it.producer_id == producer_id);
        let count: usize = of_it.map(|it| it.entries.len()).sum();
        i32::try_from(count).expect("a short history")
    }

    /// Whether the producer has a transaction open.
    fn is_open(&self, producer_id: i64) -> bool {
        let last = self.appended.iter().rev().find(|it| it.producer_id == producer_id);
        last.is_some_and(|it| it.is_transactional && it.marker.is_none())
    }

    pub(crate) fn append(
        &mut self,
        partition: &Partition,
        random: &mut Random,
    ) -> Result<(), LogError> {
        self.now_ms += 1;
        let producer_id = random.pick(&PRODUCERS);
        let is_transactional = producer_id != PRODUCERS[0];
        if self.is_open(producer_id) && random.one_in(3) {
            let marker = random.pick(&[Marker::Abort, Marker::Commit]);
            return self.end_transaction(partition, producer_id, marker);
        }
        let (offset, count) = (self.next_offset(), 1 + random.index(4));
        let entries: Vec<Entry> = (offset..)
            .take(count)
            .map(|offset| Entry {
                offset,
                key: Some(format!("key {}", random.index(KEY_COUNT))),
                value: (!random.one_in(5)).then(|| value(random, 300)),
            })
            .collect();
        let from =
            From { producer_id, epoch: 0, sequence: self.sequence(producer_id), is_transactional };
        let records: Vec<(&str, Option<&str>)> = entries
            .iter()
            .map(|it| (it.key.as_deref().expect("all have one"), it.value.as_deref()))
            .collect();
        let codec = random.pick(&[0, 0, 0, 1, 2, 3, 4]);
        let bytes = keyed_batch(from, codec, self.now_ms, &records);
        self.put(
            partition,
            Appended {
                producer_id,
                is_transactional,
                marker: None,
                base_offset: offset,
                entries,
                unix_ms: self.now_ms,
                bytes,
            },
        )
    }

    fn end_transaction(
        &mut self,
        partition: &Partition,
        producer_id: i64,
        marker: Marker,
    ) -> Result<(), LogError> {
        let end = TransactionEnd {
            producer_id,
            producer_epoch: 0,
            coordinator_epoch: 0,
            unix_ms: self.now_ms,
        };
        self.put(
            partition,
            Appended {
                producer_id,
                is_transactional: true,
                marker: Some(marker),
                base_offset: self.next_offset(),
                entries: Vec::new(),
                unix_ms: self.now_ms,
                bytes: marker.to_batch(end),
            },
        )
    }

    fn put(&mut self, partition: &Partition, new: Appended) -> Result<(), LogError> {
        self.maybe_appended = Some(new.clone());
        assert_eq!(append(partition, &mut new.bytes.clone())?, new.base_offset);
        self.maybe_appended = None;
        self.appended.push(new);
        Ok(())
    }

    pub(crate) fn delete(
        &mut self,
        partition: &Partition,
        random: &mut Random,
    ) -> Result<(), LogError> {
        let (start, end) = (partition.start_offset(), partition.stable_offset());
        let most = (end - start).unsigned_abs() / 2 + 1;
        let offset = (start + i64::try_from(random.below(most)).expect("small")).min(end);
        self.maybe_start = Some(offset);
        assert_eq!(partition.delete_before(offset)?, offset);
        (self.start_offset, self.maybe_start) = (offset, None);
        Ok(())
    }

    /// A pass with other requests between its steps, perhaps not to its end.
    pub(crate) fn compact(
        &mut self,
        partition: &Arc<Partition>,
        random: &mut Random,
    ) -> Result<(), LogError> {
        self.now_ms += i64::try_from(random.below(15)).expect("small");
        let options = CompactionOptions {
            now_ms: self.now_ms,
            delete_retention_ms: DELETE_RETENTION_MS,
            min_compaction_lag_ms: random.pick(&[0, 0, 5]),
            min_dirty_ratio: 0.0,
            map_bytes_max: random.pick(&[16 * 24, 1 << 16]),
            hash_secret: [9; 16],
        };
        let Some(mut pass) = Compaction::begin(partition, &options)? else { return Ok(()) };
        let step_max = if random.one_in(4) { random.index(10) } else { usize::MAX };
        for _ in 0..step_max {
            if pass.step()? == CompactionStep::Done {
                self.check_compacted(partition, pass.outcome().clean_offset, random);
                return Ok(());
            }
            match random.below(12) {
                0 => self.append(partition, random)?,
                1 => self.delete(partition, random)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// What a finished pass promises: one record for each key, and none that was aborted.
    fn check_compacted(&self, partition: &Partition, clean_offset: i64, random: &mut Random) {
        let mut keys = BTreeSet::new();
        let batches = read_left(partition, partition.start_offset(), random);
        for entry in batches.iter().filter_map(|it| decode(it)).flat_map(|it| it.entries) {
            if entry.offset < clean_offset {
                assert!(keys.insert(entry.key.clone()), "{entry:?} is not alone");
                assert!(!self.aborted_offsets().contains(&entry.offset), "{entry:?} was aborted");
            }
        }
    }

    fn aborted_offsets(&self) -> BTreeSet<i64> {
        let (mut aborted, mut open) = (BTreeSet::new(), BTreeMap::<i64, Vec<i64>>::new());
        for it in self.appended.iter().filter(|it| it.is_transactional) {
            let offsets = open.entry(it.producer_id).or_default();
            offsets.extend(it.entries.iter().map(|entry| entry.offset));
            match it.marker {
                Some(Marker::Abort) => aborted.append(&mut offsets.drain(..).collect()),
                Some(Marker::Commit) => offsets.clear(),
                None => {}
            }
        }
        aborted
    }

    /// Compares what an opening found. `is_kept` says that all that was acknowledged must be there,
    /// flushed or not. What is found is what the next life goes on with.
    pub(crate) fn check_opened(
        &mut self,
        partition: &Partition,
        is_kept: bool,
        random: &mut Random,
    ) {
        self.appended.extend(self.maybe_appended.take());
        let end = partition.next_offset();
        assert_eq!(end, partition.stable_offset(), "an opening flushes");
        let known = self.appended.len();
        self.appended.retain(|it| it.base_offset < end);
        let least = if is_kept { known.saturating_sub(1) } else { self.stable };
        assert!(self.appended.len() >= least, "{} of {least}", self.appended.len());
        assert_eq!(self.next_offset(), end);
        let start_offset = partition.start_offset();
        match self.maybe_start.take() {
            Some(most) => assert!((self.start_offset..=most).contains(&start_offset)),
            None => assert_eq!(start_offset, self.start_offset),
        }
        self.start_offset = start_offset;
        self.stable = self.appended.len();
        self.check(partition, random);
        self.check_producers(partition);
    }

    /// What is true at any time.
    pub(crate) fn check(&self, partition: &Partition, random: &mut Random) {
        let lso = partition.last_stable_offset();
        let found = committed(partition, lso, random);
        let offsets: Vec<i64> = found.keys().copied().collect();
        assert!(offsets.is_sorted());
        let aborted = self.aborted_offsets();
        let decided = || {
            let entries = self.appended.iter().flat_map(|it| &it.entries);
            entries.filter(|it| !aborted.contains(&it.offset) && it.offset < lso)
        };
        let known: BTreeMap<i64, &Entry> = decided().map(|it| (it.offset, it)).collect();
        for (offset, entry) in &found {
            let expected = known.get(offset).unwrap_or_else(|| panic!("{entry:?} was not written"));
            assert_eq!(&entry, expected);
        }
        let latest: BTreeMap<&Option<String>, &Entry> = decided().map(|it| (&it.key, it)).collect();
        for (key, last) in latest {
            if last.offset < self.start_offset || found.contains_key(&last.offset) {
                continue;
            }
            assert!(last.value.is_none(), "{last:?} is the latest of its key, and is gone");
            let older = found.values().find(|it| it.key == *key);
            assert!(older.is_none(), "{older:?} was deleted by {last:?}");
        }
    }

    /// The last batch of each producer is known as one that was there.
    fn check_producers(&self, partition: &Partition) {
        for producer_id in PRODUCERS {
            let of_it = self.appended.iter().rev().filter(|it| it.producer_id == producer_id);
            let Some(last) = of_it.clone().find(|it| it.marker.is_none()) else { continue };
            let mut again = last.bytes.clone();
            let (mut batch, _) = Batch::split_first(&mut again).expect("a good batch");
            let appended = partition.append(&mut batch, 0).expect("it is known");
            assert_eq!((appended.base_offset, appended.was_there), (last.base_offset, true));
        }
    }
}

/// What a consumer with `isolation.level=read_committed` gets.
fn committed(partition: &Partition, lso: i64, random: &mut Random) -> BTreeMap<i64, Entry> {
    let start_offset = partition.start_offset();
    let mut aborted = partition.aborted(start_offset..lso);
    aborted.sort_by_key(|it| it.first_offset);
    let (mut aborted, mut aborting) = (VecDeque::from(aborted), BTreeSet::new());
    let mut found = BTreeMap::new();
    let mut next_offset = 0;
    for bytes in read_left(partition, start_offset, random) {
        let header = record_batch::headers(&bytes).next().expect("a batch");
        assert!(header.base_offset >= next_offset, "batches are in order, once");
        next_offset = header.next_offset();
        if header.base_offset >= lso {
            break;
        }
        while aborted.front().is_some_and(|it| it.first_offset <= header.last_offset()) {
            aborting.extend(aborted.pop_front().map(|it| it.producer_id));
        }
        if header.is_control() {
            // The kind is the second half of the key, the last byte before that of the value's
            // length.
            if bytes[record_batch::HEADER_BYTES..].windows(5).any(|it| it == [8, 0, 0, 0, 0]) {
                aborting.remove(&header.producer_id);
            }
            continue;
        }
        if header.is_transactional() && aborting.contains(&header.producer_id) {
            continue;
        }
        let entries = decode(&bytes).expect("all are readable").entries;
        let shown = entries.into_iter().filter(|it| it.offset >= start_offset);
        found.extend(shown.map(|it| (it.offset, it)));
    }
    found
}
