//! Kernel settings for a process on which block devices depend.
//!
//! None of them is required. Each one that the kernel refuses is logged, as the daemon is then more
//! likely to suffer when memory is short.

use std::io;

/// Protects the process when memory is short: from the out-of-memory killer, from being swapped
/// out, and from waiting for its own devices. Called before other threads are started, so that they
/// inherit it.
pub(crate) fn protect_from_memory_shortage() {
    report("set PR_SET_IO_FLUSHER", kernel::serve_block_io());
    // Without root, a lock that the kernel grants now would make larger mappings fail later.
    if is_root() {
        // Code and heap that were swapped out would have to be read in to serve the swap device.
        report("lock the memory of the process (mlockall)", kernel::lock_memory());
        report("set oom_score_adj to -1000", leave_oom_list());
    }
}

/// Makes malloc return freed memory to the kernel. Called before other threads are started.
pub(crate) fn keep_memory_small() {
    if !kernel::return_freed_memory() {
        tracing::warn!(
            "cannot set malloc options (mallopt); freed memory may stay with the daemon"
        );
    }
}

fn leave_oom_list() -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "-1000")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn report(what: &str, result: io::Result<()>) {
    match result {
        Ok(()) => {}
        Err(error) if is_root() => {
            tracing::warn!(%error, "cannot {what}; volumes may stall when memory is short");
        }
        Err(error) => tracing::debug!(%error, "cannot {what} without root"),
    }
}
