//! Producer state of a partition: epochs, last batches and open transactions. It detects duplicate
//! and missing batches.
//!
//! All of it is derived from the log, batch by batch; checkpoints only shorten that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use record_batch::{BatchHeader, Marker, sequence_after};
use shares::{Owner, Shares};

use crate::error::{LogError, LogErrorKind};
use crate::layout::{Fields, put_list};

/// Batches of each producer whose duplicates are detected. It is the clients' maximum number of
/// requests in flight.
const BATCHES_REMEMBERED: usize = 5;

/// Maximum number of remembered producers. A single owner gets at most half of it. Beyond it new
/// producers are rejected instead of evicting others, because duplicates of an evicted producer
/// would be stored.
pub const PRODUCER_COUNT_MAX: usize = 131_072;

/// Additional producers that an opening accepts. The earliest of them in the log had been forgotten
/// as idle before the last ones arrived.
const FOUND_BESIDE_MAX: usize = PRODUCER_COUNT_MAX / 8;

/// Time of a batch found by an opening. The timestamps of its records may be years before their
/// append.
pub(crate) const TIME_UNKNOWN: i64 = i64::MAX;

/// Maximum number of remembered markers, used to find those after an admission.
const MARKERS_REMEMBERED: usize = 1_024;

/// Maximum number of remembered rejections of first batches.
const REFUSED_COUNT_MAX: usize = 1_024;

/// An aborted transaction, with the offsets of its first record and of its marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted {
    pub producer_id: i64,
    pub first_offset: i64,
    pub last_offset: i64,
}

impl Aborted {
    pub(crate) fn put(&self, into: &mut Vec<u8>) {
        for number in [self.producer_id, self.first_offset, self.last_offset] {
            into.extend(number.to_le_bytes());
        }
    }

    pub(crate) fn take(fields: &mut Fields<'_>) -> Option<Self> {
        let (producer_id, first_offset) = (fields.i64()?, fields.i64()?);
        Some(Self { producer_id, first_offset, last_offset: fields.i64()? })
    }
}

/// Returns whether a batch before the last stable offset contains committed records. `aborted` must
/// contain all aborted transactions in a range of offsets that includes the batch: see
/// [`crate::Partition::aborted`].
pub fn is_committed(header: &BatchHeader, aborted: &[Aborted]) -> bool {
    let is_aborted = |it: &Aborted| {
        it.producer_id == header.producer_id
            && (it.first_offset..=it.last_offset).contains(&header.base_offset)
    };
    let is_of_aborted = header.is_transactional() && aborted.iter().any(is_aborted);
    !header.is_control() && !is_of_aborted
}

/// State of a remembered producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerState {
    pub producer_id: i64,
    pub epoch: i16,
    /// Sequence number of its last record; -1 if it wrote none in this epoch.
    pub last_sequence: i32,
    pub last_unix_ms: i64,
    /// First offset of its open transaction.
    pub transaction_offset: Option<i64>,
}

/// A recent batch of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    base_sequence: i32,
    last_sequence: i32,
    base_offset: i64,
}

/// Append time and owner of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    pub(crate) unix_ms: i64,
    pub(crate) owner: Owner,
}

impl Noted {
    /// Placeholder for batches found by an opening.
    pub(crate) const FOUND: Self = Self { unix_ms: TIME_UNKNOWN, owner: Owner::NOBODY };
}

/// Last batch of a remembered producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastBatch {
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    /// `None` if the producer wrote only markers in this epoch.
    pub(crate) base_offset: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Producer {
    epoch: i16,
    /// Oldest first.
    batches: VecDeque<Written>,
    /// First offset of its open transaction.
    transaction: Option<i64>,
    last_unix_ms: i64,
    /// Owner that sent its first batch since the opening. Not in checkpoints.
    owner: Owner,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Producers {
    by_id: BTreeMap<i64, Producer>,
    shares: Shares,
    /// First offsets of open transactions. Each read queries the minimum.
    open: BTreeSet<i64>,
    /// Transactions whose marker may not be stable yet, oldest first: offset of the marker and
    /// first offset of the transaction.
    ended: VecDeque<(i64, i64)>,
    /// First rejected batch of each unknown producer. Batches that were in flight behind it must
    /// not be accepted as its first. Not in checkpoints: connections end with the process, and
    /// producers then resend all unacknowledged batches.
    refused: BTreeMap<i64, Refused>,
    /// Markers since the opening, oldest first: producer and offset. Not in checkpoints, because
    /// admissions before an opening are repeated.
    markers: VecDeque<(i64, i64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refused {
    epoch: i16,
    base_sequence: i32,
}

impl Producers {
    /// Checks whether a batch of this owner may be appended. Returns its base offset if it is a
    /// duplicate.
    pub(crate) fn check(&self, batch: &BatchHeader, owner: Owner) -> Result<Option<i64>, LogError> {
        if !batch.has_producer() {
            return Ok(None);
        }
        let Some(producer) = self.by_id.get(&batch.producer_id) else {
            return self.check_unknown(batch, owner).map(|()| None);
        };
        if batch.producer_epoch < producer.epoch {
            let what = format!(
                "producer {} of epoch {} was fenced by epoch {}",
                batch.producer_id, batch.producer_epoch, producer.epoch
            );
            return Err(LogError::new(LogErrorKind::FencedProducer, what));
        }
        if batch.is_control() {
            return Ok(None);
        }
        if producer.transaction.is_some() && !batch.is_transactional() {
            let what = format!("producer {} has an open transaction", batch.producer_id);
            return Err(LogError::new(LogErrorKind::TransactionState, what));
        }
        producer.check_sequence(batch)
    }

    /// Records that a batch could not be written.
    pub(crate) fn note_refused(&mut self, batch: &BatchHeader) {
        let is_first = batch.has_producer()
            && !batch.is_control()
            && !self.by_id.contains_key(&batch.producer_id);
        // A later rejected batch of the same producer does not replace the first.
        let is_noted = self.refused.get(&batch.producer_id).is_some_and(|it| {
            it.epoch == batch.producer_epoch && it.base_sequence <= batch.base_sequence
        });
        if is_first && !is_noted {
            if self.refused.len() == REFUSED_COUNT_MAX {
                self.refused.pop_first();
            }
            let (epoch, base_sequence) = (batch.producer_epoch, batch.base_sequence);
            self.refused.insert(batch.producer_id, Refused { epoch, base_sequence });
        }
    }

    /// Updates the state with a batch that was appended or found in the log. Returns the
    /// transaction that it aborts, if any.
    pub(crate) fn note(
        &mut self,
        batch: &BatchHeader,
        marker: Option<Marker>,
        noted: Noted,
    ) -> Option<Aborted> {
        if !batch.has_producer() {
            return None;
        }
        let Noted { unix_ms, owner } = noted;
        if !self.by_id.contains_key(&batch.producer_id) {
            if self.by_id.len() >= PRODUCER_COUNT_MAX && batch.is_control() {
                // It ends no transaction here, and its coordinator admits no more batches of that
                // epoch.
                return None;
            }
            if self.by_id.len() >= PRODUCER_COUNT_MAX + FOUND_BESIDE_MAX {
                self.forget_the_first();
            }
            self.shares.take(owner, 1);
        }
        self.refused.remove(&batch.producer_id);
        let producer = self.by_id.entry(batch.producer_id).or_insert_with(|| Producer {
            epoch: batch.producer_epoch,
            batches: VecDeque::new(),
            transaction: None,
            last_unix_ms: unix_ms,
            owner,
        });
        producer.last_unix_ms = unix_ms;
        if producer.owner == Owner::NOBODY && owner != Owner::NOBODY {
            // The producer was found by an opening or created by a marker.
            producer.owner = owner;
            self.shares.give_back(Owner::NOBODY, 1);
            self.shares.take(owner, 1);
        }
        if batch.producer_epoch != producer.epoch {
            producer.epoch = batch.producer_epoch;
            producer.batches.clear();
        }
        if batch.is_control() {
            let first_offset = producer.transaction.take()?;
            self.open.remove(&first_offset);
            self.ended.push_back((batch.base_offset, first_offset));
            return (marker == Some(Marker::Abort)).then_some(Aborted {
                producer_id: batch.producer_id,
                first_offset,
                last_offset: batch.last_offset(),
            });
        }
        if batch.is_transactional() && producer.transaction.is_none() {
            producer.transaction = Some(batch.base_offset);
            self.open.insert(batch.base_offset);
        }
        if producer.batches.len() == BATCHES_REMEMBERED {
            producer.batches.pop_front();
        }
        producer.batches.push_back(Written {
            base_sequence: batch.base_sequence,
            last_sequence: batch.last_sequence(),
            base_offset: batch.base_offset,
        });
        None
    }

    pub(crate) fn last_batches(&self) -> Vec<LastBatch> {
        let last = |(id, producer): (&i64, &Producer)| LastBatch {
            producer_id: *id,
            epoch: producer.epoch,
            base_offset: producer.batches.back().map(|it| it.base_offset),
        };
        self.by_id.iter().map(last).collect()
    }

    /// Iterates over all remembered producers, by id.
    pub(crate) fn states(&self) -> impl Iterator<Item = ProducerState> + '_ {
        self.by_id.iter().map(|(id, producer)| ProducerState {
            producer_id: *id,
            epoch: producer.epoch,
            last_sequence: producer.batches.back().map_or(-1, |last| last.last_sequence),
            last_unix_ms: producer.last_unix_ms,
            transaction_offset: producer.transaction,
        })
    }

    /// Returns whether the producer has a transaction open in this epoch.
    pub(crate) fn is_in_transaction(&self, producer_id: i64, epoch: i16) -> bool {
        let producer = self.by_id.get(&producer_id);
        producer.is_some_and(|it| it.epoch == epoch && it.transaction.is_some())
    }

    /// Records an appended marker.
    pub(crate) fn note_marker(&mut self, marker: &BatchHeader) {
        if self.markers.len() == MARKERS_REMEMBERED {
            self.markers.pop_front();
        }
        self.markers.push_back((marker.producer_id, marker.base_offset));
    }

    /// Returns whether certainly no transaction of the producer ended at or after an offset.
    /// Returns `false` if too many markers were appended since.
    pub(crate) fn has_ended_none_since(&self, producer_id: i64, offset: i64) -> bool {
        let is_known = self.markers.len() < MARKERS_REMEMBERED
            || self.markers.front().is_some_and(|(_, oldest)| *oldest < offset);
        let since = |(id, at): &(i64, i64)| *id == producer_id && *at >= offset;
        is_known && !self.markers.iter().any(since)
    }

    /// Marks everything before the offset as stable, including markers.
    pub(crate) fn note_stable(&mut self, stable_offset: i64) {
        let count = self.ended.partition_point(|(marker, _)| *marker < stable_offset);
        self.ended.drain(..count);
    }

    /// Returns the first offset of a transaction without a stable marker, as Kafka's
    /// `ProducerStateManager.firstUnstableOffset`.
    pub(crate) fn first_open_offset(&self) -> Option<i64> {
        let ended = self.ended.iter().map(|(_, first_offset)| *first_offset);
        ended.chain(self.open.first().copied()).min()
    }

    /// Forgets idle producers without an open transaction. An unknown last append counts as now.
    pub(crate) fn forget_idle(&mut self, now_unix_ms: i64, idle_ms: i64) {
        let since_unix_ms = now_unix_ms.saturating_sub(idle_ms);
        let shares = &mut self.shares;
        self.by_id.retain(|_, it| {
            if it.last_unix_ms == TIME_UNKNOWN {
                it.last_unix_ms = now_unix_ms;
            }
            let is_kept = it.transaction.is_some() || it.last_unix_ms >= since_unix_ms;
            if !is_kept {
                shares.give_back(it.owner, 1);
            }
            is_kept
        });
    }

    /// A forgotten producer may continue with any sequence number.
    fn check_unknown(&self, batch: &BatchHeader, owner: Owner) -> Result<(), LogError> {
        if batch.is_control() {
            return Ok(());
        }
        let before = self.refused.get(&batch.producer_id);
        if let Some(refused) = before.filter(|it| it.epoch == batch.producer_epoch)
            && refused.base_sequence < batch.base_sequence
        {
            return Err(out_of_order(batch, refused.base_sequence));
        }
        if !self.shares.has_room(owner, 1, PRODUCER_COUNT_MAX) {
            let what = format!(
                "cannot accept producer {}: the partition remembers {} others, each until a day \
                 after its last record; reuse producers instead of creating new ones",
                batch.producer_id,
                self.by_id.len()
            );
            return Err(LogError::new(LogErrorKind::TooManyProducers, what));
        }
        Ok(())
    }

    /// Forgets found producers whose last batches come first in the log. So many others have
    /// followed that they had been forgotten as idle before.
    fn forget_the_first(&mut self) {
        let last = |it: &Producer| it.batches.back().map_or(-1, |batch| batch.base_offset);
        let decided = self.by_id.iter().filter(|(_, it)| it.transaction.is_none());
        let mut all: Vec<(i64, i64)> = decided.map(|(id, it)| (last(it), *id)).collect();
        all.sort_unstable();
        for (_, id) in all.into_iter().take(FOUND_BESIDE_MAX) {
            let gone = self.by_id.remove(&id);
            self.shares.give_back(gone.map_or(Owner::NOBODY, |it| it.owner), 1);
        }
    }

    /// Returns the approximate size of the output of [`Producers::put`].
    pub(crate) fn size_bytes(&self) -> usize {
        const PRODUCER_BYTES: usize = 30 + BATCHES_REMEMBERED * 16;
        self.by_id.len() * PRODUCER_BYTES
    }

    pub(crate) fn put(&self, into: &mut Vec<u8>) {
        let producers: Vec<_> = self.by_id.iter().collect();
        put_list(into, &producers, |into, (id, producer)| {
            into.extend(id.to_le_bytes());
            into.extend(producer.epoch.to_le_bytes());
            into.extend(producer.last_unix_ms.to_le_bytes());
            into.extend(producer.transaction.unwrap_or(-1).to_le_bytes());
            let batches: Vec<Written> = producer.batches.iter().copied().collect();
            put_list(into, &batches, |into, batch| {
                into.extend(batch.base_sequence.to_le_bytes());
                into.extend(batch.last_sequence.to_le_bytes());
                into.extend(batch.base_offset.to_le_bytes());
            });
        });
    }

    pub(crate) fn take(fields: &mut Fields<'_>) -> Option<Self> {
        let list = fields.list(|fields| {
            let id = fields.i64()?;
            let epoch = fields.i16()?;
            let last_unix_ms = fields.i64()?;
            let transaction = Some(fields.i64()?).filter(|offset| *offset >= 0);
            let batches = fields.list(|fields| {
                Some(Written {
                    base_sequence: fields.i32()?,
                    last_sequence: fields.i32()?,
                    base_offset: fields.i64()?,
                })
            })?;
            let (batches, owner) = (batches.into(), Owner::NOBODY);
            Some((id, Producer { epoch, batches, transaction, last_unix_ms, owner }))
        })?;
        let by_id: BTreeMap<i64, Producer> = list.into_iter().collect();
        let open = by_id.values().filter_map(|producer| producer.transaction).collect();
        let mut shares = Shares::default();
        shares.take(Owner::NOBODY, by_id.len());
        Some(Self { by_id, shares, open, ..Self::default() })
    }
}

impl Producer {
    fn check_sequence(&self, batch: &BatchHeader) -> Result<Option<i64>, LogError> {
        let (first, last) = (batch.base_sequence, batch.last_sequence());
        if batch.producer_epoch > self.epoch || self.batches.is_empty() {
            // A new epoch starts at sequence number 0, even if a marker introduced it.
            return if first == 0 { Ok(None) } else { Err(out_of_order(batch, 0)) };
        }
        let same = |it: &&Written| it.base_sequence == first && it.last_sequence == last;
        if let Some(earlier) = self.batches.iter().find(same) {
            return Ok(Some(earlier.base_offset));
        }
        let expected = self.batches.back().map_or(0, |it| sequence_after(it.last_sequence, 1));
        if first == expected {
            return Ok(None);
        }
        // Even a lower sequence number is no proof of a duplicate unless the batch is remembered.
        // Clients treat a duplicate as a success.
        Err(out_of_order(batch, expected))
    }
}

fn out_of_order(batch: &BatchHeader, expected: i32) -> LogError {
    let what = format!(
        "out of order sequence number for producer {}: got {}, expected {expected}",
        batch.producer_id, batch.base_sequence
    );
    LogError::new(LogErrorKind::OutOfOrderSequence, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSACTIONAL: i16 = 1 << 4;
    const CONTROL: i16 = TRANSACTIONAL | 1 << 5;
    const OWNER: Owner = Owner(1);

    fn at(unix_ms: i64) -> Noted {
        Noted { unix_ms, owner: Owner::NOBODY }
    }

    fn batch(epoch: i16, base_sequence: i32, base_offset: i64) -> BatchHeader {
        BatchHeader {
            base_offset,
            size_bytes: 100,
            epoch: 0,
            attributes: 0,
            last_offset_delta: 9,
            base_timestamp: 0,
            max_timestamp: 0,
            producer_id: 3,
            producer_epoch: epoch,
            base_sequence,
            record_count: 10,
        }
    }

    fn written(count: i32) -> Producers {
        let mut producers = Producers::default();
        for index in 0..count {
            let batch = batch(0, 10 * index, i64::from(100 * index));
            assert_eq!(producers.check(&batch, OWNER).expect("in order"), None);
            assert_eq!(producers.note(&batch, None, at(0)), None);
        }
        producers
    }

    #[track_caller]
    fn check(batch: &BatchHeader, expected: Result<Option<i64>, LogErrorKind>) {
        let producers = written(7);
        assert_eq!(producers.check(batch, OWNER).map_err(|error| error.kind), expected);
    }

    #[test]
    fn batches_come_in_order_once() {
        check(&batch(0, 70, 700), Ok(None));
        for index in 2..7 {
            check(&batch(0, 10 * index, 9999), Ok(Some(i64::from(100 * index))));
        }
        for sequence in [10, 80, 65, 61, i32::MAX] {
            check(&batch(0, sequence, 9999), Err(LogErrorKind::OutOfOrderSequence));
        }
    }

    #[test]
    fn a_later_incarnation_begins_at_nought_and_fences_the_earlier() {
        check(&batch(1, 0, 700), Ok(None));
        check(&batch(1, 5, 700), Err(LogErrorKind::OutOfOrderSequence));
        let mut producers = written(1);
        producers.note(&batch(1, 0, 10), None, at(0));
        let error = producers.check(&batch(0, 10, 20), OWNER).expect_err("the earlier one");
        assert_eq!(error.kind, LogErrorKind::FencedProducer);
    }

    #[test]
    fn an_incarnation_that_a_marker_began_begins_at_nought_too() {
        let end = BatchHeader { attributes: CONTROL, last_offset_delta: 0, ..batch(1, -1, 70) };
        for mut producers in [written(7), Producers::default()] {
            producers.note(&end, Some(Marker::Commit), at(0));
            let error = producers.check(&batch(1, 10, 71), OWNER).expect_err("one is missing");
            assert_eq!(error.kind, LogErrorKind::OutOfOrderSequence);
            assert_eq!(producers.check(&batch(1, 0, 71), OWNER).expect("it is the first"), None);
            let error = producers.check(&batch(0, 70, 71), OWNER).expect_err("it has ended");
            assert_eq!(error.kind, LogErrorKind::FencedProducer);
        }
    }

    #[test]
    fn a_marker_may_come_again() {
        let mut producers = written(1);
        producers.note(&BatchHeader { attributes: TRANSACTIONAL, ..batch(0, 10, 10) }, None, at(0));
        let end = BatchHeader { attributes: CONTROL, last_offset_delta: 0, ..batch(1, -1, 20) };
        assert!(producers.note(&end, Some(Marker::Abort), at(0)).is_some());
        let once = producers.clone();
        assert_eq!(producers.check(&end, OWNER).expect("it is not older"), None);
        assert_eq!(producers.note(&end, Some(Marker::Abort), at(0)), None);
        assert_eq!(producers, once);
    }

    #[test]
    fn a_producer_that_is_not_known_goes_on_with_any_number() {
        let producers = Producers::default();
        assert_eq!(producers.check(&batch(3, 500, 0), OWNER).expect("it was forgotten"), None);
    }

    #[test]
    fn what_comes_behind_a_first_batch_that_was_refused_is_refused_too() {
        let mut producers = Producers::default();
        producers.note_refused(&batch(0, 0, 0));
        producers.note_refused(&batch(0, 10, 0));
        let error = producers.check(&batch(0, 10, 0), OWNER).expect_err("one is missing");
        assert_eq!(error.kind, LogErrorKind::OutOfOrderSequence);
        // A batch of another epoch has superseded it.
        assert_eq!(producers.check(&batch(1, 10, 0), OWNER).expect("it was forgotten"), None);
        assert_eq!(producers.check(&batch(0, 0, 0), OWNER).expect("it comes again"), None);
        producers.note(&batch(0, 0, 0), None, at(0));
        assert_eq!(producers.check(&batch(0, 10, 10), OWNER).expect("it is next"), None);
        assert!(producers.refused.is_empty());
        for id in 0..2 * i64::try_from(REFUSED_COUNT_MAX).expect("small") {
            producers.note_refused(&BatchHeader { producer_id: id, ..batch(0, 0, 0) });
        }
        assert_eq!(producers.refused.len(), REFUSED_COUNT_MAX);
    }

    /// Writes the first batch of consecutive producers until an owner has reached its limit.
    fn write_all(producers: &mut Producers, owner: Owner, ids: std::ops::Range<i64>) -> i64 {
        for id in ids.clone() {
            let first = BatchHeader { producer_id: id, ..batch(0, 0, id) };
            match producers.check(&first, owner) {
                Ok(_) => producers.note(&first, None, Noted { unix_ms: id, owner }),
                Err(error) => {
                    assert_eq!(error.kind, LogErrorKind::TooManyProducers);
                    return id - ids.start;
                }
            };
        }
        ids.end - ids.start
    }

    #[test]
    fn no_number_of_producers_has_a_batch_stored_twice_or_keeps_others_out() {
        let mut producers = Producers::default();
        let most = i64::try_from(PRODUCER_COUNT_MAX).expect("small");
        assert_eq!(write_all(&mut producers, OWNER, 0..most), most / 2);
        assert_eq!(write_all(&mut producers, Owner(2), most..2 * most), most / 4);
        for id in [0, most / 2 - 1, most] {
            let again = BatchHeader { producer_id: id, ..batch(0, 0, 0) };
            assert_eq!(producers.check(&again, OWNER).expect("a repeat"), Some(id));
            let next = BatchHeader { base_sequence: 10, ..again };
            assert_eq!(producers.check(&next, OWNER).expect("it goes on"), None);
        }
        // Markers are accepted, but beyond the limit they create no producer.
        let end = |id| BatchHeader { producer_id: id, attributes: CONTROL, ..batch(1, -1, 0) };
        for id in 0..most {
            producers.note(&end(2 * most + id), Some(Marker::Abort), at(0));
        }
        assert_eq!(producers.by_id.len(), PRODUCER_COUNT_MAX);
        assert_eq!(producers.check(&end(0), OWNER).expect("a marker"), None);
        producers.forget_idle(most, 0);
        assert_eq!(write_all(&mut producers, OWNER, 0..most), most / 8 * 3, "time makes room");
    }

    #[test]
    fn a_producer_that_an_opening_found_is_of_whoever_uses_it() {
        let mut producers = Producers::default();
        producers.note(&batch(0, 0, 0), None, Noted::FOUND);
        let used = Noted { unix_ms: 1, owner: OWNER };
        producers.note(&batch(0, 10, 10), None, used);
        producers.note(&batch(0, 20, 20), None, Noted { owner: Owner(2), ..used });
        let mut own = Shares::default();
        own.take(OWNER, 1);
        assert_eq!(producers.shares, own);
    }

    #[test]
    fn an_opening_forgets_the_first_of_too_many_producers() {
        let mut producers = Producers::default();
        let most = i64::try_from(PRODUCER_COUNT_MAX + FOUND_BESIDE_MAX).expect("small");
        for id in 0..=most {
            producers.note(&BatchHeader { producer_id: most - id, ..batch(0, 0, id) }, None, at(0));
        }
        let first = i64::try_from(FOUND_BESIDE_MAX).expect("small");
        assert_eq!(producers.by_id.len(), PRODUCER_COUNT_MAX + 1);
        assert!(!producers.by_id.contains_key(&(most + 1 - first)));
        assert!(producers.by_id.contains_key(&(most - first)));
        assert_eq!(producers.shares.total(), producers.by_id.len());
    }

    #[test]
    fn sequences_go_on_at_nought_after_the_largest() {
        let mut producers = Producers::default();
        producers.note(&batch(0, i32::MAX - 9, 0), None, at(0));
        assert_eq!(producers.check(&batch(0, 0, 10), OWNER).expect("it is next"), None);
    }

    #[test]
    fn a_transaction_is_open_from_its_first_batch_to_its_marker() {
        for (marker, aborted) in [(Marker::Abort, 1), (Marker::Commit, 0)] {
            let mut producers = Producers::default();
            let first = BatchHeader { attributes: TRANSACTIONAL, ..batch(0, 0, 50) };
            producers.note(&first, None, at(0));
            assert_eq!(producers.first_open_offset(), Some(50));
            let error = producers.check(&batch(0, 10, 60), OWNER).expect_err("outside of it");
            assert_eq!(error.kind, LogErrorKind::TransactionState);
            let end = BatchHeader {
                attributes: CONTROL,
                last_offset_delta: 0,
                base_sequence: -1,
                ..batch(0, 0, 70)
            };
            assert_eq!(producers.check(&end, OWNER).expect("markers have no sequence"), None);
            let found: Vec<Aborted> =
                producers.note(&end, Some(marker), at(0)).into_iter().collect();
            assert_eq!(found.len(), aborted);
            for it in found {
                assert_eq!((it.first_offset, it.last_offset), (50, 70));
            }
            for (stable_offset, open) in [(70, Some(50)), (71, None)] {
                producers.note_stable(stable_offset);
                assert_eq!(producers.first_open_offset(), open);
            }
        }
    }

    #[test]
    fn producers_come_back_from_a_checkpoint() {
        let mut producers = written(7);
        producers.note(&BatchHeader { attributes: TRANSACTIONAL, ..batch(0, 70, 70) }, None, at(5));
        let mut bytes = Vec::new();
        producers.put(&mut bytes);
        let mut fields = Fields(&bytes);
        assert_eq!(Producers::take(&mut fields), Some(producers));
        assert!(fields.0.is_empty());
    }

    #[test]
    fn producers_are_forgotten_when_they_wrote_nothing_for_long() {
        let mut producers = Producers::default();
        let one = |id| BatchHeader { producer_id: id, ..batch(0, 0, 0) };
        producers.note(&one(1), None, at(1_000));
        producers.note(&one(2), None, at(1_001));
        producers.note(&BatchHeader { attributes: TRANSACTIONAL, ..one(3) }, None, at(0));
        producers.note(&one(4), None, at(TIME_UNKNOWN));
        let ids = |it: &Producers| it.by_id.keys().copied().collect::<Vec<_>>();
        producers.forget_idle(1_101, 100);
        assert_eq!(ids(&producers), [2, 3, 4]);
        producers.forget_idle(1_201, 100);
        assert_eq!(ids(&producers), [3, 4], "one that was found counts from the first look on");
        producers.forget_idle(1_202, 100);
        assert_eq!(ids(&producers), [3]);
    }
}
