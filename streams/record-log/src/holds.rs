//! Keeps compaction behind those who follow a partition.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// All who hold compaction of one partition back.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// No pass begins that would see records from any of these offsets on; by the holder's number.
    offsets: BTreeMap<u64, i64>,
    next_number: u64,
}

impl Holds {
    pub(crate) fn add(self: &Arc<Self>, before_offset: i64) -> CompactionHold {
        let mut held = self.lock();
        let number = held.next_number;
        held.next_number += 1;
        held.offsets.insert(number, before_offset);
        CompactionHold { holds: Arc::clone(self), number }
    }

    /// The least of all offsets.
    pub(crate) fn offset(&self) -> i64 {
        self.lock().offsets.values().copied().min().unwrap_or(i64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().expect("nothing panics with the holds locked")
    }
}

/// One of them: see [`crate::Partition::hold_compaction`].
#[derive(Debug)]
pub struct CompactionHold {
    holds: Arc<Holds>,
    number: u64,
}

impl CompactionHold {
    /// Moves on.
    pub fn set(&self, before_offset: i64) {
        self.holds.lock().offsets.insert(self.number, before_offset);
    }
}

impl Drop for CompactionHold {
    fn drop(&mut self) {
        self.holds.lock().offsets.remove(&self.number);
    }
}
