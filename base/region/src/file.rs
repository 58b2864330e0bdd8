//! File of a region: creation, opening, locking, and allocation of its memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::error::{RegionError, RegionErrorKind};
use crate::host_memory::HostMemory;
use crate::sys;

/// Page size of regions, for huge pages. Memory is allocated and freed in these pages.
pub const SIZE_UNIT_BYTES: u64 = 2 << 20;

/// Minimum size of a region, with room for the tables and some slabs.
const SIZE_BYTES_MIN: u64 = 2 * SIZE_UNIT_BYTES;

/// Maximum size of a region: the address range of page references.
const CAPACITY_MAX: u64 = 2 << 40;

/// Memory that is left to the host when a region allocates memory.
const HEADROOM_BYTES: u64 = 64 << 20;

/// Maximum wait for a terminating process to release the lock, which happens after the kernel has
/// freed its memory.
const LOCK_WAIT: Duration = Duration::from_secs(3);

/// Path and size of a region.
#[derive(Clone, Debug)]
pub struct RegionSpec {
    /// File on tmpfs or hugetlbfs. If it does not exist, it is created and is readable only by its
    /// owner.
    pub path: PathBuf,
    /// A multiple of 2 MiB. Must match the size of an existing file.
    pub size_bytes: u64,
}

/// Size of the region at `path`. `None` if there is none yet.
pub fn existing_size_bytes(path: &Path) -> io::Result<Option<u64>> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some(found.len()).filter(|&bytes| bytes > 0)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens or creates the file and locks it. Fails if its memory is not available.
pub(crate) fn open(spec: &RegionSpec) -> Result<File, RegionError> {
    let file = open_locked(spec)?;
    let found_bytes = length_of(&file, &spec.path)?;
    if found_bytes == 0 {
        make(&file, spec, spec.size_bytes)?;
    } else if found_bytes != spec.size_bytes {
        let kind = RegionErrorKind::SizeDiffers { found_bytes, asked_bytes: spec.size_bytes };
        return Err(RegionError { kind, path: spec.path.clone(), source: None });
    }
    Ok(file)
}

/// Opens the file, or creates one of `capacity_bytes` without memory, and locks it. Also returns
/// its capacity, which does not change after creation.
pub(crate) fn open_growable(
    spec: &RegionSpec,
    capacity_bytes: u64,
) -> Result<(File, u64), RegionError> {
    let file = open_locked(spec)?;
    let found_bytes = length_of(&file, &spec.path)?;
    if found_bytes != 0 {
        check_region(&file, spec, found_bytes)?;
        return Ok((file, found_bytes));
    }
    let capacity_bytes =
        capacity_bytes.max(spec.size_bytes).next_multiple_of(SIZE_UNIT_BYTES).min(CAPACITY_MAX);
    make(&file, spec, capacity_bytes)?;
    Ok((file, capacity_bytes))
}

/// Refuses a file that cannot be a region, or that other users can access. Changes nothing.
fn check_region(file: &File, spec: &RegionSpec, found_bytes: u64) -> Result<(), RegionError> {
    let refused = |kind| Err(RegionError { kind, path: spec.path.clone(), source: None });
    if !(SIZE_BYTES_MIN..=CAPACITY_MAX).contains(&found_bytes)
        || !found_bytes.is_multiple_of(SIZE_UNIT_BYTES)
    {
        return refused(RegionErrorKind::NotARegion { found_bytes });
    }
    let found = file.metadata().map_err(|error| system_error(&spec.path, "fstat", error))?;
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    if owner != rustix::process::geteuid().as_raw() || mode & 0o077 != 0 {
        return refused(RegionErrorKind::NotPrivate { owner, mode });
    }
    Ok(())
}

/// Sets the length of a new file, without allocating memory. The available memory is checked
/// before, so that a failure leaves no file contents.
fn make(file: &File, spec: &RegionSpec, length_bytes: u64) -> Result<(), RegionError> {
    let path = &spec.path;
    let available = file_system(file, path)?.available();
    if spec.size_bytes > available.bytes {
        return Err(available.too_little(path, spec.size_bytes));
    }
    file.set_len(length_bytes).map_err(|error| system_error(path, "ftruncate", error))
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

/// Allocates memory for a range of the file.
pub(crate) fn allocate(file: &File, path: &Path, range: Range<u64>) -> Result<(), RegionError> {
    let length = range.end - range.start;
    let result = rustix::fs::fallocate(file, FallocateFlags::empty(), range.start, length);
    result.map_err(|error| match error {
        Errno::NOSPC | Errno::NOMEM => not_enough(file, path, length),
        other => system_error(path, "fallocate", other.into()),
    })
}

/// Returns how much the file lacks of `expected_bytes`. Fails if it cannot get the wanted memory
/// now. Part of the wanted memory may exist already, so at most what is lacking is needed. Huge
/// pages of hugetlbfs were reserved by [`reserve`].
pub(crate) fn check_available(
    file: &File,
    path: &Path,
    wanted_bytes: u64,
    expected_bytes: u64,
) -> Result<u64, RegionError> {
    let held = || held_bytes(file, path);
    if held()? >= expected_bytes {
        return Ok(0);
    }
    let system = file_system(file, path)?;
    if system.huge_page_bytes.is_some() {
        return Ok(expected_bytes.saturating_sub(held()?));
    }
    Need { wanted_bytes, expected_bytes }.check(path, || system.available(), held)
}

/// Reserves the huge pages that ranges of the file will need. The kernel keeps them for the file
/// until it is deleted. Without hugetlbfs there is no reservation.
pub(crate) fn reserve(file: &File, path: &Path, ranges: &[Range<u64>]) -> Result<(), RegionError> {
    if file_system(file, path)?.huge_page_bytes.is_none() {
        return Ok(());
    }
    ranges.iter().try_for_each(|range| {
        let length = range.end - range.start;
        sys::reserve(file.as_fd(), range.start, length).map_err(|error| {
            match error.raw_os_error() == Some(libc::ENOMEM) {
                true => not_enough(file, path, length),
                false => system_error(path, "mmap", error),
            }
        })
    })
}

/// Frees the memory of a range. The range then reads as zeros, and gets memory again when it is
/// accessed.
pub(crate) fn give_back(file: &File, path: &Path, range: Range<u64>) -> Result<(), RegionError> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let result = rustix::fs::fallocate(file, flags, range.start, range.end - range.start);
    result.map_err(|error| system_error(path, "fallocate(FALLOC_FL_PUNCH_HOLE)", error.into()))
}

/// Memory that the file has, in bytes.
pub(crate) fn held_bytes(file: &File, path: &Path) -> Result<u64, RegionError> {
    let found = file.metadata().map_err(|error| system_error(path, "fstat", error))?;
    Ok(found.blocks() * 512)
}

/// Source of a file's memory.
struct FileSystem {
    /// Free memory of the file system.
    free_bytes: u64,
    /// Page size of hugetlbfs; `None` for other file systems.
    huge_page_bytes: Option<u64>,
}

/// Memory that a file can still get.
#[derive(Default)]
struct Available {
    bytes: u64,
    /// Limit of the control group, if that is the smallest limit.
    group_limit_bytes: Option<u64>,
}

/// Memory that an allocation needs.
struct Need {
    /// Memory of the wanted ranges, part of which may exist already.
    wanted_bytes: u64,
    /// Memory that the whole file should have.
    expected_bytes: u64,
}

impl Need {
    /// Measures the free memory first, and then the memory that the file holds. Other threads may
    /// allocate memory of the file between the measurements; in this order, their memory does not
    /// count as missing.
    fn check(
        &self,
        path: &Path,
        available: impl FnOnce() -> Available,
        held_bytes: impl FnOnce() -> Result<u64, RegionError>,
    ) -> Result<u64, RegionError> {
        let available = available();
        let missing_bytes = self.expected_bytes.saturating_sub(held_bytes()?);
        match self.wanted_bytes.min(missing_bytes) <= available.bytes {
            true => Ok(missing_bytes),
            false => Err(available.too_little(path, missing_bytes)),
        }
    }
}

impl FileSystem {
    fn available(&self) -> Available {
        let host = match self.huge_page_bytes {
            Some(page_bytes) => {
                let bytes = huge_pages_available_bytes(page_bytes);
                Available { bytes, group_limit_bytes: None }
            }
            None => {
                let memory = HostMemory::now();
                Available {
                    bytes: memory.available_bytes.saturating_sub(HEADROOM_BYTES),
                    group_limit_bytes: memory.limited_by.map(|limit| limit.limit_bytes),
                }
            }
        };
        match self.free_bytes < host.bytes {
            true => Available { bytes: self.free_bytes, group_limit_bytes: None },
            false => host,
        }
    }
}

impl Available {
    fn too_little(&self, path: &Path, wanted_bytes: u64) -> RegionError {
        let available_bytes = self.bytes;
        let kind = match self.group_limit_bytes {
            None => RegionErrorKind::NotEnoughMemory { wanted_bytes, available_bytes },
            Some(limit_bytes) => {
                RegionErrorKind::GroupLimit { wanted_bytes, available_bytes, limit_bytes }
            }
        };
        RegionError { kind, path: path.to_owned(), source: None }
    }
}

fn file_system(file: &File, path: &Path) -> Result<FileSystem, RegionError> {
    let found = rustix::fs::fstatfs(file).map_err(|e| system_error(path, "fstatfs", e.into()))?;
    let block_bytes = u64::try_from(found.f_bsize).unwrap_or(1);
    // A file system without a limit reports zero blocks.
    let free_bytes = match found.f_blocks {
        0 => u64::MAX,
        _ => found.f_bavail.saturating_mul(block_bytes),
    };
    let is_hugetlb = found.f_type == libc::HUGETLBFS_MAGIC;
    Ok(FileSystem { free_bytes, huge_page_bytes: is_hugetlb.then_some(block_bytes) })
}

/// Error of an allocation that failed although enough memory seemed to be available.
pub(crate) fn not_enough(file: &File, path: &Path, wanted_bytes: u64) -> RegionError {
    let available = file_system(file, path).map(|system| system.available());
    available.unwrap_or_default().too_little(path, wanted_bytes)
}

fn length_of(file: &File, path: &Path) -> Result<u64, RegionError> {
    Ok(file.metadata().map_err(|error| system_error(path, "fstat", error))?.len())
}

pub(crate) fn system_error(path: &Path, call: &'static str, source: io::Error) -> RegionError {
    let kind = RegionErrorKind::System { call };
    RegionError { kind, path: path.to_owned(), source: Some(source) }
}

/// Free and unreserved huge pages of one size, or the maximum if the kernel does not report them.
fn huge_pages_available_bytes(page_bytes: u64) -> u64 {
    let folder = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", page_bytes >> 10);
    let number = |name: &str| -> Option<u64> {
        std::fs::read_to_string(format!("{folder}/{name}")).ok()?.trim().parse().ok()
    };
    let pages = || {
        let free = number("free_hugepages")?.saturating_sub(number("resv_hugepages")?);
        let more = number("nr_overcommit_hugepages")?.saturating_sub(number("surplus_hugepages")?);
        Some(free + more)
    };
    pages().map_or(u64::MAX, |count| count.saturating_mul(page_bytes))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn memory_that_other_threads_allocate_meanwhile_is_not_missing() {
        // A file system with room for the file and one page more.
        let (size_bytes, expected_bytes) = (66 << 20, 64 << 20);
        let held_bytes = Cell::new(52 << 20);
        let others_allocate = || held_bytes.set(62 << 20);
        let need = Need { wanted_bytes: 12 << 20, expected_bytes };
        let available = || {
            let bytes = size_bytes - held_bytes.get();
            others_allocate();
            Available { bytes, group_limit_bytes: None }
        };
        let held = || {
            let bytes = held_bytes.get();
            others_allocate();
            Ok(bytes)
        };
        let missing = need.check(Path::new("region"), available, held);
        assert_eq!(missing.expect("there is room for all of it"), 2 << 20);
    }

    #[test]
    fn a_shortage_names_what_is_missing() {
        let need = Need { wanted_bytes: 8 << 20, expected_bytes: 64 << 20 };
        let available = || Available { bytes: 2 << 20, group_limit_bytes: None };
        let error = need.check(Path::new("region"), available, || Ok(60 << 20));
        let kind = error.expect_err("4 MiB are missing, and 2 are free").kind;
        let (wanted_bytes, available_bytes) = (4 << 20, 2 << 20);
        assert_eq!(kind, RegionErrorKind::NotEnoughMemory { wanted_bytes, available_bytes });
    }
}
