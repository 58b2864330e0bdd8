//! Devices that this process uses through the ring, and targets that are left to the kernel.
//!
//! Devices are added under a lock that is held only briefly. They are never removed, except all at
//! once in a forked child, which must not use its parent's devices. Lookups take no lock. The
//! volume of a device can change while the device is not open, so every new descriptor is looked
//! up; descriptors share a device only if they are open on the same volume.

use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use sdk::RawKind;

use crate::link::{self, Disk, Refusal, Target};
use crate::lock::TryLock;
use crate::notice::{self, Reason};
use crate::settings::Settings;
use crate::sys;

const DEVICES_MAX: usize = 64;
const KERNEL_ONLY_MAX: usize = 64;

/// Alignment mask of memory buffers for direct I/O.
const DIRECT_MEMORY_MASK: u64 = 511;

/// A volume on which descriptors of this process are open.
pub(crate) struct Device {
    target: Target,
    pub(crate) disk: Disk,
    /// Mask for offsets, lengths and memory addresses: requests that have any of these bits set go
    /// to the kernel, which accepts or refuses them.
    pub(crate) length_mask: u64,
    pub(crate) memory_mask: u64,
    /// All later requests go to the kernel.
    is_left: AtomicBool,
    /// The page cache may contain data older than the device's.
    is_written: AtomicBool,
}

static DEVICES: [AtomicPtr<Device>; DEVICES_MAX] =
    [const { AtomicPtr::new(ptr::null_mut()) }; DEVICES_MAX];
static DEVICE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Targets that this process or an ancestor has mapped into memory or used through the page cache.
static KERNEL_ONLY: [[AtomicU64; 2]; KERNEL_ONLY_MAX] =
    [const { [const { AtomicU64::new(0) }; 2] }; KERNEL_ONLY_MAX];
static KERNEL_ONLY_COUNT: AtomicUsize = AtomicUsize::new(0);

static LOCK: TryLock = TryLock::new();

/// No ring is available. The kernel serves everything from now on.
static IS_OFF: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_off() -> bool {
    IS_OFF.load(Ordering::Relaxed) || sdk::is_untold_child()
}

/// Result of the lookup of a descriptor that may be a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// The descriptor is a volume, reached through the device of this index.
    Device(u8),
    /// The descriptor is no volume, or a volume that must not be bypassed.
    Foreign,
    /// Another thread holds the lock; a later lookup will succeed.
    Later,
}

/// Finds or creates the device of `target`.
pub(crate) fn join(target: Target) -> Joined {
    // Waits for the lock, because two threads that start at the same time would otherwise leave an
    // aio context to the kernel for good.
    let Some(_locked) = LOCK.lock_for_a_while() else { return Joined::Later };
    if is_kernel_only(target) {
        return Joined::Foreign;
    }
    let disk = match link::open(target) {
        Ok(disk) => disk,
        Err(refusal) => return refused(&refusal),
    };
    if !Settings::get().wants(disk.name()) {
        return Joined::Foreign;
    }
    let count = DEVICE_COUNT.load(Ordering::Relaxed);
    let is_same = |device: &Device| device.target == target && device.disk.is_same(&disk);
    let known = (0..count).find(|&index| find_at(index).is_some_and(is_same));
    match known {
        Some(index) => Joined::Device(u8::try_from(index).unwrap_or(u8::MAX)),
        None => add(target, disk),
    }
}

fn refused(refusal: &Refusal) -> Joined {
    match refusal {
        Refusal::NoVolume => Joined::Foreign,
        Refusal::Away => Joined::Later,
        Refusal::Refused(error) => {
            let detail = format_args!("{error}; its I/O goes through the kernel");
            notice::say(Reason::Refused, detail);
            Joined::Foreign
        }
        Refusal::NoRing(error) => {
            IS_OFF.store(true, Ordering::Relaxed);
            let detail = format_args!("{error}; I/O on volumes goes through the kernel");
            notice::say(Reason::NoRing, detail);
            Joined::Foreign
        }
    }
}

fn add(target: Target, disk: Disk) -> Joined {
    let index = DEVICE_COUNT.load(Ordering::Relaxed);
    let Some(place) = DEVICES.get(index) else {
        let detail = format_args!(
            "more than {DEVICES_MAX} volumes are open: I/O on the others goes through the kernel"
        );
        notice::say(Reason::TooMany, detail);
        return Joined::Foreign;
    };
    let (length_mask, memory_mask) = match target {
        Target::BlockDevice { .. } => (disk.sector_bytes - 1, DIRECT_MEMORY_MASK),
        Target::File { .. } => (0, 0),
    };
    let device = Box::new(Device {
        target,
        disk,
        length_mask,
        memory_mask,
        is_left: AtomicBool::new(false),
        is_written: AtomicBool::new(false),
    });
    // PAIRS-WITH: find_at, "the device is complete"
    place.store(Box::leak(device), Ordering::Release);
    DEVICE_COUNT.store(index + 1, Ordering::Relaxed);
    Joined::Device(u8::try_from(index).unwrap_or(u8::MAX))
}

/// Returns the device of this index, unless it was left to the kernel.
pub(crate) fn find(index: u8) -> Option<&'static Device> {
    find_at(usize::from(index)).filter(|device| !device.is_left.load(Ordering::Relaxed))
}

fn find_at(index: usize) -> Option<&'static Device> {
    // PAIRS-WITH: add, "the device is complete"
    let device = DEVICES.get(index)?.load(Ordering::Acquire);
    // SAFETY:
    // - alive, initialised, aligned: only leaked boxes are stored there.
    // - exclusive: no thread has it mutably.
    unsafe { device.as_ref() }
}

/// Leaves `target`, on which `fd` is open, to the kernel from now on. Returns whether this is new.
pub(crate) fn leave(target: Target, fd: RawFd) -> bool {
    // If the target cannot be recorded, bypassing is disabled altogether.
    let Some(_locked) = LOCK.lock_for_a_while() else {
        IS_OFF.store(true, Ordering::Relaxed);
        return true;
    };
    let count = DEVICE_COUNT.load(Ordering::Relaxed);
    let devices = (0..count).filter_map(find_at).filter(|device| device.target == target);
    devices.for_each(|device| {
        device.is_left.store(true, Ordering::Relaxed);
        device.refresh_page_cache(fd);
    });
    if is_kernel_only(target) {
        return false;
    }
    let count = KERNEL_ONLY_COUNT.load(Ordering::Relaxed);
    let Some(place) = KERNEL_ONLY.get(count) else {
        IS_OFF.store(true, Ordering::Relaxed);
        return true;
    };
    let words = target.words();
    place[0].store(words[0], Ordering::Relaxed);
    place[1].store(words[1], Ordering::Relaxed);
    KERNEL_ONLY_COUNT.store(count + 1, Ordering::Relaxed);
    true
}

/// Must be called with the lock held.
fn is_kernel_only(target: Target) -> bool {
    let count = KERNEL_ONLY_COUNT.load(Ordering::Relaxed);
    let words = target.words();
    KERNEL_ONLY[..count]
        .iter()
        .any(|place| [0, 1].iter().all(|&i| place[i].load(Ordering::Relaxed) == words[i]))
}

/// Forgets all devices in a forked child, because their rings belong to the parent.
pub(crate) fn forget_all() {
    for place in &DEVICES {
        place.store(ptr::null_mut(), Ordering::Relaxed);
    }
    DEVICE_COUNT.store(0, Ordering::Relaxed);
    LOCK.force_open();
}

impl Device {
    pub(crate) fn is_block_device(&self) -> bool {
        matches!(self.target, Target::BlockDevice { .. })
    }

    pub(crate) fn target(&self) -> Target {
        self.target
    }

    /// Called before a request of this kind.
    pub(crate) fn will_be_written_by(&self, kind: RawKind) {
        if kind == RawKind::Write {
            self.will_be_written();
        }
    }

    /// Called before each write.
    pub(crate) fn will_be_written(&self) {
        // Checked first, because unconditional stores of all threads would contend for the cache
        // line.
        if !self.is_written.load(Ordering::Relaxed) {
            self.is_written.store(true, Ordering::Relaxed);
        }
    }

    /// Drops stale pages, so that other programs read the written data through the page cache.
    pub(crate) fn refresh_page_cache(&self, fd: RawFd) {
        if self.is_block_device() && self.is_written.swap(false, Ordering::Relaxed) {
            sys::drop_page_cache(fd);
        }
    }
}
