//! Kernel settings of a process on which block devices depend.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::configure_io_flusher_behavior;

#[cfg(target_env = "gnu")]
use crate::sys;

/// Locks all present and future pages of the process in memory when they are touched (`mlockall`).
/// Requires `CAP_IPC_LOCK` or a sufficient `RLIMIT_MEMLOCK`.
pub fn lock_memory() -> io::Result<()> {
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?;
    Ok(())
}

/// Marks the calling thread as one that serves a block device, so that memory reclaim for it never
/// waits for writes to that device (`PR_SET_IO_FLUSHER`). Threads that it starts inherit the mark.
/// Requires `CAP_SYS_RESOURCE`.
pub fn serve_block_io() -> io::Result<()> {
    configure_io_flusher_behavior(true)?;
    Ok(())
}

/// Size from which on allocations are mapped individually, so that they return to the kernel when
/// they are freed.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: i32 = 64 << 10;

/// Amount of free memory at the end of an arena above which it returns to the kernel.
#[cfg(target_env = "gnu")]
const TRIMMED_BYTES_MIN: i32 = 128 << 10;

/// Maximum number of arenas. Each keeps free blocks between allocated ones.
#[cfg(target_env = "gnu")]
const ARENA_COUNT_MAX: i32 = 2;

/// Makes the C library's allocator return freed memory to the kernel, instead of keeping each
/// thread's peak usage. Must be called before threads are started. C libraries other than glibc are
/// left unchanged. Returns whether all settings are in force.
pub fn return_freed_memory() -> bool {
    #[cfg(target_env = "gnu")]
    {
        let settings = [
            (libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN),
            (libc::M_TRIM_THRESHOLD, TRIMMED_BYTES_MIN),
            (libc::M_ARENA_MAX, ARENA_COUNT_MAX),
        ];
        settings.iter().all(|&(parameter, value)| sys::set_allocator(parameter, value))
    }
    #[cfg(not(target_env = "gnu"))]
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_marked_or_told_why_not() {
        match serve_block_io() {
            Ok(()) => assert!(rustix::process::is_io_flusher().expect("the mark can be read")),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }

    /// Private memory of this process, in bytes.
    fn private_bytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("a line");
        let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
        kib.expect("a number") << 10
    }

    #[test]
    fn what_threads_free_goes_back_to_the_kernel() {
        const BUFFER_BYTES: usize = 1 << 20;
        const THREADS: usize = 48;
        assert!(return_freed_memory());
        // Without the setting, glibc would raise its mapping threshold after this block is freed.
        drop(vec![1_u8; 8 * BUFFER_BYTES]);
        let before = private_bytes();
        let threads: Vec<_> =
            (0..THREADS).map(|_| std::thread::spawn(|| vec![1_u8; BUFFER_BYTES])).collect();
        let buffers: Vec<_> =
            threads.into_iter().map(|it| it.join().expect("it does not panic")).collect();
        let held = private_bytes();
        assert!(held >= before + (THREADS * BUFFER_BYTES) as u64, "{before} and then {held}");
        drop(buffers);
        let after = private_bytes();
        assert!(after < before + (THREADS * BUFFER_BYTES / 4) as u64, "{before}, now {after}");
    }

    /// Returns whether the memory at this address is locked.
    fn is_locked(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("the kernel tells");
        let range = |line: &str| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some(number(start)?..number(end)?)
        };
        let is_there = |line: &&str| range(line).is_some_and(|range| range.contains(&address));
        let mut lines = maps.lines().skip_while(|line| !is_there(line));
        let flags = lines.find(|line| line.starts_with("VmFlags:")).expect("it is mapped");
        flags.split(' ').any(|flag| flag == "lo")
    }

    /// Returns whether this process has the capability in the initial user namespace.
    fn may_lock_memory() -> bool {
        use rustix::thread::{CapabilitySet, capabilities};
        let held = capabilities(None).expect("the kernel tells").effective;
        let users = std::fs::read_to_string("/proc/self/uid_map").expect("the kernel tells");
        held.contains(CapabilitySet::IPC_LOCK) && users.trim().ends_with("4294967295")
    }

    #[test]
    fn memory_is_locked_or_refused() {
        // Not touched, because another test measures this process's memory at the same time.
        let buffer = || Vec::<u8>::with_capacity(16 << 20);
        let before = buffer();
        match lock_memory() {
            Ok(()) => {
                let after = buffer();
                assert!(is_locked(before.as_ptr().addr()), "what there was is locked");
                assert!(is_locked(after.as_ptr().addr()), "what comes is locked");
            }
            Err(error) => {
                let kinds = [io::ErrorKind::PermissionDenied, io::ErrorKind::OutOfMemory];
                assert!(kinds.contains(&error.kind()), "{error}");
                assert!(!may_lock_memory(), "there is no reason: {error}");
                assert!(!is_locked(before.as_ptr().addr()), "nothing is locked");
            }
        }
    }
}
