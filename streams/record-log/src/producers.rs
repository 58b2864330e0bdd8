//! What a partition knows of those who write to it: their incarnation, their last batches and their
//! open transactions. By it no batch is stored twice and none is missed.
//!
//! All of it can be computed from the log, batch by batch; checkpoints only make that shorter.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use record_batch::{BatchHeader, Marker, sequence_after};

use crate::error::{LogError, LogErrorKind};
use crate::layout::{Fields, put_list};

/// Batches of each producer that are recognised when they come again. Clients have as many in
/// flight at most.
const BATCHES_REMEMBERED: usize = 5;

/// Producers that a partition remembers. Beyond it those are forgotten that wrote longest ago.
pub const PRODUCER_COUNT_MAX: usize = 65_536;

/// The time of a batch that an opening found. Its records say when they were made, which may be
/// years before they came.
pub(crate) const TIME_UNKNOWN: i64 = i64::MAX;

/// Markers that are remembered, to know what was admitted before them.
const MARKERS_REMEMBERED: usize = 1_024;

/// Refused first batches that are remembered.
const REFUSED_COUNT_MAX: usize = 1_024;

/// A transaction of which nothing counts. Offsets are those of its first and its last record, the
/// marker included.
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

/// Whether a batch before the last stable offset holds records that count, with all aborted
/// transactions among the offsets of which it is one: see [`crate::Partition::aborted`].
pub fn is_committed(header: &BatchHeader, aborted: &[Aborted]) -> bool {
    let is_aborted = |it: &Aborted| {
        it.producer_id == header.producer_id
            && (it.first_offset..=it.last_offset).contains(&header.base_offset)
    };
    let is_of_aborted = header.is_transactional() && aborted.iter().any(is_aborted);
    !header.is_control() && !is_of_aborted
}

/// A producer that a partition remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerState {
    pub producer_id: i64,
    pub epoch: i16,
    /// Of its last record; -1 where it wrote none in this epoch.
    pub last_sequence: i32,
    pub last_unix_ms: i64,
    /// The first offset of the transaction that is open.
    pub transaction_offset: Option<i64>,
}

/// A batch that a producer wrote not long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    base_sequence: i32,
    last_sequence: i32,
    base_offset: i64,
}

/// The last batch of a producer that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastBatch {
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    /// `None` where its incarnation wrote nothing but markers.
    pub(crate) base_offset: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Producer {
    epoch: i16,
    /// Oldest first.
    batches: VecDeque<Written>,
    /// The first offset of the transaction that is open.
    transaction: Option<i64>,
    last_unix_ms: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Producers {
    by_id: BTreeMap<i64, Producer>,
    /// First offsets of the transactions that are open: each read asks for the lowest.
    open: BTreeSet<i64>,
    /// Transactions whose marker was appended and may not be stable yet, oldest first: the
    /// marker's offset and the transaction's first.
    ended: VecDeque<(i64, i64)>,
    /// Of producers that are not known: a batch that could not be written. What its producer had in
    /// flight behind it must not be taken for a beginning. Not in checkpoints: connections end
    /// with the process, and their producers begin again with what was not acknowledged.
    refused: BTreeMap<i64, Refused>,
    /// Markers that were appended since the opening, oldest first: producer and offset. Not in
    /// checkpoints: what was admitted before an opening is admitted anew.
    markers: VecDeque<(i64, i64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refused {
    epoch: i16,
    base_sequence: i32,
}

impl Producers {
    /// Whether a batch may be appended. `Some` is the offset of its first record where it was
    /// appended before.
    pub(crate) fn check(&self, batch: &BatchHeader) -> Result<Option<i64>, LogError> {
        if !batch.has_producer() {
            return Ok(None);
        }
        let Some(producer) = self.by_id.get(&batch.producer_id) else {
            return self.check_unknown(batch).map(|()| None);
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
            let what = format!("producer {} has a transaction open", batch.producer_id);
            return Err(LogError::new(LogErrorKind::TransactionState, what));
        }
        producer.check_sequence(batch)
    }

    /// Notes that a batch could not be written.
    pub(crate) fn note_refused(&mut self, batch: &BatchHeader) {
        let is_first = batch.has_producer()
            && !batch.is_control()
            && !self.by_id.contains_key(&batch.producer_id);
        // A later one of the same producer, refused too, does not stand for the first.
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

    /// Notes a batch that was appended, or is found in the log. `Some` is the transaction that it
    /// aborts.
    pub(crate) fn note(
        &mut self,
        batch: &BatchHeader,
        marker: Option<Marker>,
        unix_ms: i64,
    ) -> Option<Aborted> {
        if !batch.has_producer() {
            return None;
        }
        if !self.by_id.contains_key(&batch.producer_id) && self.by_id.len() >= PRODUCER_COUNT_MAX {
            self.forget_the_oldest();
        }
        self.refused.remove(&batch.producer_id);
        let producer = self.by_id.entry(batch.producer_id).or_insert_with(|| Producer {
            epoch: batch.producer_epoch,
            batches: VecDeque::new(),
            transaction: None,
            last_unix_ms: unix_ms,
        });
        producer.last_unix_ms = unix_ms;
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

    /// All that are remembered, by id.
    pub(crate) fn states(&self) -> impl Iterator<Item = ProducerState> + '_ {
        self.by_id.iter().map(|(id, producer)| ProducerState {
            producer_id: *id,
            epoch: producer.epoch,
            last_sequence: producer.batches.back().map_or(-1, |last| last.last_sequence),
            last_unix_ms: producer.last_unix_ms,
            transaction_offset: producer.transaction,
        })
    }

    /// Whether the producer has a transaction open in this epoch.
    pub(crate) fn is_in_transaction(&self, producer_id: i64, epoch: i16) -> bool {
        let producer = self.by_id.get(&producer_id);
        producer.is_some_and(|it| it.epoch == epoch && it.transaction.is_some())
    }

    /// Notes a marker that was appended.
    pub(crate) fn note_marker(&mut self, marker: &BatchHeader) {
        if self.markers.len() == MARKERS_REMEMBERED {
            self.markers.pop_front();
        }
        self.markers.push_back((marker.producer_id, marker.base_offset));
    }

    /// Whether no transaction of the producer ended at an offset from this one on; also not where
    /// so much has ended since that it is not known.
    pub(crate) fn has_ended_none_since(&self, producer_id: i64, offset: i64) -> bool {
        let is_known = self.markers.len() < MARKERS_REMEMBERED
            || self.markers.front().is_some_and(|(_, oldest)| *oldest < offset);
        let since = |(id, at): &(i64, i64)| *id == producer_id && *at >= offset;
        is_known && !self.markers.iter().any(since)
    }

    /// Everything before the offset is stable, markers included.
    pub(crate) fn note_stable(&mut self, stable_offset: i64) {
        let count = self.ended.partition_point(|(marker, _)| *marker < stable_offset);
        self.ended.drain(..count);
    }

    /// The first offset that belongs to a transaction without a stable marker, as Kafka's
    /// `ProducerStateManager.firstUnstableOffset`.
    pub(crate) fn first_open_offset(&self) -> Option<i64> {
        let ended = self.ended.iter().map(|(_, first_offset)| *first_offset);
        ended.chain(self.open.first().copied()).min()
    }

    /// Forgets those that wrote nothing for so long, but for those with an open transaction.
    /// Where that is not known, it is from now on.
    pub(crate) fn forget_idle(&mut self, now_unix_ms: i64, idle_ms: i64) {
        let since_unix_ms = now_unix_ms.saturating_sub(idle_ms);
        self.by_id.retain(|_, it| {
            if it.last_unix_ms == TIME_UNKNOWN {
                it.last_unix_ms = now_unix_ms;
            }
            it.transaction.is_some() || it.last_unix_ms >= since_unix_ms
        });
    }

    /// A producer that was forgotten goes on with any number.
    fn check_unknown(&self, batch: &BatchHeader) -> Result<(), LogError> {
        if batch.is_control() {
            return Ok(());
        }
        let before = self.refused.get(&batch.producer_id);
        if let Some(refused) = before.filter(|it| it.epoch == batch.producer_epoch)
            && refused.base_sequence < batch.base_sequence
        {
            return Err(out_of_order(batch, refused.base_sequence));
        }
        let is_full = self.by_id.len() >= PRODUCER_COUNT_MAX;
        if is_full && self.by_id.values().all(|it| it.transaction.is_some()) {
            let what = format!(
                "cannot take producer {}: {PRODUCER_COUNT_MAX} others have transactions open",
                batch.producer_id
            );
            return Err(LogError::new(LogErrorKind::NoSpace, what));
        }
        Ok(())
    }

    /// An eighth at once, so that each new producer does not cost a search.
    fn forget_the_oldest(&mut self) {
        let mut times: Vec<(i64, i64)> = self
            .by_id
            .iter()
            .filter(|(_, producer)| producer.transaction.is_none())
            .map(|(id, producer)| (producer.last_unix_ms, *id))
            .collect();
        times.sort_unstable();
        for (_, id) in times.into_iter().take(PRODUCER_COUNT_MAX / 8) {
            self.by_id.remove(&id);
        }
    }

    /// About what [`Producers::put`] writes.
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
            Some((id, Producer { epoch, batches: batches.into(), transaction, last_unix_ms }))
        })?;
        let by_id: BTreeMap<i64, Producer> = list.into_iter().collect();
        let open = by_id.values().filter_map(|producer| producer.transaction).collect();
        Some(Self {
            by_id,
            open,
            ended: VecDeque::new(),
            refused: BTreeMap::new(),
            markers: VecDeque::new(),
        })
    }
}

impl Producer {
    fn check_sequence(&self, batch: &BatchHeader) -> Result<Option<i64>, LogError> {
        let (first, last) = (batch.base_sequence, batch.last_sequence());
        if batch.producer_epoch > self.epoch || self.batches.is_empty() {
            // A new incarnation begins at 0, also one that a marker made known.
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
        // Also where it is before the expected one: clients take a duplicate for a success, and
        // none that is not remembered is known to have been written.
        Err(out_of_order(batch, expected))
    }
}

fn out_of_order(batch: &BatchHeader, expected: i32) -> LogError {
    let what = format!(
        "producer {} wrote sequence {}; {expected} is next",
        batch.producer_id, batch.base_sequence
    );
    LogError::new(LogErrorKind::OutOfOrderSequence, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSACTIONAL: i16 = 1 << 4;
    const CONTROL: i16 = TRANSACTIONAL | 1 << 5;

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
            assert_eq!(producers.check(&batch).expect("in order"), None);
            assert_eq!(producers.note(&batch, None, 0), None);
        }
        producers
    }

    #[track_caller]
    fn check(batch: &BatchHeader, expected: Result<Option<i64>, LogErrorKind>) {
        let producers = written(7);
        assert_eq!(producers.check(batch).map_err(|error| error.kind), expected);
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
        producers.note(&batch(1, 0, 10), None, 0);
        let error = producers.check(&batch(0, 10, 20)).expect_err("the earlier one");
        assert_eq!(error.kind, LogErrorKind::FencedProducer);
    }

    #[test]
    fn an_incarnation_that_a_marker_began_begins_at_nought_too() {
        let end = BatchHeader { attributes: CONTROL, last_offset_delta: 0, ..batch(1, -1, 70) };
        for mut producers in [written(7), Producers::default()] {
            producers.note(&end, Some(Marker::Commit), 0);
            let error = producers.check(&batch(1, 10, 71)).expect_err("one is missing");
            assert_eq!(error.kind, LogErrorKind::OutOfOrderSequence);
            assert_eq!(producers.check(&batch(1, 0, 71)).expect("it is the first"), None);
            let error = producers.check(&batch(0, 70, 71)).expect_err("it has ended");
            assert_eq!(error.kind, LogErrorKind::FencedProducer);
        }
    }

    #[test]
    fn a_marker_may_come_again() {
        let mut producers = written(1);
        producers.note(&BatchHeader { attributes: TRANSACTIONAL, ..batch(0, 10, 10) }, None, 0);
        let end = BatchHeader { attributes: CONTROL, last_offset_delta: 0, ..batch(1, -1, 20) };
        assert!(producers.note(&end, Some(Marker::Abort), 0).is_some());
        let once = producers.clone();
        assert_eq!(producers.check(&end).expect("it is not older"), None);
        assert_eq!(producers.note(&end, Some(Marker::Abort), 0), None);
        assert_eq!(producers, once);
    }

    #[test]
    fn a_producer_that_is_not_known_goes_on_with_any_number() {
        let producers = Producers::default();
        assert_eq!(producers.check(&batch(3, 500, 0)).expect("it was forgotten"), None);
    }

    #[test]
    fn what_comes_behind_a_first_batch_that_was_refused_is_refused_too() {
        let mut producers = Producers::default();
        producers.note_refused(&batch(0, 0, 0));
        producers.note_refused(&batch(0, 10, 0));
        let error = producers.check(&batch(0, 10, 0)).expect_err("one is missing");
        assert_eq!(error.kind, LogErrorKind::OutOfOrderSequence);
        // Another incarnation has given it up.
        assert_eq!(producers.check(&batch(1, 10, 0)).expect("it was forgotten"), None);
        assert_eq!(producers.check(&batch(0, 0, 0)).expect("it comes again"), None);
        producers.note(&batch(0, 0, 0), None, 0);
        assert_eq!(producers.check(&batch(0, 10, 10)).expect("it is next"), None);
        assert!(producers.refused.is_empty());
        for id in 0..2 * i64::try_from(REFUSED_COUNT_MAX).expect("small") {
            producers.note_refused(&BatchHeader { producer_id: id, ..batch(0, 0, 0) });
        }
        assert_eq!(producers.refused.len(), REFUSED_COUNT_MAX);
    }

    #[test]
    fn producers_with_open_transactions_are_not_forgotten_but_limited() {
        let mut producers = Producers::default();
        let open =
            |id| BatchHeader { producer_id: id, attributes: TRANSACTIONAL, ..batch(0, 0, 0) };
        let most = i64::try_from(PRODUCER_COUNT_MAX).expect("small");
        for id in 0..most {
            producers.note(&open(id), None, id);
        }
        let error = producers.check(&open(most)).expect_err("there are too many");
        assert_eq!(error.kind, LogErrorKind::NoSpace);
        assert_eq!(producers.check(&BatchHeader { base_sequence: 10, ..open(0) }).ok(), Some(None));
        let end = BatchHeader { attributes: CONTROL, ..open(0) };
        assert_eq!(producers.check(&end).ok(), Some(None));
        producers.note(&end, Some(Marker::Abort), 0);
        assert_eq!(producers.check(&open(most)).ok(), Some(None));
    }

    #[test]
    fn sequences_go_on_at_nought_after_the_largest() {
        let mut producers = Producers::default();
        producers.note(&batch(0, i32::MAX - 9, 0), None, 0);
        assert_eq!(producers.check(&batch(0, 0, 10)).expect("it is next"), None);
    }

    #[test]
    fn a_transaction_is_open_from_its_first_batch_to_its_marker() {
        for (marker, aborted) in [(Marker::Abort, 1), (Marker::Commit, 0)] {
            let mut producers = Producers::default();
            let first = BatchHeader { attributes: TRANSACTIONAL, ..batch(0, 0, 50) };
            producers.note(&first, None, 0);
            assert_eq!(producers.first_open_offset(), Some(50));
            let error = producers.check(&batch(0, 10, 60)).expect_err("outside of it");
            assert_eq!(error.kind, LogErrorKind::TransactionState);
            let end = BatchHeader {
                attributes: CONTROL,
                last_offset_delta: 0,
                base_sequence: -1,
                ..batch(0, 0, 70)
            };
            assert_eq!(producers.check(&end).expect("markers have no sequence"), None);
            let found: Vec<Aborted> = producers.note(&end, Some(marker), 0).into_iter().collect();
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
        producers.note(&BatchHeader { attributes: TRANSACTIONAL, ..batch(0, 70, 70) }, None, 5);
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
        producers.note(&one(1), None, 1_000);
        producers.note(&one(2), None, 1_001);
        producers.note(&BatchHeader { attributes: TRANSACTIONAL, ..one(3) }, None, 0);
        producers.note(&one(4), None, TIME_UNKNOWN);
        let ids = |it: &Producers| it.by_id.keys().copied().collect::<Vec<_>>();
        producers.forget_idle(1_101, 100);
        assert_eq!(ids(&producers), [2, 3, 4]);
        producers.forget_idle(1_201, 100);
        assert_eq!(ids(&producers), [3, 4], "one that was found counts from the first look on");
        producers.forget_idle(1_202, 100);
        assert_eq!(ids(&producers), [3]);
    }

    #[test]
    fn too_many_producers_forget_the_oldest() {
        let mut producers = Producers::default();
        let one = |id| BatchHeader { producer_id: id, ..batch(0, 0, 0) };
        let most = i64::try_from(PRODUCER_COUNT_MAX).expect("small");
        for id in 0..=most {
            producers.note(&one(id), None, id);
        }
        assert!(producers.by_id.len() <= PRODUCER_COUNT_MAX);
        assert!(!producers.by_id.contains_key(&0) && producers.by_id.contains_key(&most));
    }
}
