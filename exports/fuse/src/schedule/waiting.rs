//! Slots for work that may wait for a disk, and the queue of flushes that wait for a slot.
//!
//! Such work occupies a worker for as long as the disk takes. There are fewer slots than workers,
//! so that one worker always remains for reads and writes. Flushes without a slot are queued in
//! preallocated memory. Each worker that becomes free takes all queued flushes of one file, for
//! which one flush of the device is sufficient.
//!
//! The lock is held for a few instructions, and no other lock is taken meanwhile.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::leadership::WORKER_COUNT_MAX;
use crate::in_flight::{FLUSHES_MAX, Flush, FlushTable};

/// Maximum number of queued flushes. Each belongs to a process or device that waits for it.
const WAITING_MAX: usize = 4096;

/// Maximum number of flushes that are answered together.
pub(crate) const BATCH_MAX: usize = 64;

// The table has room for queued flushes and for those that are about to be answered.
const _: () = assert!(WAITING_MAX + WORKER_COUNT_MAX * BATCH_MAX <= FLUSHES_MAX);

/// Placeholder for unused memory.
const NO_FLUSH: Flush =
    Flush { unique: 0, node: 0, written_bytes: None, may_wait: true, entry: None };

/// Result of requesting a slot for a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The worker has a slot and does the flush.
    Taken,
    /// The flush is queued, and another worker does it.
    Waits,
    /// The queue is full. The worker does the flush without a slot.
    NoRoom,
}

#[derive(Debug)]
pub(super) struct WaitingFlushes {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free_places: usize,
    waiting: VecDeque<Flush>,
    /// Table of all queued flushes and those that are about to be answered.
    kept: FlushTable,
}

impl WaitingFlushes {
    /// `unanswered`: flushes of an earlier process, which are queued from the beginning.
    pub(super) fn new(worker_count: usize, kept: FlushTable, unanswered: Vec<Flush>) -> Self {
        // A single worker must do all work.
        let free_places = worker_count.saturating_sub(1).max(1);
        let mut waiting = VecDeque::with_capacity(WAITING_MAX);
        // Touch the pages now, so that no request waits for memory.
        waiting.resize(WAITING_MAX, NO_FLUSH);
        waiting.clear();
        waiting.extend(unanswered);
        Self { state: Mutex::new(State { free_places, waiting, kept }) }
    }

    /// Requests a slot for a flush. A worker that gets a slot must call [`WaitingFlushes::next`]
    /// when it is done.
    pub(super) fn begin(&self, flush: Flush) -> Place {
        let mut state = self.lock();
        if state.free_places > 0 {
            state.free_places -= 1;
            return Place::Taken;
        }
        if state.waiting.len() >= WAITING_MAX {
            return Place::NoRoom;
        }
        // The flush is stored before its worker reuses the message buffer.
        let Some(flush) = state.kept.keep(flush) else { return Place::NoRoom };
        state.waiting.push_back(flush);
        Place::Waits
    }

    /// Takes a slot for other slow work, if one is free. It must also be left by
    /// [`WaitingFlushes::next`].
    pub(super) fn try_take_place(&self) -> bool {
        let mut state = self.lock();
        let is_free = state.free_places > 0;
        state.free_places -= usize::from(is_free);
        is_free
    }

    /// Next work of a worker with a slot. Fills `batch` with the first queued flush and others of
    /// the same file. If `batch` is empty, the slot is free again.
    pub(super) fn next(&self, batch: &mut Vec<Flush>) {
        batch.clear();
        let mut state = self.lock();
        let Some(first) = state.waiting.front().copied() else {
            state.free_places += 1;
            return;
        };
        state.waiting.retain(|flush| {
            let joins = flush.node == first.node && batch.len() < BATCH_MAX;
            if joins {
                batch.push(*flush);
            }
            !joins
        });
    }

    /// Frees the entries of answered flushes.
    pub(super) fn answered(&self, batch: &[Flush]) {
        let mut state = self.lock();
        batch.iter().for_each(|flush| state.kept.free(flush));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of a worker ends the process.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flush(unique: u64, node: u64) -> Flush {
        Flush { unique, node, ..NO_FLUSH }
    }

    fn waiting(worker_count: usize) -> WaitingFlushes {
        WaitingFlushes::new(worker_count, FlushTable::new(), Vec::new())
    }

    fn next(waiting: &WaitingFlushes) -> Vec<u64> {
        let mut batch = Vec::new();
        waiting.next(&mut batch);
        batch.iter().map(|flush| flush.unique).collect()
    }

    #[test]
    fn one_worker_is_always_left() {
        let waiting = waiting(3);
        assert_eq!(waiting.begin(flush(1, 9)), Place::Taken);
        assert!(waiting.try_take_place());
        assert!(!waiting.try_take_place());
        assert_eq!(waiting.begin(flush(2, 9)), Place::Waits);
        assert_eq!(next(&waiting), [2]);
        assert!(next(&waiting).is_empty());
        assert_eq!(waiting.begin(flush(3, 9)), Place::Taken);
    }

    #[test]
    fn a_single_worker_does_everything() {
        assert_eq!(waiting(1).begin(flush(1, 9)), Place::Taken);
    }

    #[test]
    fn flushes_of_one_file_are_done_together_and_in_order() {
        let waiting = waiting(2);
        assert_eq!(waiting.begin(flush(0, 7)), Place::Taken);
        for (unique, node) in [(1, 7), (2, 8), (3, 7), (4, 9), (5, 8)] {
            assert_eq!(waiting.begin(flush(unique, node)), Place::Waits);
        }
        assert_eq!([(); 4].map(|()| next(&waiting)), [vec![1, 3], vec![2, 5], vec![4], vec![]]);
    }

    #[test]
    fn what_waits_is_bounded_and_answered_in_batches() {
        let waiting = waiting(2);
        assert_eq!(waiting.begin(flush(0, 7)), Place::Taken);
        let bound = u64::try_from(WAITING_MAX).expect("a small constant");
        assert!((1..=bound).all(|unique| waiting.begin(flush(unique, 7)) == Place::Waits));
        assert_eq!(waiting.begin(flush(bound + 1, 7)), Place::NoRoom);
        assert_eq!(next(&waiting).len(), BATCH_MAX);
        assert_eq!(waiting.begin(flush(bound + 1, 7)), Place::Waits);
    }
}
