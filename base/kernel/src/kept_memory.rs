//! Memory files that outlive the process, mapped as ordinary bytes.
//!
//! The kernel frees a process's own memory when the process ends. The contents of a memory file
//! (memfd) remain as long as any process has a descriptor of the file.

use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};

use crate::sys;

/// Ranges that this process has mapped. No byte has two owners.
static MAPPED: Mutex<Vec<Piece>> = Mutex::new(Vec::new());

/// Byte range of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    device: u64,
    inode: u64,
    bytes: Range<u64>,
}

impl Piece {
    fn overlaps(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
            && self.bytes.start < other.bytes.end
            && other.bytes.start < self.bytes.end
    }
}

/// A mapped range of a memory file, with one owner in this process. Dropping it unmaps the range;
/// the contents remain in the file.
#[derive(Debug)]
pub struct KeptMemory {
    start: NonNull<u8>,
    length: usize,
    piece: Piece,
}

// SAFETY:
// - exclusive: `start` is used through `self` alone, as the memory of a vector is.
unsafe impl Send for KeptMemory {}

impl KeptMemory {
    /// Alignment of the start and end of ranges.
    pub const UNIT_BYTES: usize = 4096;

    /// Creates a file of zeros that can grow but not shrink. `name` is shown in `/proc/PID/fd`.
    pub fn new_file(name: &str) -> io::Result<OwnedFd> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok(file)
    }

    /// Maps a range of a file from [`Self::new_file`], extends the file if necessary, and allocates
    /// the memory. The caller must ensure that no one else changes the range: no other process maps
    /// it, and no one writes to the file. Fails if this process has mapped a part of it already, or
    /// if the file could shrink.
    ///
    /// # Panics
    /// If the range is empty or not aligned to [`Self::UNIT_BYTES`].
    pub fn map(file: BorrowedFd<'_>, bytes: Range<u64>) -> io::Result<Self> {
        let unit = u64::try_from(Self::UNIT_BYTES).expect("a small constant");
        let is_whole = bytes.start.is_multiple_of(unit) && bytes.end.is_multiple_of(unit);
        assert!(!bytes.is_empty() && is_whole, "{bytes:?}");
        if !fcntl_get_seals(file)?.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not sealed against shrinking",
            ));
        }
        let length = usize::try_from(bytes.end - bytes.start).expect("addresses have 64 bits");
        let (start, piece) = {
            let mut mapped = mapped();
            let status = fstat(file)?;
            if u64::try_from(status.st_size).is_ok_and(|size| size < bytes.end) {
                ftruncate(file, bytes.end)?;
            }
            let piece = Piece { device: status.st_dev, inode: status.st_ino, bytes };
            if mapped.iter().any(|other| other.overlaps(&piece)) {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, "it is already mapped"));
            }
            let start = sys::map_shared(file, piece.bytes.start, length)?;
            mapped.push(piece.clone());
            (start, piece)
        };
        let memory = Self { start, length, piece };
        // Allocated now, so that later accesses cannot fail.
        sys::populate(memory.start, length)?;
        sys::keep_out_of_dumps(memory.start, length)?;
        Ok(memory)
    }
}

impl Deref for KeptMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        sys::bytes(self.start, self.length, self)
    }
}

impl DerefMut for KeptMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        sys::bytes_mut(self.start, self.length, self)
    }
}

impl Drop for KeptMemory {
    fn drop(&mut self) {
        let mut mapped = mapped();
        sys::unmap(self.start, self.length);
        mapped.retain(|piece| *piece != self.piece);
    }
}

fn mapped() -> MutexGuard<'static, Vec<Piece>> {
    // Each change is complete, also after a panic.
    MAPPED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    const UNIT: u64 = KeptMemory::UNIT_BYTES as u64;

    #[test]
    fn bytes_stay_when_their_owner_has_gone() {
        let file = KeptMemory::new_file("test").expect("a memory file");
        let map = || KeptMemory::map(file.as_fd(), UNIT..3 * UNIT).expect("there is memory");
        let mut memory = map();
        assert_eq!(memory.len(), 2 * KeptMemory::UNIT_BYTES);
        assert!(memory.iter().all(|&byte| byte == 0));
        memory[4097] = 7;
        drop(memory);
        assert_eq!(map()[4097], 7);
        let before = KeptMemory::map(file.as_fd(), 0..UNIT).expect("there is memory");
        assert!(before.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn no_byte_has_two_owners() {
        let file = KeptMemory::new_file("test").expect("a memory file");
        let other = KeptMemory::new_file("test").expect("a memory file");
        let first = KeptMemory::map(file.as_fd(), UNIT..3 * UNIT).expect("there is memory");
        let again = file.try_clone().expect("a descriptor");
        for (bytes, is_free) in
            [(UNIT..2 * UNIT, false), (2 * UNIT..4 * UNIT, false), (0..UNIT, true)]
        {
            let mapped = KeptMemory::map(again.as_fd(), bytes.clone());
            assert_eq!(mapped.is_ok(), is_free, "{bytes:?}");
        }
        KeptMemory::map(other.as_fd(), UNIT..2 * UNIT).expect("it is another file");
        drop(first);
        KeptMemory::map(file.as_fd(), 2 * UNIT..4 * UNIT).expect("it is free");
    }

    #[test]
    fn a_file_that_could_become_shorter_is_refused() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        let error = KeptMemory::map(file.expect("a memory file").as_fd(), 0..UNIT);
        assert_eq!(error.map(|_| ()).map_err(|it| it.kind()), Err(io::ErrorKind::InvalidInput));
    }
}
