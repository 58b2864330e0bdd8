//! Holds that keep compaction behind the followers of a partition.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// All holds on one partition's compaction.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// Offset of each hold by its number. No pass may process records from any of these offsets on.
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

    /// Returns the minimum of all offsets.
    pub(crate) fn offset(&self) -> i64 {
        self.lock().offsets.values().copied().min().unwrap_or(i64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().expect("nothing panics with the holds locked")
    }
}

/// A hold on compaction: see [`crate::Partition::hold_compaction`].
#[derive(Debug)]
pub struct CompactionHold {
    holds: Arc<Holds>,
    number: u64,
}

impl CompactionHold {
    /// Moves the hold forward.
    pub fn set(&self, before_offset: i64) {
        self.holds.lock().offsets.insert(self.number, before_offset);
    }
}

impl Drop for CompactionHold {
    fn drop(&mut self) {
        self.holds.lock().offsets.remove(&self.number);
    }
}
