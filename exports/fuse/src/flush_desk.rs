//! Work that may wait for a disk: who does it, and what waits for its turn.
//!
//! A worker that begins such work hands on the leadership and is gone as long as a disk takes. So
//! that somebody is always left to serve reads and writes, there are fewer seats for such work than
//! workers. Flushes that find none wait here, in memory that was there before; each worker
//! that comes free takes those of one file together, for which one flush of the device is enough.
//!
//! The lock is held for some instructions, and nothing else is taken while it is.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Flushes that wait for a seat, at most. Each is a process that waits for its flush, or a device.
const WAITING_MAX: usize = 4096;

/// Flushes that are answered together, at most.
pub(crate) const BATCH_MAX: usize = 64;

/// A request that is answered when what its file holds is on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flush {
    pub(crate) unique: u64,
    pub(crate) node: u64,
    /// The length of the write that the flush belongs to, if it does to one.
    pub(crate) written_bytes: Option<u32>,
}

/// What a worker does with a flush that it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It has a seat, and does it.
    Seated,
    /// Somebody else will do it.
    Waits,
    /// It does it without a seat: more flushes wait than there is room for.
    NoRoom,
}

#[derive(Debug)]
pub(crate) struct FlushDesk {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free_seats: usize,
    waiting: VecDeque<Flush>,
}

impl FlushDesk {
    pub(crate) fn new(worker_count: usize) -> Self {
        // A single worker has to do everything.
        let free_seats = worker_count.saturating_sub(1).max(1);
        let mut waiting = VecDeque::with_capacity(WAITING_MAX);
        // Touched now, so that no request waits for the memory.
        waiting.resize(WAITING_MAX, Flush { unique: 0, node: 0, written_bytes: None });
        waiting.clear();
        Self { state: Mutex::new(State { free_seats, waiting }) }
    }

    /// Says who does a flush. Whoever is seated calls [`FlushDesk::next`] when it is done.
    pub(crate) fn begin(&self, flush: Flush) -> Turn {
        let mut state = self.lock();
        if state.free_seats > 0 {
            state.free_seats -= 1;
            return Turn::Seated;
        }
        if state.waiting.len() == WAITING_MAX {
            return Turn::NoRoom;
        }
        state.waiting.push_back(flush);
        Turn::Waits
    }

    /// A seat for other slow work, if there is one, to be left by [`FlushDesk::next`] as well.
    pub(crate) fn try_sit(&self) -> bool {
        let mut state = self.lock();
        let is_free = state.free_seats > 0;
        state.free_seats -= usize::from(is_free);
        is_free
    }

    /// What a seated worker does next: `batch` holds flushes of one file, the first that waits and
    /// others, or nothing, and then the seat is free.
    pub(crate) fn next(&self, batch: &mut Vec<Flush>) {
        batch.clear();
        let mut state = self.lock();
        let Some(first) = state.waiting.front().copied() else {
            state.free_seats += 1;
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

    fn lock(&self) -> MutexGuard<'_, State> {
        // A worker that panics ends the process.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flush(unique: u64, node: u64) -> Flush {
        Flush { unique, node, written_bytes: None }
    }

    fn next(desk: &FlushDesk) -> Vec<u64> {
        let mut batch = Vec::new();
        desk.next(&mut batch);
        batch.iter().map(|flush| flush.unique).collect()
    }

    #[test]
    fn one_worker_is_always_left() {
        let desk = FlushDesk::new(3);
        assert_eq!(desk.begin(flush(1, 9)), Turn::Seated);
        assert!(desk.try_sit());
        assert!(!desk.try_sit());
        assert_eq!(desk.begin(flush(2, 9)), Turn::Waits);
        assert_eq!(next(&desk), [2]);
        assert_eq!(next(&desk), []);
        assert_eq!(desk.begin(flush(3, 9)), Turn::Seated);
    }

    #[test]
    fn a_single_worker_does_everything() {
        assert_eq!(FlushDesk::new(1).begin(flush(1, 9)), Turn::Seated);
    }

    #[test]
    fn flushes_of_one_file_are_done_together_and_in_order() {
        let desk = FlushDesk::new(2);
        assert_eq!(desk.begin(flush(0, 7)), Turn::Seated);
        for (unique, node) in [(1, 7), (2, 8), (3, 7), (4, 9), (5, 8)] {
            assert_eq!(desk.begin(flush(unique, node)), Turn::Waits);
        }
        assert_eq!([(); 4].map(|()| next(&desk)), [vec![1, 3], vec![2, 5], vec![4], vec![]]);
    }

    #[test]
    fn what_waits_is_bounded_and_answered_in_batches() {
        let desk = FlushDesk::new(2);
        assert_eq!(desk.begin(flush(0, 7)), Turn::Seated);
        let bound = u64::try_from(WAITING_MAX).expect("a small constant");
        assert!((1..=bound).all(|unique| desk.begin(flush(unique, 7)) == Turn::Waits));
        assert_eq!(desk.begin(flush(bound + 1, 7)), Turn::NoRoom);
        assert_eq!(next(&desk).len(), BATCH_MAX);
        assert_eq!(desk.begin(flush(bound + 1, 7)), Turn::Waits);
    }
}
