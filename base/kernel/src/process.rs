//! Treatment by the kernel of a process that block devices depend on.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::configure_io_flusher_behavior;

#[cfg(target_env = "gnu")]
use crate::sys;

/// Keeps every page that the process touches, now or later, from being swapped out. Needs
/// `CAP_IPC_LOCK` or a sufficient `RLIMIT_MEMLOCK`.
pub fn lock_memory() -> io::Result<()> {
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?;
    Ok(())
}

/// Marks the calling thread as one that serves a block device, so that its own need for memory is
/// never met by writing to that device. Threads that it starts inherit the mark. Needs
/// `CAP_SYS_RESOURCE`.
pub fn serve_block_io() -> io::Result<()> {
    configure_io_flusher_behavior(true)?;
    Ok(())
}

/// Blocks of memory from this length on are mapped one by one, so that each goes back to the kernel
/// when it is freed.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: i32 = 64 << 10;

/// Freed memory at the end of an arena beyond this goes back to the kernel.
#[cfg(target_env = "gnu")]
const TRIMMED_BYTES_MIN: i32 = 128 << 10;

/// Arenas of small blocks: each keeps what was freed in it between others that were not.
#[cfg(target_env = "gnu")]
const ARENA_COUNT_MAX: i32 = 2;

/// Has the C library's allocator return what is freed to the kernel, instead of keeping as much as
/// was ever used at once by every thread. To be called before threads are started. Other libraries
/// than GNU's are left as they are. Returns whether all settings are in force.
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

    /// Bytes of private memory that this process has, as the kernel counts them.
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
        // The library would map larger blocks in future after one was freed, were it not told.
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

    /// Whether the kernel counts the memory at this address as locked.
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

    /// Whether this process has the capability, and not in a user namespace alone.
    fn may_lock_memory() -> bool {
        use rustix::thread::{CapabilitySet, capabilities};
        let held = capabilities(None).expect("the kernel tells").effective;
        let users = std::fs::read_to_string("/proc/self/uid_map").expect("the kernel tells");
        held.contains(CapabilitySet::IPC_LOCK) && users.trim().ends_with("4294967295")
    }

    #[test]
    fn memory_is_locked_or_refused() {
        // Never written: another test counts this process's memory meanwhile.
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
