//! Places for work that may wait for a disk, and the flushes that wait for one.
//!
//! A worker that begins such work is gone as long as a disk takes. So that one is always left to
//! serve reads and writes, there are fewer places for such work than workers. Flushes that find
//! none wait here, in memory that was there before; each worker that comes free takes those of one
//! file together, for which one flush of the device is enough.
//!
//! The lock is held for some instructions, and nothing else is taken while it is.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::leadership::WORKER_COUNT_MAX;
use crate::in_flight::{FLUSHES_MAX, Flush, FlushTable};

/// Flushes that wait for a place, at most. Each is a process that waits for its flush, or a device.
const WAITING_MAX: usize = 4096;

/// Flushes that are answered together, at most.
pub(crate) const BATCH_MAX: usize = 64;

// Those that wait, and those that are about to be answered.
const _: () = assert!(WAITING_MAX + WORKER_COUNT_MAX * BATCH_MAX <= FLUSHES_MAX);

/// What stands in memory that no flush takes.
const NO_FLUSH: Flush =
    Flush { unique: 0, node: 0, written_bytes: None, may_wait: true, entry: None };

/// Place of a flush that a worker has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It has a place, and does it.
    Taken,
    /// Another worker will do it.
    Waits,
    /// It does it without a place: more flushes wait than there is room for.
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
    /// All that wait, and those that are about to be answered.
    kept: FlushTable,
}

impl WaitingFlushes {
    /// `unanswered`: flushes of a former process, which wait from the beginning.
    pub(super) fn new(worker_count: usize, kept: FlushTable, unanswered: Vec<Flush>) -> Self {
        // A single worker has to do everything.
        let free_places = worker_count.saturating_sub(1).max(1);
        let mut waiting = VecDeque::with_capacity(WAITING_MAX);
        // Touched now, so that no request waits for the memory.
        waiting.resize(WAITING_MAX, NO_FLUSH);
        waiting.clear();
        waiting.extend(unanswered);
        Self { state: Mutex::new(State { free_places, waiting, kept }) }
    }

    /// Says which worker does a flush. One that has a place calls [`WaitingFlushes::next`] when it
    /// is done.
    pub(super) fn begin(&self, flush: Flush) -> Place {
        let mut state = self.lock();
        if state.free_places > 0 {
            state.free_places -= 1;
            return Place::Taken;
        }
        if state.waiting.len() >= WAITING_MAX {
            return Place::NoRoom;
        }
        // Before its worker takes the next message.
        let Some(flush) = state.kept.keep(flush) else { return Place::NoRoom };
        state.waiting.push_back(flush);
        Place::Waits
    }

    /// A place for other slow work, if there is one, to be left by [`WaitingFlushes::next`], too.
    pub(super) fn try_take_place(&self) -> bool {
        let mut state = self.lock();
        let is_free = state.free_places > 0;
        state.free_places -= usize::from(is_free);
        is_free
    }

    /// Next step of a worker with a place: `batch` holds flushes of one file, the first that waits
    /// and others, or nothing, and then the place is free.
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

    /// These have been answered.
    pub(super) fn answered(&self, batch: &[Flush]) {
        let mut state = self.lock();
        batch.iter().for_each(|flush| state.kept.free(flush));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A worker that panics ends the process.
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
