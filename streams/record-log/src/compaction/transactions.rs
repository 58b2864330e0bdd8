//! Transactions during a pass: aborted batches, and markers whose transactions still have records.

use std::collections::{BTreeMap, BTreeSet};

use record_batch::BatchHeader;

use crate::producers::{Aborted, LastBatch};

/// Batches of aborted transactions in a range of offsets.
#[derive(Debug, Default)]
pub(crate) struct AbortedBatches {
    by_producer: BTreeMap<i64, Vec<Aborted>>,
}

impl AbortedBatches {
    pub(crate) fn new(aborted: Vec<Aborted>) -> Self {
        let mut by_producer: BTreeMap<i64, Vec<Aborted>> = BTreeMap::new();
        for it in aborted {
            by_producer.entry(it.producer_id).or_default().push(it);
        }
        by_producer.values_mut().for_each(|list| list.sort_by_key(|it| it.first_offset));
        Self { by_producer }
    }

    pub(crate) fn contains(&self, batch: &BatchHeader) -> bool {
        if !batch.is_transactional() {
            return false;
        }
        // Transactions of one producer do not overlap.
        self.by_producer.get(&batch.producer_id).is_some_and(|list| {
            let after = list.partition_point(|it| it.first_offset <= batch.base_offset);
            after > 0 && batch.base_offset <= list[after - 1].last_offset
        })
    }
}

/// Producers with records since their last marker, including aborted ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Markers {
    with_records: BTreeSet<i64>,
}

impl Markers {
    pub(crate) fn note_records(&mut self, batch: &BatchHeader) {
        if batch.is_transactional() {
            self.with_records.insert(batch.producer_id);
        }
    }

    /// Returns whether the transaction that the marker ends has records.
    pub(crate) fn end(&mut self, marker: &BatchHeader) -> bool {
        self.with_records.remove(&marker.producer_id)
    }
}

/// Last batch of each remembered producer, and of the log. They are retained, empty if necessary:
/// the last sequence numbers of producers are rebuilt from them, and a consumer reaches the end of
/// the log only through its last batch.
#[derive(Debug)]
pub(crate) struct LastBatches {
    by_producer: BTreeMap<i64, LastBatch>,
    /// Offset after the last batch of the log.
    log_end: i64,
}

impl LastBatches {
    pub(crate) fn new(last: impl Iterator<Item = LastBatch>, log_end: i64) -> Self {
        Self { by_producer: last.map(|it| (it.producer_id, it)).collect(), log_end }
    }

    pub(crate) fn contains(&self, batch: &BatchHeader) -> bool {
        if batch.last_offset() + 1 == self.log_end {
            return true;
        }
        self.by_producer.get(&batch.producer_id).is_some_and(|last| match last.base_offset {
            Some(base_offset) => base_offset == batch.base_offset,
            // The epoch is known from a marker only.
            None => batch.is_control() && batch.producer_epoch == last.epoch,
        })
    }
}
