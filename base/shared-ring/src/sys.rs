//! System calls of shared memory.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::thread::futex;
use sync::atomic::AtomicU32;

/// Creates a memory file of `length` zeros, with a sealed length.
pub(crate) fn create_sealed(length: usize) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("memlane-ring", flags)?;
    rustix::fs::ftruncate(&file, length as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Checks that the file has exactly `length` bytes and cannot shrink.
pub(crate) fn check_sealed(file: BorrowedFd<'_>, length: usize) -> io::Result<()> {
    let seals = rustix::fs::fcntl_get_seals(file)?;
    let found = rustix::fs::fstat(file)?.st_size;
    if !seals.contains(SealFlags::SHRINK) || u64::try_from(found) != Ok(length as u64) {
        let message =
            format!("the ring's memory has {found} bytes instead of {length}, or is not sealed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(())
}

pub(crate) fn map_shared(file: BorrowedFd<'_>, length: usize) -> io::Result<NonNull<u8>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY:
    // - exclusive: the kernel chooses the address, so no mapping of ours is replaced.
    let start = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, file, 0)
    }?;
    Ok(NonNull::new(start.cast()).expect("mmap never returns null without MAP_FIXED"))
}

/// Excludes the memory from core dumps, because it contains data of clients.
pub(crate) fn keep_out_of_dumps(start: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY:
    // - alive: the caller's mapping; the advice changes no contents.
    Ok(unsafe { rustix::mm::madvise(start.as_ptr().cast(), length, Advice::LinuxDontDump) }?)
}

/// Unmaps a mapping of `map_shared`.
pub(crate) fn unmap(start: NonNull<u8>, length: usize) {
    // SAFETY:
    // - alive, one caller: `Memory::drop` calls this once, with what `map_shared` returned.
    let result = unsafe { rustix::mm::munmap(start.as_ptr().cast(), length) };
    result.expect("a whole mapping can be unmapped");
}

/// Sleeps while the word is 1, at most `time_max`. May return early.
pub(crate) fn sleep_on(word: &AtomicU32, time_max: Duration) {
    let timeout = rustix::time::Timespec {
        tv_sec: i64::try_from(time_max.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time_max.subsec_nanos()),
    };
    // The caller checks the state, whatever ended the wait.
    let _why = futex::wait(word, futex::Flags::empty(), 1, Some(&timeout));
}

/// Wakes a thread that sleeps on the word.
pub(crate) fn wake(word: &AtomicU32) {
    // Cannot fail, because the word is mapped.
    let _count = futex::wake(word, futex::Flags::empty(), 1);
}
