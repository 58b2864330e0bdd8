//! The file of a region: found or made, locked, and all of its memory taken.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;

use crate::error::{RegionError, RegionErrorKind};
use crate::sys;

/// Regions begin and end on pages of this size, so that huge pages can hold them.
pub(crate) const SIZE_UNIT_BYTES: u64 = 2 << 20;

/// The smallest region: room for the tables and some slabs.
const SIZE_BYTES_MIN: u64 = 2 * SIZE_UNIT_BYTES;

/// Left to the machine when a region takes its memory.
const HEADROOM_BYTES: u64 = 64 << 20;

/// How long to wait for a process that is just dying to let go of the lock: the kernel gives its
/// memory back first.
const LOCK_WAIT: Duration = Duration::from_secs(3);

/// Where a region's file shall lie and how large it is.
#[derive(Clone, Debug)]
pub struct RegionSpec {
    /// A file on tmpfs or hugetlbfs. Made when it does not exist, readable by its owner only.
    pub path: PathBuf,
    /// A multiple of 2 MiB. Must be what the file has when it exists.
    pub size_bytes: u64,
}

/// The size of the region at `path`, or `None` when there is none yet.
pub fn existing_size_bytes(path: &Path) -> io::Result<Option<u64>> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some(found.len()).filter(|&bytes| bytes > 0)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens or makes the file, takes its lock, and makes sure of its memory.
pub(crate) fn open(spec: &RegionSpec) -> Result<File, RegionError> {
    let fail = |kind, source| RegionError { kind, path: spec.path.clone(), source };
    let failed = |call| move |error: io::Error| fail(RegionErrorKind::System { call }, Some(error));
    if spec.size_bytes < SIZE_BYTES_MIN || !spec.size_bytes.is_multiple_of(SIZE_UNIT_BYTES) {
        let kind = RegionErrorKind::InvalidSize { asked_bytes: spec.size_bytes };
        return Err(fail(kind, None));
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&spec.path)
        .map_err(failed("open"))?;
    lock(&file).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => fail(RegionErrorKind::Busy, None),
        _ => fail(RegionErrorKind::System { call: "fcntl(F_OFD_SETLK)" }, Some(error)),
    })?;
    let found_bytes = file.metadata().map_err(failed("fstat"))?.len();
    if found_bytes != 0 && found_bytes != spec.size_bytes {
        let kind = RegionErrorKind::SizeDiffers { found_bytes, asked_bytes: spec.size_bytes };
        return Err(fail(kind, None));
    }
    take_memory(&file, spec, found_bytes == 0)?;
    Ok(file)
}

fn lock(file: &File) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match sys::lock_exclusively(file.as_fd()) {
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && begun.elapsed() < LOCK_WAIT =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

/// Allocates every page of the file that it does not have yet. A fresh file that cannot have them
/// is left empty.
fn take_memory(file: &File, spec: &RegionSpec, is_fresh: bool) -> Result<(), RegionError> {
    let fail = |kind, source| RegionError { kind, path: spec.path.clone(), source };
    let failed = |call| move |error: io::Error| fail(RegionErrorKind::System { call }, Some(error));
    let has_bytes = file.metadata().map_err(failed("fstat"))?.blocks() * 512;
    let missing_bytes = spec.size_bytes.saturating_sub(has_bytes);
    if missing_bytes == 0 {
        return Ok(());
    }
    let file_system = rustix::fs::fstatfs(file).map_err(|e| failed("fstatfs")(e.into()))?;
    let block_bytes = u64::try_from(file_system.f_bsize).unwrap_or(1);
    // A file system that sets no limit reports no blocks at all.
    let file_system_bytes = match file_system.f_blocks {
        0 => u64::MAX,
        _ => file_system.f_bavail.saturating_mul(block_bytes),
    };
    let is_hugetlb = file_system.f_type == libc::HUGETLBFS_MAGIC;
    let machine_bytes = if is_hugetlb { u64::MAX } else { machine_available_bytes() };
    let available_bytes = file_system_bytes.min(machine_bytes.saturating_sub(HEADROOM_BYTES));
    let short = || {
        let wanted_bytes = missing_bytes;
        fail(RegionErrorKind::NotEnoughMemory { wanted_bytes, available_bytes }, None)
    };
    if missing_bytes > available_bytes {
        return Err(short());
    }
    let result = rustix::fs::fallocate(file, FallocateFlags::empty(), 0, spec.size_bytes);
    result.map_err(|error| {
        if is_fresh {
            // The error of the allocation is the one to report.
            let _unlikely = file.set_len(0);
        }
        match error {
            rustix::io::Errno::NOSPC | rustix::io::Errno::NOMEM => short(),
            other => failed("fallocate")(other.into()),
        }
    })
}

/// What the kernel says can be had without swapping, or no limit where it says nothing.
fn machine_available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|kibibytes| kibibytes.trim().parse::<u64>().ok())
        .map_or(u64::MAX, |kibibytes| kibibytes << 10)
}
