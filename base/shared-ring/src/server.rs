//! Server half of the ring: takes entries, copies their data, and completes them.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use sync::atomic::{AtomicU64, Ordering};

use crate::layout::{LANES_MAX, SLOTS};
use crate::lines::{self, Entry};
use crate::memory::{BufferPlace, Memory};
use crate::sys;

/// Memory of one connection, from the server's side. Shared by the threads that complete entries.
#[derive(Debug)]
pub struct ServerRing {
    memory: Memory,
    /// For each lane, bit set of the slots whose entries are completed by other threads.
    late: Vec<AtomicU64>,
}

/// Token of a taken entry. The server owns its slot until it completes the ticket.
#[derive(Debug)]
pub struct Ticket {
    lane: usize,
    slot: usize,
    position: u64,
}

impl Ticket {
    #[inline]
    fn place(&self, start: usize) -> BufferPlace {
        BufferPlace { lane: self.lane, slot: self.slot, start }
    }
}

/// An entry from [`Taker::take`].
#[derive(Debug)]
pub struct Taken {
    pub ticket: Ticket,
    /// Entry as the client wrote it. Only the slot was validated.
    pub entry: Entry,
}

/// Protocol violation of a client, after which the state of its slots is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    NoSuchSlot { slot: u32 },
    SlotInFlight { slot: u32 },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchSlot { slot } => {
                write!(f, "an entry has slot {slot}; the ring has {SLOTS} slots")
            }
            Self::SlotInFlight { slot } => {
                write!(f, "an entry reuses slot {slot} of a pending request")
            }
        }
    }
}

impl ServerRing {
    /// Creates the memory. The file must be sent to the client.
    pub fn create(lane_count: usize, size_bytes: u64) -> io::Result<(Arc<Self>, OwnedFd)> {
        assert!((1..=LANES_MAX).contains(&lane_count), "{lane_count} lanes");
        let file = sys::create_sealed(crate::layout::memory_bytes(lane_count))?;
        let memory = Memory::map(file.as_fd(), lane_count)?;
        let late = (0..lane_count).map(|_| AtomicU64::new(0)).collect();
        let ring = Self { memory, late };
        ring.set_size_bytes(size_bytes);
        Ok((Arc::new(ring), file))
    }

    /// Announces the size of the device to the client.
    pub fn set_size_bytes(&self, size_bytes: u64) {
        // Relaxed: it is a hint, because the device refuses requests beyond the end.
        if self.memory.size_word().load(Ordering::Relaxed) != size_bytes {
            self.memory.size_word().store(size_bytes, Ordering::Relaxed);
        }
    }

    /// Copies from byte `start` of the ticket's buffer on. The client may change the buffer
    /// meanwhile, so only the copy may be used.
    ///
    /// # Panics
    /// If `into` is longer than the buffer.
    #[inline]
    pub fn copy_out(&self, ticket: &Ticket, start: usize, into: &mut [u8]) {
        self.memory.copy_out(ticket.place(start), into);
    }

    /// Copies to byte `start` of the ticket's buffer.
    ///
    /// # Panics
    /// If `from` is longer than the buffer.
    #[inline]
    pub fn copy_in(&self, ticket: &Ticket, start: usize, from: &[u8]) {
        self.memory.copy_in(ticket.place(start), from);
    }

    /// Copies as [`ServerRing::copy_in`] does, with non-temporal stores: for long data, whose cache
    /// lines would otherwise move between both cores. Prefetches `next`, which is copied
    /// afterwards.
    ///
    /// # Panics
    /// If `from` is longer than the buffer.
    #[inline]
    pub fn stream_in(&self, ticket: &Ticket, start: usize, from: &[u8], next: &[u8]) {
        self.memory.stream_in(ticket.place(start), from, next);
    }

    /// Completes an entry and returns its slot to the client. Returns its lane, for
    /// [`ServerRing::wake`].
    #[inline]
    pub fn complete(&self, ticket: Ticket, status: u32) -> usize {
        let Ticket { lane, slot, position } = ticket;
        self.memory.completion(lane, slot).complete(position, status);
        lane
    }

    /// Must be called before the ticket is passed to another thread, which completes it with
    /// [`ServerRing::complete_late`].
    pub fn keep_for_later(&self, ticket: &Ticket) {
        // Relaxed: only the thread that takes entries sets and checks bits.
        self.late[ticket.lane].fetch_or(1 << ticket.slot, Ordering::Relaxed);
    }

    /// Completes as [`ServerRing::complete`] does, from any thread, and wakes the client if it is
    /// asleep.
    pub fn complete_late(&self, ticket: Ticket, status: u32) {
        let bit = 1_u64 << ticket.slot;
        // PAIRS-WITH: Taker::take, "the slot's buffer is not looked at any more".
        self.late[ticket.lane].fetch_and(!bit, Ordering::Release);
        let lane = self.complete(ticket, status);
        self.wake(1 << lane);
    }

    /// Wakes the client's threads that sleep on these lanes (a bit set).
    #[inline]
    pub fn wake(&self, lanes: u64) {
        lines::after_publishing();
        for lane in bits(lanes) {
            let line = self.memory.lane_sleep(lane);
            if line.must_be_woken() {
                sys::wake(line.word());
            }
        }
    }
}

/// Consumer of the entries of all lanes of a connection, for one thread.
#[derive(Debug)]
pub struct Taker {
    ring: Arc<ServerRing>,
    /// Position of the next entry of each lane.
    next: Vec<u64>,
}

impl Taker {
    /// Creates the taker. Must be called once for each connection.
    pub fn new(ring: Arc<ServerRing>) -> Self {
        let next = vec![0; ring.memory.lane_count()];
        Self { ring, next }
    }

    /// Bit set of the lanes that have an entry now.
    #[inline]
    pub fn lanes_with_entries(&self) -> u64 {
        let memory = &self.ring.memory;
        // Relaxed: a lane is announced before its first entry, and a thread about to sleep checks
        // again after a fence.
        let in_use = memory.lanes_in_use().load(Ordering::Relaxed);
        let known = in_use & (u64::MAX >> (u64::BITS as usize - self.next.len()));
        bits(known)
            .filter(|&lane| memory.submission(lane, self.next[lane]).holds(self.next[lane]))
            .fold(0, |found, lane| found | 1 << lane)
    }

    /// Takes the next entry of a lane, if there is one.
    #[inline]
    pub fn take(&mut self, lane: usize) -> Result<Option<Taken>, Violation> {
        let position = self.next[lane];
        let Some(entry) = self.ring.memory.submission(lane, position).take(position) else {
            return Ok(None);
        };
        let slot = usize::try_from(entry.slot).unwrap_or(usize::MAX);
        if slot >= SLOTS {
            return Err(Violation::NoSuchSlot { slot: entry.slot });
        }
        // PAIRS-WITH: ServerRing::complete_late, "the slot's buffer is not looked at any more".
        if self.ring.late[lane].load(Ordering::Acquire) & (1 << slot) != 0 {
            return Err(Violation::SlotInFlight { slot: entry.slot });
        }
        self.next[lane] = position + 1;
        Ok(Some(Taken { ticket: Ticket { lane, slot, position }, entry }))
    }

    /// Announces that this thread sleeps, and returns the lanes with entries. The client rings the
    /// doorbell for later entries.
    pub fn announce_sleep(&self) -> u64 {
        self.ring.memory.server_sleep().announce();
        self.lanes_with_entries()
    }

    /// Withdraws the announcement, because the thread polls again.
    pub fn awake(&self) {
        self.ring.memory.server_sleep().awake();
    }
}

fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (lowest < u64::BITS).then_some(lowest as usize)
    })
}
