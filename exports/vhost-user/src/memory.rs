//! Guest memory that a front end shares.
//!
//! There are two address spaces: guest physical addresses, which descriptors use, and addresses of
//! the front end's process, which locate the rings. Guest memory may change at any time, so it is
//! only ever copied. If its file cannot be sealed, the front end can truncate it; that disables the
//! disk and nothing else.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use fault_guard::{FaultGuard, LossFlag};
use rustix::fs::{SealFlags, fcntl_add_seals, fstat, fstatfs};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::mmap::MmapRegionError;
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryError, GuestMemoryMmap,
    GuestRegionCollectionError, GuestRegionMmap, MmapRegion,
};

/// Maximum number of memory regions per front end.
pub(crate) const REGION_COUNT_MAX: usize = 256;

const TMPFS_MAGIC: i64 = 0x0102_1994;
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// Guest memory, addressed by guest physical addresses.
#[derive(Clone, Default)]
pub(crate) struct Ram {
    mapped: GuestMemoryMmap<()>,
    guards: Vec<Arc<FaultGuard>>,
    loss: LossFlag,
}

impl Ram {
    pub(crate) fn mapped(&self) -> &GuestMemoryMmap<()> {
        &self.mapped
    }

    /// Returns whether the front end has truncated its memory, so that reads may have returned
    /// zeros. Must be checked after reading and before acting on the result.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.loss.is_raised()
    }

    /// Reads guest memory. The fast path looks up one region, which contains nearly every range.
    #[inline]
    pub(crate) fn copy_in(
        &self,
        into: &mut [u8],
        from: GuestAddress,
    ) -> Result<(), GuestMemoryError> {
        if let Some((region, inside)) = self.mapped.to_region_addr(from)
            && region.read_slice(into, inside).is_ok()
        {
            return Ok(());
        }
        self.mapped.read_slice(into, from)
    }

    /// Writes guest memory, in the same way as [`Ram::copy_in`].
    #[inline]
    pub(crate) fn copy_out(&self, from: &[u8], to: GuestAddress) -> Result<(), GuestMemoryError> {
        if let Some((region, inside)) = self.mapped.to_region_addr(to)
            && region.write_slice(from, inside).is_ok()
        {
            return Ok(());
        }
        self.mapped.write_slice(from, to)
    }

    #[cfg(test)]
    pub(crate) fn of_bytes(bytes: usize) -> Self {
        let mapped = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), bytes)]).expect("memory");
        Self { mapped, ..Self::default() }
    }
}

impl Deref for Ram {
    type Target = GuestMemoryMmap<()>;

    fn deref(&self) -> &Self::Target {
        &self.mapped
    }
}

/// Error while a memory region is mapped or removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error(
        "the guest's memory is not a memfd, nor a file on tmpfs or hugetlbfs; use \
             memory-backend-memfd with share=on"
    )]
    NotMemory,
    #[error("too many memory regions; the limit is {REGION_COUNT_MAX}")]
    TooMany,
    #[error("a memory region of {bytes} bytes exceeds the address space")]
    EndsNowhere { bytes: u64 },
    #[error("no memory region of {bytes} bytes at guest address {address:#x}")]
    NoSuchRegion { address: u64, bytes: u64 },
    #[error("a memory region of {bytes} bytes at offset {offset} is empty or exceeds its file")]
    BehindEnd { offset: u64, bytes: u64 },
    #[error("cannot stat the file of the guest's memory")]
    Examine(#[source] io::Error),
    #[error("cannot map the guest's memory")]
    Map(#[from] MmapRegionError),
    #[error("cannot guard the guest's memory against truncation (SIGBUS)")]
    Guard(#[source] io::Error),
    #[error("memory regions overlap")]
    Arrange(#[from] GuestRegionCollectionError),
}

/// A memory region as the front end describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) guest_start: u64,
    pub(crate) bytes: u64,
    /// Address in the front end's process.
    pub(crate) front_start: u64,
    pub(crate) file_offset: u64,
}

impl From<&VhostUserMemoryRegion> for Window {
    fn from(region: &VhostUserMemoryRegion) -> Self {
        Self {
            guest_start: region.guest_phys_addr,
            bytes: region.memory_size,
            front_start: region.user_addr,
            file_offset: region.mmap_offset,
        }
    }
}

/// All memory regions at one instant. Immutable: requests in flight keep the map that they started
/// with.
#[derive(Clone, Default)]
pub(crate) struct MemoryMap {
    /// Each window has its guard at the same index in `ram`.
    windows: Vec<Window>,
    ram: Arc<Ram>,
}

impl MemoryMap {
    pub(crate) fn ram(&self) -> &Arc<Ram> {
        &self.ram
    }

    /// Returns this map plus one region.
    pub(crate) fn with(&self, window: Window, file: File) -> Result<Self, MemoryError> {
        if self.windows.len() >= REGION_COUNT_MAX {
            return Err(MemoryError::TooMany);
        }
        let loss = self.ram.loss.clone();
        let shared = Shared::map(file, window.file_offset, window.bytes, &loss)?;
        let nowhere = || MemoryError::EndsNowhere { bytes: window.bytes };
        window.front_start.checked_add(window.bytes).ok_or_else(nowhere)?;
        let start = GuestAddress(window.guest_start);
        let region = GuestRegionMmap::with_arc(shared.mapping, start).ok_or_else(nowhere)?;
        let mapped = self.ram.insert_region(Arc::new(region))?;
        let (mut windows, mut guards) = (self.windows.clone(), self.ram.guards.clone());
        windows.push(window);
        guards.push(Arc::new(shared.guard));
        Ok(Self { windows, ram: Arc::new(Ram { mapped, guards, loss }) })
    }

    /// Returns this map without one of its regions.
    pub(crate) fn without(&self, window: Window) -> Result<Self, MemoryError> {
        let is_meant = |it: &Window| {
            (it.guest_start, it.bytes, it.front_start)
                == (window.guest_start, window.bytes, window.front_start)
        };
        let Some(index) = self.windows.iter().position(is_meant) else {
            let (address, bytes) = (window.guest_start, window.bytes);
            return Err(MemoryError::NoSuchRegion { address, bytes });
        };
        let (mapped, _region) =
            self.ram.remove_region(GuestAddress(window.guest_start), window.bytes)?;
        let (mut windows, mut guards) = (self.windows.clone(), self.ram.guards.clone());
        windows.remove(index);
        guards.remove(index);
        let loss = self.ram.loss.clone();
        Ok(Self { windows, ram: Arc::new(Ram { mapped, guards, loss }) })
    }

    /// Translates an address of the front end's process to a guest physical address.
    pub(crate) fn guest_address(&self, front_address: u64) -> Option<GuestAddress> {
        self.windows.iter().find_map(|window| {
            let offset = front_address.checked_sub(window.front_start)?;
            (offset < window.bytes).then(|| GuestAddress(window.guest_start + offset))
        })
    }
}

/// Shared memory of a front end, with its fault guard.
pub(crate) struct Shared {
    pub(crate) mapping: Arc<MmapRegion>,
    pub(crate) guard: FaultGuard,
}

impl Shared {
    /// Maps a part of a front end's file, and seals the file against shrinking if it supports
    /// seals. `loss` is raised if the file shrinks anyway, or a page cannot be allocated.
    pub(crate) fn map(
        file: File,
        offset: u64,
        bytes: u64,
        loss: &LossFlag,
    ) -> Result<Self, MemoryError> {
        close_on_exec(&file).map_err(MemoryError::Examine)?;
        let mapping = Arc::new(map_shared(file, offset, bytes)?);
        let guard = FaultGuard::new(Arc::clone(&mapping), loss).map_err(MemoryError::Guard)?;
        Ok(Self { mapping, guard })
    }
}

/// Sets close-on-exec. Descriptors arrive without it, and child processes would inherit them.
pub(crate) fn close_on_exec(file: &File) -> io::Result<()> {
    let flags = fcntl_getfd(file)?;
    Ok(fcntl_setfd(file, flags | FdFlags::CLOEXEC)?)
}

fn map_shared(file: File, offset: u64, bytes: u64) -> Result<MmapRegion, MemoryError> {
    let file_system = fstatfs(&file).map_err(|error| MemoryError::Examine(error.into()))?;
    if ![TMPFS_MAGIC, HUGETLBFS_MAGIC].contains(&file_system.f_type) {
        return Err(MemoryError::NotMemory);
    }
    if let Err(error) = fcntl_add_seals(&file, SealFlags::SHRINK) {
        tracing::debug!(%error, "the front end's shared memory is not sealed against shrinking");
    }
    let length = fstat(&file).map_err(|error| MemoryError::Examine(error.into()))?.st_size;
    let end = offset.checked_add(bytes).filter(|end| *end <= u64::try_from(length).unwrap_or(0));
    if bytes == 0 || end.is_none() {
        return Err(MemoryError::BehindEnd { offset, bytes });
    }
    let bytes = usize::try_from(bytes).map_err(|_| MemoryError::EndsNowhere { bytes })?;
    Ok(MmapRegion::from_file(FileOffset::new(file, offset), bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use vm_memory::{Bytes, GuestMemoryBackend, GuestMemoryRegion};

    const PAGE: u64 = 4096;

    fn memory(bytes: u64) -> File {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("test", flags).expect("a memfd"));
        file.set_len(bytes).expect("it can grow");
        file
    }

    fn window(guest_start: u64, pages: u64) -> Window {
        let front_start = 0x7000_0000 + guest_start;
        Window { guest_start, bytes: pages * PAGE, front_start, file_offset: 0 }
    }

    #[test]
    fn addresses_of_the_front_end_become_those_of_the_guest() {
        let map = MemoryMap::default().with(window(PAGE, 2), memory(2 * PAGE)).expect("memory");
        assert_eq!(map.guest_address(0x7000_1010), Some(GuestAddress(0x1010)));
        assert_eq!(map.guest_address(0x7000_0fff), None);
        assert_eq!(map.guest_address(0x7000_3000), None);
    }

    #[test]
    fn a_region_that_is_taken_away_stays_with_those_who_use_it() {
        let first = MemoryMap::default().with(window(0, 1), memory(PAGE)).expect("memory");
        let both = first.with(window(PAGE, 1), memory(PAGE)).expect("memory");
        let ram = Arc::clone(both.ram());
        let second = both.without(window(0, 1)).expect("it is there");
        assert_eq!(second.guest_address(0x7000_0000), None);
        ram.write_slice(b"late", GuestAddress(0)).expect("it is still mapped");
        assert!(second.ram().write_slice(b"late", GuestAddress(0)).is_err());
    }

    #[track_caller]
    fn check_refused(map: &MemoryMap, window: Window, file: File, expected: &str) {
        let error = map.with(window, file).err().expect("it is refused");
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn regions_that_cannot_be_are_refused() {
        let map = MemoryMap::default().with(window(0, 2), memory(2 * PAGE)).expect("memory");
        check_refused(&map, window(PAGE, 1), memory(PAGE), "overlap");
        check_refused(&map, window(4 * PAGE, 2), memory(PAGE), "exceeds its file");
        check_refused(&map, window(4 * PAGE, 0), memory(PAGE), "is empty");
        let far = Window { front_start: u64::MAX - 10, ..window(4 * PAGE, 1) };
        check_refused(&map, far, memory(PAGE), "exceeds the address space");
        let file = tempfile_on_disk();
        check_refused(&map, window(4 * PAGE, 1), file, "memfd");
        assert!(map.without(window(PAGE, 1)).is_err());
    }

    /// A file that is not shared memory, and exists on every Linux host.
    fn tempfile_on_disk() -> File {
        File::open("/proc/version").expect("the system tells its version")
    }

    #[test]
    fn what_a_front_end_takes_away_reads_as_zeros_and_is_told() {
        let file = File::from(memfd_create("test", MemfdFlags::empty()).expect("a memfd"));
        file.set_len(2 * PAGE).expect("it can grow");
        let other = file.try_clone().expect("a descriptor");
        let first = MemoryMap::default().with(window(0, 2), file).expect("memory");
        let neighbour = MemoryMap::default().with(window(0, 1), memory(PAGE)).expect("memory");
        for ram in [first.ram(), neighbour.ram()] {
            ram.write_slice(&[7; 64], GuestAddress(PAGE - 64)).expect("it is mapped");
        }
        assert!(!first.ram().is_lost());
        other.set_len(0).expect("it cannot be sealed");
        let mut found = [1; 64];
        first.ram().read_slice(&mut found, GuestAddress(PAGE - 64)).expect("it is mapped");
        assert_eq!(found, [0; 64]);
        assert!(first.ram().is_lost());
        first.ram().write_slice(&[7; 64], GuestAddress(PAGE)).expect("it is mapped");
        neighbour.ram().read_slice(&mut found, GuestAddress(PAGE - 64)).expect("it is mapped");
        assert_eq!((found, neighbour.ram().is_lost()), ([7; 64], false));
    }

    #[test]
    fn processes_that_are_started_do_not_get_the_memory() {
        let file = File::from(memfd_create("test", MemfdFlags::empty()).expect("a memfd"));
        file.set_len(PAGE).expect("it can grow");
        let map = MemoryMap::default().with(window(0, 1), file).expect("memory");
        let region = map.ram().find_region(GuestAddress(0)).expect("it is there");
        let file = region.file_offset().expect("a file is mapped").file();
        assert!(fcntl_getfd(file).expect("it is open").contains(FdFlags::CLOEXEC));
    }

    #[test]
    fn memory_that_can_be_sealed_cannot_shrink_any_more() {
        let file = memory(PAGE);
        let other = file.try_clone().expect("a descriptor");
        let _map = MemoryMap::default().with(window(0, 1), file).expect("memory");
        assert!(other.set_len(0).is_err());
    }
}
