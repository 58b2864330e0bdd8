//! How the kernel treats a process that block devices depend on.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::configure_io_flusher_behavior;

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

    #[test]
    fn memory_is_locked_or_refused() {
        if let Err(error) = lock_memory() {
            let kinds = [io::ErrorKind::PermissionDenied, io::ErrorKind::OutOfMemory];
            assert!(kinds.contains(&error.kind()), "{error}");
        }
    }
}
