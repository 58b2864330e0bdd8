//! System calls without a safe wrapper elsewhere, one function each.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Locks the file for this open file description, without waiting. The lock ends with the
/// description, also when the process terminates in any way.
pub(crate) fn lock_exclusively(file: BorrowedFd<'_>) -> io::Result<()> {
    let short = |constant| i16::try_from(constant).expect("lock constants are small");
    let lock = libc::flock {
        l_type: short(libc::F_WRLCK),
        l_whence: short(libc::SEEK_SET),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY:
    // - alive: `file` is borrowed for the call, and `lock` outlives it.
    // - same type: F_OFD_SETLK takes a pointer to `struct flock` (fcntl(2)).
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Maps `length` bytes of `file`, shared, for reading and writing. The mapping itself reserves no
/// memory: see `Region::take_memory`.
pub(crate) fn map_shared(file: BorrowedFd<'_>, length: usize) -> io::Result<NonNull<u8>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY:
    // - exclusive: the kernel chooses the address, so no mapping of ours is replaced.
    let start =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, protection, flags, file, 0) }?;
    Ok(NonNull::new(start.cast()).expect("mmap never returns null without MAP_FIXED"))
}

/// Makes the kernel reserve the huge pages of a range of `file`. They stay reserved for the file.
pub(crate) fn reserve(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<()> {
    let length = usize::try_from(length).expect("addresses have 64 bits");
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let (nowhere, shared) = (std::ptr::null_mut(), MapFlags::SHARED);
    // SAFETY:
    // - exclusive: the kernel chooses the address, so no mapping of ours is replaced.
    let start = unsafe { rustix::mm::mmap(nowhere, length, protection, shared, file, offset) }?;
    unmap(NonNull::new(start.cast()).expect("mmap never returns null without MAP_FIXED"), length);
    Ok(())
}

/// Unmaps a mapping of `map_shared` or `reserve`.
pub(crate) fn unmap(start: NonNull<u8>, length: usize) {
    // SAFETY:
    // - alive, one caller: `Region::drop` and `reserve` call this once, with what `mmap` returned.
    let result = unsafe { rustix::mm::munmap(start.as_ptr().cast(), length) };
    result.expect("a whole mapping can be unmapped");
}

/// Excludes stored data from core dumps.
pub(crate) fn keep_out_of_dumps(start: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY:
    // - alive: the caller's mapping; the advice changes no contents.
    Ok(unsafe { rustix::mm::madvise(start.as_ptr().cast(), length, Advice::LinuxDontDump) }?)
}

/// Requests huge pages. Fails without effect if the file system does not support them.
pub(crate) fn prefer_huge_pages(start: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY:
    // - alive: the caller's mapping; the advice changes no contents.
    Ok(unsafe { rustix::mm::madvise(start.as_ptr().cast(), length, Advice::LinuxHugepage) }?)
}

/// Allocates missing memory of the file, and fills the page tables, so that no later access faults.
/// A lack of memory is reported as `EFAULT` or `ENOMEM`.
pub(crate) fn populate(start: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY:
    // - alive: the caller's mapping; the advice changes no contents.
    Ok(unsafe { rustix::mm::madvise(start.as_ptr().cast(), length, Advice::LinuxPopulateWrite) }?)
}
