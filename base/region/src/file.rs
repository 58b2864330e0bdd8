//! The file of a region: found or made, locked, and its memory taken and given back.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;

use crate::error::{RegionError, RegionErrorKind};
use crate::sys;

/// Regions begin and end on pages of this size, so that huge pages can hold them; their memory is
/// taken and given back in such pages.
pub const SIZE_UNIT_BYTES: u64 = 2 << 20;

/// The smallest region: room for the tables and some slabs.
const SIZE_BYTES_MIN: u64 = 2 * SIZE_UNIT_BYTES;

/// The largest region: what its pool can name.
const CAPACITY_MAX: u64 = 2 << 40;

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

/// Opens or makes the file, takes its lock, and makes sure of all of its memory.
pub(crate) fn open(spec: &RegionSpec) -> Result<File, RegionError> {
    let file = open_locked(spec)?;
    let fail = |kind, source| RegionError { kind, path: spec.path.clone(), source };
    let found_bytes = length_of(&file, &spec.path)?;
    if found_bytes != 0 && found_bytes != spec.size_bytes {
        let kind = RegionErrorKind::SizeDiffers { found_bytes, asked_bytes: spec.size_bytes };
        return Err(fail(kind, None));
    }
    let taken = take_memory(&file, &spec.path, std::slice::from_ref(&(0..spec.size_bytes)));
    if taken.is_err() && found_bytes == 0 {
        // The error of the allocation is the one to report.
        let _unlikely = file.set_len(0);
    }
    taken.map(|()| file)
}

/// Opens the file, or makes one of `capacity_bytes` without memory, and takes its lock. Returns it
/// with its capacity, which is what it was when it was made.
pub(crate) fn open_growable(
    spec: &RegionSpec,
    capacity_bytes: u64,
) -> Result<(File, u64), RegionError> {
    let file = open_locked(spec)?;
    let found_bytes = length_of(&file, &spec.path)?;
    if found_bytes != 0 {
        take_first_page(&file, &spec.path)?;
        return Ok((file, found_bytes));
    }
    let capacity_bytes =
        capacity_bytes.max(spec.size_bytes).next_multiple_of(SIZE_UNIT_BYTES).min(CAPACITY_MAX);
    // Looked at before the file has a length: whoever has too little memory leaves nothing behind.
    check_available(&file, &spec.path, spec.size_bytes)?;
    file.set_len(capacity_bytes).map_err(|error| system_error(&spec.path, "ftruncate", error))?;
    take_first_page(&file, &spec.path)?;
    Ok((file, capacity_bytes))
}

/// What says how much memory the rest shall have is looked at before that is known.
fn take_first_page(file: &File, path: &Path) -> Result<(), RegionError> {
    let result = rustix::fs::fallocate(file, FallocateFlags::empty(), 0, SIZE_UNIT_BYTES);
    result.map_err(|error| system_error(path, "fallocate", error.into()))
}

fn open_locked(spec: &RegionSpec) -> Result<File, RegionError> {
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

/// Allocates the ranges of the file that it has no memory for yet. They are all that shall have
/// any: what else the file holds counts as theirs. Where that fails, some of them may have memory.
pub(crate) fn take_memory(
    file: &File,
    path: &Path,
    ranges: &[Range<u64>],
) -> Result<(), RegionError> {
    let wanted_bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let available_bytes = check_available(file, path, wanted_bytes)?;
    for range in ranges {
        let length = range.end - range.start;
        let result = rustix::fs::fallocate(file, FallocateFlags::empty(), range.start, length);
        result.map_err(|error| match error {
            rustix::io::Errno::NOSPC | rustix::io::Errno::NOMEM => {
                let kind = RegionErrorKind::NotEnoughMemory { wanted_bytes, available_bytes };
                RegionError { kind, path: path.to_owned(), source: None }
            }
            other => system_error(path, "fallocate", other.into()),
        })?;
    }
    Ok(())
}

/// Gives the memory of a range of the file back: it reads as zeros then, and takes memory again
/// when it is touched.
pub(crate) fn give_back(file: &File, path: &Path, range: Range<u64>) -> Result<(), RegionError> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let result = rustix::fs::fallocate(file, flags, range.start, range.end - range.start);
    result.map_err(|error| system_error(path, "fallocate(FALLOC_FL_PUNCH_HOLE)", error.into()))
}

/// Memory that the file has.
pub(crate) fn held_bytes(file: &File, path: &Path) -> Result<u64, RegionError> {
    let found = file.metadata().map_err(|error| system_error(path, "fstat", error))?;
    Ok(found.blocks() * 512)
}

/// Refuses when the file cannot come to have `wanted_bytes` of memory. Returns how much more it
/// could have.
fn check_available(file: &File, path: &Path, wanted_bytes: u64) -> Result<u64, RegionError> {
    let missing_bytes = wanted_bytes.saturating_sub(held_bytes(file, path)?);
    if missing_bytes == 0 {
        return Ok(0);
    }
    let file_system =
        rustix::fs::fstatfs(file).map_err(|e| system_error(path, "fstatfs", e.into()))?;
    let block_bytes = u64::try_from(file_system.f_bsize).unwrap_or(1);
    // A file system that sets no limit reports no blocks at all.
    let file_system_bytes = match file_system.f_blocks {
        0 => u64::MAX,
        _ => file_system.f_bavail.saturating_mul(block_bytes),
    };
    let is_hugetlb = file_system.f_type == libc::HUGETLBFS_MAGIC;
    let machine_bytes = if is_hugetlb { u64::MAX } else { machine_available_bytes() };
    let available_bytes = file_system_bytes.min(machine_bytes.saturating_sub(HEADROOM_BYTES));
    if missing_bytes > available_bytes {
        let kind =
            RegionErrorKind::NotEnoughMemory { wanted_bytes: missing_bytes, available_bytes };
        return Err(RegionError { kind, path: path.to_owned(), source: None });
    }
    Ok(available_bytes)
}

fn length_of(file: &File, path: &Path) -> Result<u64, RegionError> {
    Ok(file.metadata().map_err(|error| system_error(path, "fstat", error))?.len())
}

fn system_error(path: &Path, call: &'static str, source: io::Error) -> RegionError {
    let kind = RegionErrorKind::System { call };
    RegionError { kind, path: path.to_owned(), source: Some(source) }
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
