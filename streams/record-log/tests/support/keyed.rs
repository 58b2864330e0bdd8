//! Model of a partition of keyed records. Idempotent and transactional producers of several epochs
//! write them in all codecs. The model derives what a reader must find after compaction, deletion
//! and crashes from the appended batches and the settings, without asking the log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use model::Random;
use record_batch::{Marker, TransactionEnd};
use record_log::{
    Batch, Compaction, CompactionOptions, CompactionStep, LogError, LogErrorKind, Partition,
    Retention,
};

use super::records::{Entry, decode, keyed_batch, value};
use super::{From, append, read_left};

const KEY_COUNT: usize = 9;

/// The first producer is not transactional.
const PRODUCERS: [i64; 3] = [70, 71, 72];

/// Retention of tombstones, in the time of the history.
const DELETE_RETENTION_MS: i64 = 20;

/// A batch that was appended.
#[derive(Clone, Debug)]
pub(crate) struct Appended {
    producer_id: i64,
    epoch: i16,
    is_transactional: bool,
    marker: Option<Marker>,
    base_offset: i64,
    entries: Vec<Entry>,
    unix_ms: i64,
    /// Encoded batch with offset and epoch, as stored in the log.
    bytes: Vec<u8>,
}

impl Appended {
    fn next_offset(&self) -> i64 {
        self.base_offset + i64::try_from(self.entries.len().max(1)).expect("short")
    }

    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Leader epoch of the log.
    fn leader_epoch(&self) -> i32 {
        i32::from_be_bytes(self.bytes[12..16].try_into().expect("four bytes"))
    }
}

/// Expected state of the partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keyed {
    appended: Vec<Appended>,
    /// Number of flushed batches.
    stable: usize,
    start_offset: i64,
    /// Start offset after each deletion, in order.
    starts: Vec<i64>,
    /// Batches of which one may exist at the end: the one in progress when the disk failed, and
    /// those since the last success that did not find memory. If only zeros at the end of such a
    /// batch could not be written, an opening finds it complete.
    maybe_appended: Vec<Appended>,
    maybe_starts: Vec<i64>,
    now_ms: i64,
    /// Offset from which compaction has processed nothing: all batches are as they were appended.
    compacted_before: i64,
    /// Additional size of some values.
    more_value_bytes_max: usize,
}

impl Keyed {
    /// Creates a model in which some batches are longer than others.
    pub(crate) fn with_long_values(more_value_bytes_max: usize) -> Self {
        Self { more_value_bytes_max, ..Self::default() }
    }

    pub(crate) fn next_offset(&self) -> i64 {
        self.appended.last().map_or(0, Appended::next_offset)
    }

    pub(crate) fn note_flush(&mut self) {
        self.stable = self.appended.len();
    }

    /// Returns the states that a crash between two points may leave: anything up to the second, and
    /// at least what was guaranteed at the first.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            stable: before.stable,
            start_offset: before.start_offset,
            maybe_starts: self.starts[before.starts.len()..].to_vec(),
            ..self.clone()
        }
    }

    fn stable_offset(&self) -> i64 {
        self.appended[..self.stable].last().map_or(0, Appended::next_offset)
    }

    fn of_producer(&self, producer_id: i64) -> impl DoubleEndedIterator<Item = &Appended> {
        self.appended.iter().filter(move |it| it.producer_id == producer_id)
    }

    fn producer_epoch(&self, producer_id: i64) -> i16 {
        self.of_producer(producer_id).next_back().map_or(0, |last| last.epoch)
    }

    fn sequence(&self, producer_id: i64, epoch: i16) -> i32 {
        let of_epoch = self.of_producer(producer_id).filter(|it| it.epoch == epoch);
        let count: usize = of_epoch.map(|it| it.entries.len()).sum();
        i32::try_from(count).expect("a short history")
    }

    /// Returns the start of the producer's open transaction.
    fn open_offset(&self, producer_id: i64) -> Option<i64> {
        open_offset(&self.appended, producer_id)
    }

    /// Returns the last stable offset, which depends on stable batches only.
    fn last_stable_offset(&self) -> i64 {
        let stable = &self.appended[..self.stable];
        let open = PRODUCERS.iter().filter_map(|it| open_offset(stable, *it)).min();
        let undecided = open.unwrap_or(i64::MAX).min(self.stable_offset());
        undecided.max(self.start_offset)
    }

    pub(crate) fn append(
        &mut self,
        partition: &Partition,
        random: &mut Random,
    ) -> Result<(), LogError> {
        self.now_ms += 1;
        let producer_id = random.pick(&PRODUCERS);
        let is_transactional = producer_id != PRODUCERS[0];
        let (is_open, mut epoch) =
            (self.open_offset(producer_id).is_some(), self.producer_epoch(producer_id));
        // Ended by its coordinator if a transaction is open, otherwise by a new epoch.
        let is_next_epoch = random.one_in(6);
        if is_open && random.one_in(3) {
            let marker = random.pick(&[Marker::Abort, Marker::Commit]);
            epoch += i16::from(is_next_epoch);
            return self.end_transaction(partition, (producer_id, epoch), marker);
        }
        epoch += i16::from(is_next_epoch && !is_open);
        let (offset, count) = (self.next_offset(), 1 + random.index(4));
        let value_bytes_max = 300 + if random.one_in(4) { self.more_value_bytes_max } else { 0 };
        let entries: Vec<Entry> = (offset..)
            .take(count)
            .map(|offset| Entry {
                offset,
                key: Some(format!("key {}", random.index(KEY_COUNT))),
                value: (!random.one_in(5)).then(|| value(random, value_bytes_max)),
            })
            .collect();
        let sequence = self.sequence(producer_id, epoch);
        let from = From { producer_id, epoch, sequence, is_transactional };
        let records: Vec<(&str, Option<&str>)> = entries
            .iter()
            .map(|it| (it.key.as_deref().expect("all have one"), it.value.as_deref()))
            .collect();
        let codec = random.pick(&[0, 0, 0, 1, 2, 3, 4]);
        // Clocks of clients differ.
        let unix_ms = (self.now_ms - i64::try_from(random.below(6)).expect("small")).max(0);
        let bytes = keyed_batch(from, codec, unix_ms, &records);
        self.put(
            partition,
            Appended {
                producer_id,
                epoch,
                is_transactional,
                marker: None,
                base_offset: offset,
                entries,
                unix_ms,
                bytes,
            },
        )
    }

    fn end_transaction(
        &mut self,
        partition: &Partition,
        (producer_id, epoch): (i64, i16),
        marker: Marker,
    ) -> Result<(), LogError> {
        let end = TransactionEnd {
            producer_id,
            producer_epoch: epoch,
            coordinator_epoch: 0,
            unix_ms: self.now_ms,
        };
        self.put(
            partition,
            Appended {
                producer_id,
                epoch,
                is_transactional: true,
                marker: Some(marker),
                base_offset: self.next_offset(),
                entries: Vec::new(),
                unix_ms: self.now_ms,
                bytes: marker.to_batch(end),
            },
        )
    }

    fn put(&mut self, partition: &Partition, mut new: Appended) -> Result<(), LogError> {
        let mut bytes = new.bytes.clone();
        new.bytes[..8].copy_from_slice(&new.base_offset.to_be_bytes());
        new.bytes[12..16].copy_from_slice(&partition.epoch().to_be_bytes());
        self.maybe_appended.push(new.clone());
        assert_eq!(append(partition, &mut bytes)?, new.base_offset);
        self.maybe_appended.clear();
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
        self.maybe_starts = vec![offset];
        assert_eq!(partition.delete_before(offset)?, offset);
        self.note_start(offset);
        if random.one_in(2) { partition.cut() } else { Ok(()) }
    }

    /// Applies retention, with segments that begin at these offsets. Returns the number of deleted
    /// batches.
    pub(crate) fn retain(
        &mut self,
        partition: &Partition,
        policy: Retention,
        bases: &[i64],
    ) -> Result<u64, LogError> {
        let (before, expected) = (self.start_offset, self.start_after(policy, bases));
        self.maybe_starts = vec![expected];
        assert_eq!(partition.retain(policy)?, expected, "{policy:?} of segments at {bases:?}");
        self.note_start(expected);
        let gone = |it: &&Appended| (before..expected).contains(&it.base_offset);
        Ok(self.appended.iter().filter(gone).count() as u64)
    }

    /// Returns the expected start offset. Leading segments are deleted if the next one is flushed
    /// and they are too old, or the ones behind have enough bytes. The last one is retained.
    fn start_after(&self, policy: Retention, bases: &[i64]) -> i64 {
        let mut start_offset = self.start_offset;
        for pair in bases.windows(2) {
            let is_in = |it: &&Appended| (pair[0]..pair[1]).contains(&it.base_offset);
            let is_behind = |it: &&Appended| it.base_offset >= pair[1];
            let bytes_behind: u64 =
                self.appended.iter().filter(is_behind).map(Appended::size_bytes).sum();
            let newest_ms = self.appended.iter().filter(is_in).map(|it| it.unix_ms).max();
            let is_enough = policy.bytes_max.is_some_and(|most| bytes_behind >= most);
            let is_old = policy.oldest_unix_ms.is_some_and(|oldest| newest_ms < Some(oldest));
            if pair[1] > self.stable_offset() || !(is_enough || is_old) {
                break;
            }
            start_offset = start_offset.max(pair[1]);
        }
        start_offset
    }

    fn note_start(&mut self, start_offset: i64) {
        self.start_offset = start_offset;
        self.starts.push(start_offset);
        self.maybe_starts.clear();
    }

    /// Returns a random policy by size, by time, by both or by none.
    pub(crate) fn policy(&self, random: &mut Random) -> Retention {
        let age_ms = i64::try_from(random.below(30)).expect("small");
        Retention {
            bytes_max: random.pick(&[None, Some(0), Some(5_000), Some(20_000)]),
            oldest_unix_ms: random.one_in(2).then(|| self.now_ms - age_ms),
            empties_last: false,
        }
    }

    /// Runs a compaction pass with other requests between its steps, sometimes partially.
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
            max_compaction_lag_ms: i64::MAX,
            min_dirty_ratio: 0.0,
            map_bytes_max: random.pick(&[16 * 24, 1 << 16]),
            hash_secret: [9; 16],
        };
        self.compacted_before = self.compacted_before.max(self.last_stable_offset());
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

    /// Checks the result of a finished pass: one record for each key, and no aborted ones.
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

    /// Checks the state after an opening, with which the next life continues. If `is_kept`, all
    /// acknowledged batches must be there, flushed or not.
    pub(crate) fn check_opened(
        &mut self,
        partition: &Partition,
        is_kept: bool,
        random: &mut Random,
    ) {
        let least = if is_kept { self.appended.len() } else { self.stable };
        let end = partition.next_offset();
        self.take_maybe_appended(partition, end, random);
        assert_eq!(end, partition.stable_offset(), "an opening flushes");
        self.appended.retain(|it| it.base_offset < end);
        let left = self.appended.len();
        assert!(left >= least, "{left} batches are left of {least} that were promised");
        assert_eq!(self.next_offset(), end);
        let start_offset = partition.start_offset();
        let is_known =
            start_offset == self.start_offset || self.maybe_starts.contains(&start_offset);
        assert!(is_known, "{start_offset}, not {} or {:?}", self.start_offset, self.maybe_starts);
        self.note_start(start_offset);
        self.note_flush();
        let last_epoch = self.appended.last().map_or(-1, Appended::leader_epoch);
        assert!(partition.epoch() > last_epoch, "an opening is an epoch of its own");
        self.check(partition, random);
        self.check_producers(partition);
    }

    /// Adds a batch that an opening found although its append failed.
    fn take_maybe_appended(&mut self, partition: &Partition, end: i64, random: &mut Random) {
        let maybe = std::mem::take(&mut self.maybe_appended);
        let Some(offset) = maybe.first().map(|it| it.base_offset).filter(|it| *it < end) else {
            return;
        };
        let found = read_left(partition, offset, random);
        let is_there = |it: &Appended| found.first() == Some(&it.bytes);
        self.appended.push(maybe.into_iter().find(is_there).expect("nobody else appends"));
    }

    /// Checks invariants that hold at any time.
    pub(crate) fn check(&self, partition: &Partition, random: &mut Random) {
        let lso = partition.last_stable_offset();
        assert_eq!(
            (partition.stable_offset(), lso),
            (self.stable_offset(), self.last_stable_offset())
        );
        let batches = read_left(partition, self.start_offset, random);
        self.check_batches(&batches);
        self.check_epochs(partition);
        let found = committed(partition, &batches, lso);
        let offsets: Vec<i64> = found.keys().copied().collect();
        assert!(offsets.is_sorted());
        let aborted = self.aborted_offsets();
        let decided = || {
            let entries = self.appended.iter().flat_map(|it| {
                let unix_ms = it.unix_ms;
                it.entries.iter().map(move |entry| (unix_ms, entry))
            });
            entries.filter(|(_, it)| !aborted.contains(&it.offset) && it.offset < lso)
        };
        let known: BTreeMap<i64, &Entry> = decided().map(|(_, it)| (it.offset, it)).collect();
        for (offset, entry) in &found {
            let expected = known.get(offset).unwrap_or_else(|| panic!("{entry:?} was not written"));
            assert_eq!(&entry, expected);
        }
        let latest: BTreeMap<&Option<String>, (i64, &Entry)> =
            decided().map(|(unix_ms, it)| (&it.key, (unix_ms, it))).collect();
        for (key, (unix_ms, last)) in latest {
            if last.offset < self.start_offset || found.contains_key(&last.offset) {
                continue;
            }
            let may_go = last.value.is_none() && self.now_ms > unix_ms + DELETE_RETENTION_MS;
            assert!(may_go, "{last:?} is the latest of its key, and is gone");
            let older = found.values().find(|it| it.key == *key);
            assert!(older.is_none(), "{older:?} was deleted by {last:?}");
        }
    }

    /// Checks that batches before any compaction are there once, in order and byte-identical.
    fn check_batches(&self, batches: &[Vec<u8>]) {
        let from = self.start_offset.max(self.compacted_before);
        let is_shown = |it: &&Appended| {
            it.base_offset >= self.compacted_before
                && (from + 1..=self.stable_offset()).contains(&it.next_offset())
        };
        let expected: Vec<&Vec<u8>> =
            self.appended.iter().filter(is_shown).map(|it| &it.bytes).collect();
        let base_offset = |it: &[u8]| i64::from_be_bytes(it[..8].try_into().expect("eight bytes"));
        let is_as_it_was = |it: &&Vec<u8>| base_offset(it) >= self.compacted_before;
        let found: Vec<&Vec<u8>> = batches.iter().filter(is_as_it_was).collect();
        let offsets = |list: &[&Vec<u8>]| list.iter().map(|it| base_offset(it)).collect::<Vec<_>>();
        assert_eq!(offsets(&found), offsets(&expected), "from offset {from} on");
        assert!(found == expected, "a batch has other bytes");
    }

    /// Checks that each leader epoch ends at the first remaining record of a later one.
    fn check_epochs(&self, partition: &Partition) {
        let is_there = |it: &&Appended| {
            it.next_offset() > self.start_offset && it.base_offset < self.stable_offset()
        };
        for asked in -1..=partition.epoch() {
            let (found, end) = partition.end_of_epoch(asked).unwrap_or((-1, 0));
            assert!(found <= asked);
            for batch in self.appended.iter().filter(is_there) {
                let is_of_it = batch.leader_epoch() <= asked;
                assert_eq!(
                    batch.base_offset.max(self.start_offset) < end,
                    is_of_it,
                    "{asked} ends at {end}, not {batch:?}"
                );
            }
        }
    }

    /// Checks that the last batch of each producer is detected as a duplicate, and that a batch of
    /// an earlier epoch is rejected.
    fn check_producers(&self, partition: &Partition) {
        let again = |it: &Appended| {
            let mut bytes = it.bytes.clone();
            let (mut batch, _) = Batch::split_first(&mut bytes).expect("a good batch");
            partition.append(&mut batch, 0).map_err(|error| error.kind)
        };
        for producer_id in PRODUCERS {
            let epoch = self.producer_epoch(producer_id);
            let batches = || self.of_producer(producer_id).rev().filter(|it| it.marker.is_none());
            if let Some(fenced) = batches().find(|it| it.epoch < epoch) {
                assert_eq!(again(fenced).err(), Some(LogErrorKind::FencedProducer));
            }
            if let Some(last) = batches().next().filter(|it| it.epoch == epoch) {
                let found = again(last).expect("it is known");
                assert_eq!((found.base_offset, found.was_there), (last.base_offset, true));
            }
        }
    }
}

/// Returns the start of the producer's open transaction behind these batches.
fn open_offset(appended: &[Appended], producer_id: i64) -> Option<i64> {
    let of_producer = appended.iter().rev().filter(|it| it.producer_id == producer_id);
    let since_marker = of_producer.take_while(|it| it.marker.is_none());
    since_marker.filter(|it| it.is_transactional).last().map(|it| it.base_offset)
}

/// Returns the records visible to a consumer with `isolation.level=read_committed`.
fn committed(partition: &Partition, batches: &[Vec<u8>], lso: i64) -> BTreeMap<i64, Entry> {
    let start_offset = partition.start_offset();
    if start_offset >= lso {
        return BTreeMap::new();
    }
    let mut aborted = partition.aborted(start_offset..lso);
    aborted.sort_by_key(|it| it.first_offset);
    let (mut aborted, mut aborting) = (VecDeque::from(aborted), BTreeSet::new());
    let mut found = BTreeMap::new();
    let mut next_offset = 0;
    for bytes in batches {
        let header = record_batch::headers(bytes).next().expect("a batch");
        assert!(header.base_offset >= next_offset, "batches are in order, once");
        next_offset = header.next_offset();
        if header.base_offset >= lso {
            break;
        }
        while aborted.front().is_some_and(|it| it.first_offset <= header.last_offset()) {
            aborting.extend(aborted.pop_front().map(|it| it.producer_id));
        }
        if header.is_control() {
            // The type is the second half of the key: the last byte before the length of the value.
            if bytes[record_batch::HEADER_BYTES..].windows(5).any(|it| it == [8, 0, 0, 0, 0]) {
                aborting.remove(&header.producer_id);
            }
            continue;
        }
        if header.is_transactional() && aborting.contains(&header.producer_id) {
            continue;
        }
        let entries = decode(bytes).expect("all are readable").entries;
        let shown = entries.into_iter().filter(|it| it.offset >= start_offset);
        found.extend(shown.map(|it| (it.offset, it)));
    }
    found
}
