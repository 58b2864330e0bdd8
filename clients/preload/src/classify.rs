//! Classification of unknown descriptors: volumes whose I/O can bypass the kernel, and others.
//!
//! A volume is bypassed if the kernel caches none of its data for this descriptor: a block device
//! that is open for direct I/O and not mounted, or the file of a volume, which its file system
//! serves without a page cache. All other I/O goes through the kernel, also that of a block device
//! that this process also uses through the page cache.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::devices::{self, Joined};
use crate::fork;
use crate::inside::Inside;
use crate::link::Target;
use crate::notice;
use crate::settings::Settings;
use crate::sys::{self, OpenedFor, Status, StatusKind};
use crate::table::{self, Bypass, Entry};

/// Cache of file systems that are not FUSE.
const KNOWN_MAX: usize = 32;
static KNOWN: [AtomicU64; KNOWN_MAX] = [const { AtomicU64::new(0) }; KNOWN_MAX];

/// Bypass of `fd`; `None` if its I/O goes through the kernel. The result is cached.
#[cold]
pub(crate) fn classify(fd: RawFd) -> Option<Bypass> {
    if devices::is_off() || sdk::is_guest() {
        return None;
    }
    let _inside = Inside::enter()?;
    // A closed descriptor is not cached: the kernel reports the error, and the number may be opened
    // next.
    let target = candidate(fd, sys::status(fd)?);
    let opened = target.and_then(|_| sys::opened_for(fd));
    let found = match target.zip(opened) {
        Some((target, opened)) if may_be_bypassed(fd, target, opened) => join(fd, target, opened),
        _ => Some(Entry::Foreign),
    };
    // Another thread is looking up the device, so nothing is cached yet.
    let entry = found?;
    table::set(fd, entry);
    match entry {
        Entry::Bypassed(bypass) => Some(bypass),
        _ => None,
    }
}

/// Target of a descriptor that may be a volume: a block device, or a file on a FUSE file system.
pub(crate) fn candidate(fd: RawFd, status: Status) -> Option<Target> {
    match status.kind {
        StatusKind::BlockDevice => Some(Target::BlockDevice { number: status.device }),
        StatusKind::File if is_served(fd, status.file_system) => {
            Some(Target::File { file_system: status.file_system, inode: status.inode })
        }
        _ => None,
    }
}

fn is_served(fd: RawFd, file_system: u64) -> bool {
    // File systems on block devices have a nonzero major number.
    if rustix::fs::major(file_system) != 0 {
        return false;
    }
    let is_known = |place: &AtomicU64| place.load(Ordering::Relaxed) == file_system;
    if KNOWN.iter().any(is_known) {
        return false;
    }
    let is_served = sys::is_on_fuse(fd) == Some(true);
    if !is_served {
        let free = |place: &&AtomicU64| place.load(Ordering::Relaxed) == 0;
        // If the cache is full, the next lookup queries the kernel again.
        if let Some(place) = KNOWN.iter().find(free) {
            place.store(file_system, Ordering::Relaxed);
        }
    }
    is_served
}

fn may_be_bypassed(fd: RawFd, target: Target, opened: OpenedFor) -> bool {
    match target {
        Target::BlockDevice { .. } if !opened.is_direct => {
            devices::leave(target, fd);
            false
        }
        _ if opened.is_peculiar => false,
        Target::BlockDevice { .. } => sys::is_unclaimed(fd),
        Target::File { .. } => {
            (opened.is_direct || !Settings::get().direct_only) && sys::files_have_no_limit()
        }
    }
}

fn join(fd: RawFd, target: Target, opened: OpenedFor) -> Option<Entry> {
    // A child must not use its parent's rings.
    if !fork::is_watched() {
        return Some(Entry::Foreign);
    }
    let device = match devices::join(target) {
        Joined::Device(device) => device,
        Joined::Foreign => return Some(Entry::Foreign),
        Joined::Later => return None,
    };
    if matches!(target, Target::BlockDevice { .. }) {
        // Written back and dropped, so that the ring sees data that others wrote through the page
        // cache.
        sys::drop_page_cache(fd);
    }
    let name = devices::find(device).map_or("", |device| device.disk.name());
    notice::report_descriptor(fd, format_args!("volume {name}, through the ring"));
    Some(Entry::Bypassed(Bypass {
        device,
        may_read: opened.may_read,
        may_write: opened.may_write,
        is_synchronous: opened.is_synchronous,
    }))
}
