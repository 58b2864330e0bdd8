//! State of one slab in private words of the process.

use sync::atomic::{AtomicU32, Ordering};

use crate::layout::Class;

/// Use of a slab. Every change from or to a use of a class is made with the list of that class
/// locked, so the state seen under the lock is stable until it is unlocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Free, or taken and not formatted yet.
    Unused,
    /// Too full for lanes to allocate from it.
    Resting(Class),
    /// Listed in its class's list of slabs with free slots.
    Listed(Class),
    /// A lane allocates from it.
    Open(Class),
    /// Its pages are being moved away.
    Victim(Class),
    /// Without live slots, waiting for its grace period.
    Emptied,
}

impl Use {
    pub(crate) fn to_word(self) -> u32 {
        let of = |class: Class, tag: u32| u32::from(class.id()) << 8 | tag;
        match self {
            Self::Unused => 0,
            Self::Emptied => 1,
            Self::Resting(class) => of(class, 2),
            Self::Listed(class) => of(class, 3),
            Self::Open(class) => of(class, 4),
            Self::Victim(class) => of(class, 5),
        }
    }
}

/// Words of one slab, initially zero. Those of slabs that were never in use take no memory.
pub(crate) type StateWords = [AtomicU32; 3];

/// State of one slab.
#[derive(Clone, Copy)]
pub(crate) struct SlabState<'book> {
    /// Number of free slots, signed, because a debit may precede a credit.
    pub(crate) free: &'book AtomicU32,
    /// A [`Use`].
    pub(crate) usage: &'book AtomicU32,
    /// Position in its class's list. Guarded by the list's lock.
    pub(crate) position: &'book AtomicU32,
}

impl SlabState<'_> {
    pub(crate) fn is(&self, usage: Use) -> bool {
        // SeqCst: see `SlabBook::credit`.
        self.usage.load(Ordering::SeqCst) == usage.to_word()
    }

    pub(crate) fn set(&self, usage: Use) {
        self.usage.store(usage.to_word(), Ordering::SeqCst);
    }

    /// Returns the class in its use, if there is one.
    pub(crate) fn class(&self) -> Option<Class> {
        Class::from_id(u64::from(self.usage.load(Ordering::SeqCst) >> 8))
    }

    pub(crate) fn free(&self) -> i32 {
        as_signed(self.free.load(Ordering::SeqCst))
    }
}

/// Converts the word of a count of free slots to a signed number.
pub(crate) fn as_signed(free: u32) -> i32 {
    i32::from_ne_bytes(free.to_ne_bytes())
}
