//! State of each descriptor: one word for each number.
//!
//! ```text
//! unknown ──first use──▶ foreign   the kernel does everything
//!    ▲  │                bypassed  reads, writes and flushes go through the ring
//!    │  └──made by us──▶ own       this library's: programs do not see it
//!    └── closed, duplicated onto, flags changed; in a forked child
//! ```
//!
//! A word is derived only from the kernel's information about the descriptor, so it may be
//! discarded at any time, also by a child that still shares memory with its parent (`vfork`). Such
//! a child never stores new words, because its descriptors differ from its parent's. Words are not
//! copied from one descriptor to another. Numbers beyond the table are foreign.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Size of the table. Higher descriptors are left to the kernel.
const DESCRIPTORS_MAX: usize = 65_536;

/// Initially zero; pages take no memory until they are used.
static WORDS: [AtomicU64; DESCRIPTORS_MAX] = [const { AtomicU64::new(0) }; DESCRIPTORS_MAX];

/// One more than the highest number with a word.
static COUNT: AtomicUsize = AtomicUsize::new(0);

const STATE_MASK: u64 = 0b11;
const UNKNOWN: u64 = 0;
const FOREIGN: u64 = 1;
const OWN: u64 = 2;
const BYPASSED: u64 = 3;

const MAY_READ: u64 = 1 << 2;
const MAY_WRITE: u64 = 1 << 3;
const IS_SYNCHRONOUS: u64 = 1 << 4;
const DEVICE_SHIFT: u32 = 8;
const DEVICE_MASK: u64 = 0xFF;

/// State of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Unknown,
    Foreign,
    Own,
    Bypassed(Bypass),
}

/// Parameters for serving a descriptor without the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bypass {
    /// Index of the device among the open ones.
    pub(crate) device: u8,
    pub(crate) may_read: bool,
    pub(crate) may_write: bool,
    /// Every write is followed by a flush.
    pub(crate) is_synchronous: bool,
}

impl Entry {
    fn of_word(word: u64) -> Self {
        match word & STATE_MASK {
            UNKNOWN => Self::Unknown,
            FOREIGN => Self::Foreign,
            OWN => Self::Own,
            _ => Self::Bypassed(Bypass {
                device: u8::try_from(word >> DEVICE_SHIFT & DEVICE_MASK).unwrap_or(u8::MAX),
                may_read: word & MAY_READ != 0,
                may_write: word & MAY_WRITE != 0,
                is_synchronous: word & IS_SYNCHRONOUS != 0,
            }),
        }
    }

    fn word(self) -> u64 {
        match self {
            Self::Unknown => UNKNOWN,
            Self::Foreign => FOREIGN,
            Self::Own => OWN,
            Self::Bypassed(bypass) => {
                let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
                BYPASSED
                    | u64::from(bypass.device) << DEVICE_SHIFT
                    | flag(bypass.may_read, MAY_READ)
                    | flag(bypass.may_write, MAY_WRITE)
                    | flag(bypass.is_synchronous, IS_SYNCHRONOUS)
            }
        }
    }
}

/// State of `fd`. In a child that was not notified of its fork, everything is foreign.
pub(crate) fn get(fd: RawFd) -> Entry {
    if sdk::is_untold_child() {
        return Entry::Foreign;
    }
    let word = usize::try_from(fd).ok().and_then(|index| WORDS.get(index));
    // Relaxed: users look up the device by its index.
    word.map_or(Entry::Foreign, |word| Entry::of_word(word.load(Ordering::Relaxed)))
}

/// Stores the state of `fd`. Returns false if the number is beyond the table.
pub(crate) fn set(fd: RawFd, entry: Entry) -> bool {
    let Ok(index) = usize::try_from(fd) else { return false };
    let Some(word) = WORDS.get(index) else { return false };
    COUNT.fetch_max(index + 1, Ordering::Relaxed);
    word.store(entry.word(), Ordering::Relaxed);
    true
}

/// Discards the state of `fd`, unless it is this library's own descriptor.
pub(crate) fn forget(fd: RawFd) {
    let word = usize::try_from(fd).ok().and_then(|index| WORDS.get(index));
    let Some(word) = word else { return };
    let known = word.load(Ordering::Relaxed);
    if known != UNKNOWN && known & STATE_MASK != OWN {
        word.store(UNKNOWN, Ordering::Relaxed);
    }
}

/// Discards the state of `fd`, which the kernel has just assigned to a new file.
pub(crate) fn renew(fd: RawFd) {
    let word = usize::try_from(fd).ok().and_then(|index| WORDS.get(index));
    let Some(word) = word else { return };
    if word.load(Ordering::Relaxed) != UNKNOWN {
        word.store(UNKNOWN, Ordering::Relaxed);
    }
}

/// Discards all entries in a forked child that refer to its parent's devices and descriptors.
pub(crate) fn forget_all() {
    for word in &WORDS[..COUNT.load(Ordering::Relaxed)] {
        if word.load(Ordering::Relaxed) & STATE_MASK > FOREIGN {
            word.store(UNKNOWN, Ordering::Relaxed);
        }
    }
}

/// One more than the highest number with a word.
pub(crate) fn count() -> RawFd {
    RawFd::try_from(COUNT.load(Ordering::Relaxed)).unwrap_or(RawFd::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYPASS: Bypass =
        Bypass { device: 63, may_read: true, may_write: false, is_synchronous: true };

    #[test]
    fn a_word_holds_all_that_is_known() {
        for entry in [Entry::Unknown, Entry::Foreign, Entry::Own, Entry::Bypassed(BYPASS)] {
            assert_eq!(Entry::of_word(entry.word()), entry);
        }
    }

    #[test]
    fn what_was_known_is_forgotten_but_not_who_made_it() {
        assert!(set(60_001, Entry::Bypassed(BYPASS)));
        forget(60_001);
        assert_eq!(get(60_001), Entry::Unknown);
        assert!(set(60_002, Entry::Own));
        forget(60_002);
        assert_eq!(get(60_002), Entry::Own);
        renew(60_002);
        assert_eq!(get(60_002), Entry::Unknown);
        assert!(count() > 60_002);
    }

    #[test]
    fn numbers_beyond_the_table_are_foreign() {
        for fd in [-1, i32::MAX] {
            assert!(!set(fd, Entry::Bypassed(BYPASS)));
            assert_eq!(get(fd), Entry::Foreign);
            forget(fd);
        }
    }
}
