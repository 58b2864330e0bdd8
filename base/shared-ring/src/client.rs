//! The client's half: publishes entries and waits for them.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use sync::atomic::Ordering;

use crate::layout::{LANES_MAX, SLOTS};
use crate::lines::{self, Entry};
use crate::memory::{BufferPlace, Memory};
use crate::sys;

/// The memory of one connection, as the client sees it.
#[derive(Debug)]
pub struct ClientRing {
    memory: Memory,
}

/// A slot of a lane, as long as the client owns it, and its place while it is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(usize);

impl Slot {
    /// The slot of this index.
    ///
    /// # Panics
    /// When there is none.
    pub fn at(index: usize) -> Self {
        assert!(index < SLOTS, "slot {index} of {SLOTS}");
        Self(index)
    }

    pub fn index(self) -> usize {
        self.0
    }
}

impl ClientRing {
    /// Maps what the server has sent. Fails unless it has the length that so many lanes need.
    pub fn map(file: BorrowedFd<'_>, lane_count: usize) -> io::Result<Arc<Self>> {
        if !(1..=LANES_MAX).contains(&lane_count) {
            let message = format!("unsupported number of lanes: {lane_count}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(Arc::new(Self { memory: Memory::map(file, lane_count)? }))
    }

    pub fn lane_count(&self) -> usize {
        self.memory.lane_count()
    }

    /// Size of the device by the server's latest word.
    pub fn size_bytes(&self) -> u64 {
        self.memory.size_word().load(Ordering::Relaxed)
    }
}

/// A lane, for one thread at a time. Made once for each lane of a connection.
#[derive(Debug)]
pub struct ClientLane {
    ring: Arc<ClientRing>,
    lane: usize,
    /// The position of the next entry.
    next: u64,
    /// A bit for each slot that no entry names.
    free: u64,
    /// The position of the last entry of each slot.
    positions: [u64; SLOTS],
    is_announced: bool,
}

impl ClientLane {
    /// # Panics
    /// When the connection has no such lane.
    pub fn new(ring: Arc<ClientRing>, lane: usize) -> Self {
        assert!(lane < ring.lane_count(), "lane {lane} of {}", ring.lane_count());
        Self { ring, lane, next: 0, free: u64::MAX, positions: [0; SLOTS], is_announced: false }
    }

    /// Entries that were submitted so far.
    pub fn submitted(&self) -> u64 {
        self.next
    }

    /// A slot to put data in and to submit.
    #[inline]
    pub fn take_slot(&mut self) -> Option<Slot> {
        // Always the lowest: its buffer is the one that was used last, and near.
        let slot = self.free.trailing_zeros();
        self.free &= self.free.wrapping_sub(1);
        (slot < u64::BITS).then_some(Slot(slot as usize))
    }

    /// Gives a slot back that is done, or was not submitted.
    #[inline]
    pub fn free_slot(&mut self, slot: Slot) {
        self.free |= 1 << slot.0;
    }

    /// Copies data for an entry to byte `start` of the slot's buffer.
    #[inline]
    pub fn copy_in(&self, slot: Slot, start: usize, from: &[u8]) {
        self.ring.memory.copy_in(self.place(slot, start), from);
    }

    /// Copies data of an entry that is done.
    #[inline]
    pub fn copy_out(&self, slot: Slot, start: usize, into: &mut [u8]) {
        self.ring.memory.copy_out(self.place(slot, start), into);
    }

    #[inline]
    fn place(&self, slot: Slot, start: usize) -> BufferPlace {
        BufferPlace { lane: self.lane, slot: slot.0, start }
    }

    /// Publishes an entry for a slot that was taken; its field `slot` is set here.
    #[inline]
    pub fn submit(&mut self, slot: Slot, entry: Entry) {
        if !self.is_announced {
            self.is_announced = true;
            self.ring.memory.lanes_in_use().fetch_or(1 << self.lane, Ordering::Relaxed);
        }
        let position = self.next;
        self.next += 1;
        self.positions[slot.0] = position;
        let entry = Entry { slot: u32::try_from(slot.0).expect("there are few"), ..entry };
        self.ring.memory.submission(self.lane, position).publish(position, &entry);
    }

    /// Returns whether the server has to be rung for what was submitted, which falls to the caller
    /// if so.
    #[inline]
    pub fn must_ring(&self) -> bool {
        lines::after_publishing();
        self.ring.memory.server_sleep().must_be_woken()
    }

    /// Result of the entry of a slot, once it has ended.
    #[inline]
    pub fn status(&self, slot: Slot) -> Option<u32> {
        self.ring.memory.completion(self.lane, slot.0).status_of(self.positions[slot.0])
    }

    /// A look at the entries of these slots (a bit for each), for a thread that does not keep the
    /// lane from others while it waits.
    pub fn watch(&self, slots: u64) -> LaneWatch {
        let (ring, lane) = (Arc::clone(&self.ring), self.lane);
        LaneWatch { ring, lane, slots, positions: self.positions }
    }

    /// Sleeps until the server has answered something on this lane, for `time_max` at most, unless
    /// `is_done` says that there is an answer now. May return early.
    pub fn sleep(&self, time_max: Duration, is_done: impl FnOnce(&Self) -> bool) {
        let line = self.ring.memory.lane_sleep(self.lane);
        line.announce();
        if !is_done(self) {
            sys::sleep_on(line.word(), time_max);
        }
        line.awake();
    }
}

/// Some entries of a lane that were under way at one moment, to be waited for.
#[derive(Clone, Debug)]
pub struct LaneWatch {
    ring: Arc<ClientRing>,
    lane: usize,
    /// A bit for each slot that is looked at.
    slots: u64,
    positions: [u64; SLOTS],
}

impl LaneWatch {
    /// Returns whether one of the entries has ended, and nothing else has been put in its slot.
    pub fn has_answer(&self) -> bool {
        let mut left = self.slots;
        while left != 0 {
            let slot = left.trailing_zeros() as usize;
            left &= left - 1;
            let line = self.ring.memory.completion(self.lane, slot);
            if line.status_of(self.positions[slot]).is_some() {
                return true;
            }
        }
        false
    }

    /// Sleeps as [`ClientLane::sleep`] does. Of several threads that sleep at once on one lane some
    /// may sleep for all of `time_max`.
    pub fn sleep(&self, time_max: Duration) {
        let line = self.ring.memory.lane_sleep(self.lane);
        line.announce();
        if !self.has_answer() {
            sys::sleep_on(line.word(), time_max);
        }
        line.awake();
    }
}
