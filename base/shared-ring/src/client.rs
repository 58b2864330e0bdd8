//! Client half of the ring: publishes entries and waits for their completion.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use sync::atomic::Ordering;

use crate::layout::{LANES_MAX, SLOTS};
use crate::lines::{self, Entry};
use crate::memory::{BufferPlace, Memory};
use crate::sys;

/// Memory of one connection, from the client's side.
#[derive(Debug)]
pub struct ClientRing {
    memory: Memory,
}

/// A slot of a lane. Its owner holds this value while the slot is not in flight, and uses it to
/// identify the slot meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(usize);

impl Slot {
    /// Returns the slot of this index.
    ///
    /// # Panics
    /// If `index` is out of range.
    pub fn at(index: usize) -> Self {
        assert!(index < SLOTS, "slot {index} of {SLOTS}");
        Self(index)
    }

    pub fn index(self) -> usize {
        self.0
    }
}

impl ClientRing {
    /// Maps the memory from the server. Fails unless it has the size for this number of lanes.
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

    /// Latest size of the device from the server.
    pub fn size_bytes(&self) -> u64 {
        self.memory.size_word().load(Ordering::Relaxed)
    }
}

/// A lane, for one thread at a time. Must be created once for each lane of a connection.
#[derive(Debug)]
pub struct ClientLane {
    ring: Arc<ClientRing>,
    lane: usize,
    /// Position of the next entry.
    next: u64,
    /// Bit set of the free slots.
    free: u64,
    /// Position of the last entry of each slot.
    positions: [u64; SLOTS],
    is_announced: bool,
}

impl ClientLane {
    /// Creates the client's state of a lane.
    ///
    /// # Panics
    /// If the connection has no such lane.
    pub fn new(ring: Arc<ClientRing>, lane: usize) -> Self {
        assert!(lane < ring.lane_count(), "lane {lane} of {}", ring.lane_count());
        Self { ring, lane, next: 0, free: u64::MAX, positions: [0; SLOTS], is_announced: false }
    }

    /// Number of entries submitted so far.
    pub fn submitted(&self) -> u64 {
        self.next
    }

    /// Takes a free slot, to be filled and submitted.
    #[inline]
    pub fn take_slot(&mut self) -> Option<Slot> {
        // The lowest free slot, because its buffer was used most recently and is likely in the
        // cache.
        let slot = self.free.trailing_zeros();
        self.free &= self.free.wrapping_sub(1);
        (slot < u64::BITS).then_some(Slot(slot as usize))
    }

    /// Frees a slot whose entry has completed, or that was not submitted.
    #[inline]
    pub fn free_slot(&mut self, slot: Slot) {
        self.free |= 1 << slot.0;
    }

    /// Copies data to the slot's buffer, from byte `start` on.
    #[inline]
    pub fn copy_in(&self, slot: Slot, start: usize, from: &[u8]) {
        self.ring.memory.copy_in(self.place(slot, start), from);
    }

    /// Copies data of a completed entry from the slot's buffer.
    #[inline]
    pub fn copy_out(&self, slot: Slot, start: usize, into: &mut [u8]) {
        self.ring.memory.copy_out(self.place(slot, start), into);
    }

    #[inline]
    fn place(&self, slot: Slot, start: usize) -> BufferPlace {
        BufferPlace { lane: self.lane, slot: slot.0, start }
    }

    /// Publishes an entry for a slot that was taken. Sets its field `slot`.
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

    /// Returns whether the server is asleep and the caller must ring its doorbell.
    #[inline]
    pub fn must_ring(&self) -> bool {
        lines::after_publishing();
        self.ring.memory.server_sleep().must_be_woken()
    }

    /// Status of the slot's entry, once it has completed.
    #[inline]
    pub fn status(&self, slot: Slot) -> Option<u32> {
        self.ring.memory.completion(self.lane, slot.0).status_of(self.positions[slot.0])
    }

    /// Creates a watch of the entries in these slots (a bit set), for a thread that waits without
    /// blocking the lane for others.
    pub fn watch(&self, slots: u64) -> LaneWatch {
        let (ring, lane) = (Arc::clone(&self.ring), self.lane);
        LaneWatch { ring, lane, slots, positions: self.positions }
    }

    /// Sleeps until the server completes an entry of this lane, at most `time_max`, unless
    /// `is_done` returns true after the sleep was announced. May return early.
    pub fn sleep(&self, time_max: Duration, is_done: impl FnOnce(&Self) -> bool) {
        let line = self.ring.memory.lane_sleep(self.lane);
        line.announce();
        if !is_done(self) {
            sys::sleep_on(line.word(), time_max);
        }
        line.awake();
    }
}

/// Entries of a lane that were in flight at one moment, to be waited for.
#[derive(Clone, Debug)]
pub struct LaneWatch {
    ring: Arc<ClientRing>,
    lane: usize,
    /// Bit set of the watched slots.
    slots: u64,
    positions: [u64; SLOTS],
}

impl LaneWatch {
    /// Returns whether one of the entries has completed and its slot was not reused.
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

    /// Sleeps as [`ClientLane::sleep`] does. If several threads sleep on one lane, some may sleep
    /// for the whole `time_max`.
    pub fn sleep(&self, time_max: Duration) {
        let line = self.ring.memory.lane_sleep(self.lane);
        line.announce();
        if !self.has_answer() {
            sys::sleep_on(line.word(), time_max);
        }
        line.awake();
    }
}
