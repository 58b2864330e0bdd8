//! Cache lines of the shared memory, and the order in which each side stores to them.
//!
//! They contain only atomics, because each line may be read while the other side stores to it. With
//! `--cfg loom` the same code uses loom's atomics; see `tests/loom.rs`.

use sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Operations of entries.
pub mod operation {
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const WRITE_ZEROES: u32 = 3;
    pub const DISCARD: u32 = 4;
    pub const FLUSH: u32 = 5;
}

/// Flags of entries.
pub mod flags {
    /// FUA: the write is flushed before it is completed.
    pub const FUA: u32 = 1;
    /// Zeroed blocks stay allocated.
    pub const KEEP_ALLOCATED: u32 = 2;
}

/// Copy of one entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub operation: u32,
    pub flags: u32,
    pub slot: u32,
    /// Start of the range on the device.
    pub offset: u64,
    /// Length of the range. Reads and writes transfer at most one buffer.
    pub length: u64,
}

/// Line in which the client publishes an entry.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SubmissionLine {
    /// Position of the entry in the line, plus one; initially zero.
    turn: AtomicU64,
    operation: AtomicU32,
    flags: AtomicU32,
    slot: AtomicU64,
    offset: AtomicU64,
    length: AtomicU64,
}

/// Line in which the server publishes the status of a slot's entry.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CompletionLine {
    /// Position of that entry, plus one; initially zero.
    turn: AtomicU64,
    status: AtomicU32,
}

/// Line in which one side announces that it sleeps until the other side wakes it.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SleepLine {
    is_asleep: AtomicU32,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<SubmissionLine>() == crate::layout::LINE_BYTES);
    assert!(size_of::<CompletionLine>() == crate::layout::LINE_BYTES);
    assert!(size_of::<SleepLine>() == crate::layout::LINE_BYTES);
};

impl SubmissionLine {
    #[cfg(loom)]
    #[expect(clippy::new_without_default, reason = "only explorers make lines")]
    pub fn new() -> Self {
        Self {
            turn: AtomicU64::new(0),
            operation: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            slot: AtomicU64::new(0),
            offset: AtomicU64::new(0),
            length: AtomicU64::new(0),
        }
    }

    /// Publishes the entry at `position` with the contents of its slot's buffer. The client has a
    /// free slot, so the server has taken the line's previous entry.
    #[inline]
    pub fn publish(&self, position: u64, entry: &Entry) {
        self.operation.store(entry.operation, Ordering::Relaxed);
        self.flags.store(entry.flags, Ordering::Relaxed);
        self.slot.store(u64::from(entry.slot), Ordering::Relaxed);
        self.offset.store(entry.offset, Ordering::Relaxed);
        self.length.store(entry.length, Ordering::Relaxed);
        // PAIRS-WITH: SubmissionLine::take, "the entry and its buffer are complete".
        self.turn.store(position + 1, Ordering::Release);
    }

    /// Returns whether the entry at `position` was published.
    #[inline]
    pub fn holds(&self, position: u64) -> bool {
        self.turn.load(Ordering::Relaxed) == position + 1
    }

    /// Copies the entry at `position`, if it was published. Each field is read once. If the client
    /// stores to the line meanwhile, the copy may be inconsistent, which only harms the client.
    #[inline]
    pub fn take(&self, position: u64) -> Option<Entry> {
        // PAIRS-WITH: SubmissionLine::publish, "the entry and its buffer are complete".
        if self.turn.load(Ordering::Acquire) != position + 1 {
            return None;
        }
        Some(Entry {
            operation: self.operation.load(Ordering::Relaxed),
            flags: self.flags.load(Ordering::Relaxed),
            slot: u32::try_from(self.slot.load(Ordering::Relaxed)).unwrap_or(u32::MAX),
            offset: self.offset.load(Ordering::Relaxed),
            length: self.length.load(Ordering::Relaxed),
        })
    }
}

impl CompletionLine {
    #[cfg(loom)]
    #[expect(clippy::new_without_default, reason = "only explorers make lines")]
    pub fn new() -> Self {
        Self { turn: AtomicU64::new(0), status: AtomicU32::new(0) }
    }

    /// Completes the entry at `position`, and returns its slot and buffer to the client.
    #[inline]
    pub fn complete(&self, position: u64, status: u32) {
        self.status.store(status, Ordering::Relaxed);
        // PAIRS-WITH: CompletionLine::status_of, "the slot and its buffer are the client's again".
        self.turn.store(position + 1, Ordering::Release);
    }

    /// Status of the entry at `position`, once it has completed.
    #[inline]
    pub fn status_of(&self, position: u64) -> Option<u32> {
        // PAIRS-WITH: CompletionLine::complete, "the slot and its buffer are the client's again".
        (self.turn.load(Ordering::Acquire) == position + 1)
            .then(|| self.status.load(Ordering::Relaxed))
    }
}

impl SleepLine {
    #[cfg(loom)]
    #[expect(clippy::new_without_default, reason = "only explorers make lines")]
    pub fn new() -> Self {
        Self { is_asleep: AtomicU32::new(0) }
    }

    /// Announces that this side sleeps, unless it then finds work in a last check.
    #[inline]
    pub fn announce(&self) {
        self.is_asleep.store(1, Ordering::Relaxed);
        // PAIRS-WITH: after_publishing, "either this side finds what was published, or the other
        // one finds that this side sleeps".
        fence(Ordering::SeqCst);
    }

    /// Withdraws the announcement.
    #[inline]
    pub fn awake(&self) {
        self.is_asleep.store(0, Ordering::Relaxed);
    }

    /// Returns whether this side is asleep and the caller must wake it. Must be called after
    /// [`after_publishing`]. Of several concurrent callers, more than one may get true.
    #[inline]
    pub fn must_be_woken(&self) -> bool {
        // Relaxed: the preceding fence orders it, and the word itself guards no data.
        let is_asleep = self.is_asleep.load(Ordering::Relaxed) != 0;
        if is_asleep {
            self.is_asleep.store(0, Ordering::Relaxed);
        }
        is_asleep
    }

    /// Futex word; the kernel waits on it while it is 1.
    #[cfg(not(loom))]
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.is_asleep
    }

    #[cfg(loom)]
    pub fn is_announced(&self) -> bool {
        self.is_asleep.load(Ordering::Relaxed) != 0
    }
}

/// Fence between publishing and checking whether the other side must be woken.
#[inline]
pub fn after_publishing() {
    // PAIRS-WITH: SleepLine::announce, "either this side finds what was published, or the other
    // one finds that this side sleeps".
    fence(Ordering::SeqCst);
}
