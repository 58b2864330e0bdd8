//! Kernel settings for a process on which block devices depend.
//!
//! All of them are optional. A refusal by the kernel is logged, because the daemon is then less
//! robust under memory pressure.

use std::io;

/// Protects the process under memory pressure: from the out-of-memory killer, from being swapped
/// out, and from waiting for its own devices during reclaim. Must be called before other threads
/// are started, because they inherit the settings.
pub(crate) fn protect_from_memory_shortage() {
    report("set PR_SET_IO_FLUSHER", kernel::serve_block_io());
    // Without root, the locked memory would count against RLIMIT_MEMLOCK, and later larger mappings
    // would fail.
    if is_root() {
        // Swapped-out code or heap would have to be read from the swap device that this process may
        // be serving.
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
