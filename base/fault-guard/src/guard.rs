//! Containment of faults in memory that another process shares and can revoke: its file may be
//! truncated, or its file system may have no free page. An access then causes a `SIGBUS`, which
//! ends a process.
//!
//! With a [`FaultGuard`], the whole mapping is replaced by zeros, its [`LossFlag`] is set, and the
//! access is repeated. Any other `SIGBUS` is as fatal as before.
//!
//! ```text
//! access ─▶ fault ─▶ signal handler ─▶ slot of the address ─▶ flag, zeros ─▶ access again
//!                                   └▶ none: the action that was there before
//! ```
//!
//! The handler takes no lock and allocates no memory: it looks up the address in a table of fixed
//! size. It skips entries that are being changed, which is correct because the guard of an accessed
//! address exists and does not change.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use rustix::fs::fstatfs;
use sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
use vm_memory::MmapRegion;

use crate::sys;

/// Maximum number of guards in a process.
pub const GUARD_COUNT_MAX: usize = 4096;

const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// Flag that is set when memory was lost. Copies share the flag.
#[derive(Clone, Debug, Default)]
pub struct LossFlag(Arc<AtomicBool>);

impl LossFlag {
    /// Returns whether data read from the memory before may have been zeros instead.
    #[inline]
    pub fn is_raised(&self) -> bool {
        // PAIRS-WITH: contain, "the flag is raised before the zeros are there"
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed)
    }
}

/// Contains faults in one mapping while it exists. Keeps the mapping alive, and excludes it from
/// core dumps.
pub struct FaultGuard {
    slot: &'static Slot,
    /// Kept alive, because the handler may use it until the slot is free.
    _flag: LossFlag,
    _region: Arc<MmapRegion>,
}

/// Entry of the table that the handler reads: a seqlock whose writers hold `REGISTRY`.
struct Slot {
    /// Odd while the other fields are being changed.
    version: AtomicUsize,
    /// Zero if the slot is free.
    start: AtomicUsize,
    end: AtomicUsize,
    flag: AtomicPtr<AtomicBool>,
}

static SLOTS: [Slot; GUARD_COUNT_MAX] = [const { Slot::free() }; GUARD_COUNT_MAX];
static REGISTRY: Mutex<Handler> = Mutex::new(Handler::Absent);

const NO_PANIC: &str = "no thread panics with this lock";

enum Handler {
    Absent,
    Installed,
}

impl FaultGuard {
    /// Creates a guard. Fails if the region is not a shared file mapping, all guards are in use, or
    /// the handler cannot be installed.
    pub fn new(region: Arc<MmapRegion>, flag: &LossFlag) -> io::Result<Self> {
        let range = mapped_range(&region)?;
        sys::keep_out_of_dumps(&region)?;
        let mut handler = REGISTRY.lock().expect(NO_PANIC);
        if matches!(*handler, Handler::Absent) {
            sys::install_handler(contain)?;
            *handler = Handler::Installed;
        }
        let is_free = |slot: &&Slot| slot.start.load(Ordering::Relaxed) == 0;
        let Some(slot) = SLOTS.iter().find(is_free) else {
            let message =
                format!("too many mapped regions of shared memory; the limit is {GUARD_COUNT_MAX}");
            return Err(io::Error::other(message));
        };
        slot.change(&range, Arc::as_ptr(&flag.0).cast_mut());
        Ok(Self { slot, _flag: flag.clone(), _region: region })
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        let _registry = REGISTRY.lock().expect(NO_PANIC);
        self.slot.change(&(0..0), std::ptr::null_mut());
    }
}

impl fmt::Debug for FaultGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultGuard").finish_non_exhaustive()
    }
}

impl Slot {
    const fn free() -> Self {
        Self {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            flag: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Changes the slot. Must be called with the registry's lock held.
    fn change(&self, range: &Range<usize>, flag: *mut AtomicBool) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // PAIRS-WITH: read, "a reader of a part of a change sees the odd version"
        fence(Ordering::Release);
        self.start.store(range.start, Ordering::Relaxed);
        self.end.store(range.end, Ordering::Relaxed);
        self.flag.store(flag, Ordering::Relaxed);
        // PAIRS-WITH: read, "a reader of the even version sees all of the change"
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Contents of the slot. `None` if it is free or being changed.
    fn read(&self) -> Option<(Range<usize>, *mut AtomicBool)> {
        // PAIRS-WITH: change, "a reader of the even version sees all of the change"
        let version = self.version.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        let end = self.end.load(Ordering::Relaxed);
        let flag = self.flag.load(Ordering::Relaxed);
        // PAIRS-WITH: change, "a reader of a part of a change sees the odd version"
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        (is_whole && start != 0).then_some((start..end, flag))
    }
}

/// Replaces the mapping that contains `address` by zeros. Returns false if no guarded mapping
/// contains it. Called by the signal handler: takes no lock and allocates no memory.
fn contain(address: usize) -> bool {
    let guarded = SLOTS.iter().filter_map(Slot::read).find(|(range, _)| range.contains(&address));
    let Some((range, flag)) = guarded else { return false };
    sys::raise(flag);
    // PAIRS-WITH: is_raised, "the flag is raised before the zeros are there"
    fence(Ordering::Release);
    sys::replace_by_zeros(&range)
}

/// Address range of the mapping in whole pages.
fn mapped_range(region: &MmapRegion) -> io::Result<Range<usize>> {
    let is_shared = region.flags() & libc::MAP_SHARED != 0;
    let Some(file) = region.file_offset().filter(|_| is_shared).map(|it| it.file()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "no file is mapped at that address",
        ));
    };
    let file_system = fstatfs(file)?;
    let page_bytes = match file_system.f_type {
        HUGETLBFS_MAGIC => usize::try_from(file_system.f_bsize).map_err(io::Error::other)?,
        _ => rustix::param::page_size(),
    };
    let start = region.as_ptr().addr();
    Ok(start..start + region.size().next_multiple_of(page_bytes))
}
