//! A barrier with a light and a heavy side: `membarrier(2)`.
//!
//! Two threads that each store one word and then load the other's need a full barrier between
//! store and load on both sides, or both may miss the other's store. When one side is entered a
//! million times for each time of the other, the kernel can do the work of both: the heavy side
//! makes every running thread of the process pass a full barrier, and the light side only has to
//! keep the compiler from swapping store and load.

use crate::atomic::{Ordering, fence};

/// Meeting of the two sides: decided once for a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    /// The kernel does the light side's work.
    is_asymmetric: bool,
}

impl Barrier {
    /// Registers the process with the kernel, if the kernel has this.
    pub(crate) fn new() -> Self {
        Self { is_asymmetric: register() }
    }

    /// Between the store and the load of the frequent side.
    #[inline]
    pub(crate) fn light(self) {
        match self.is_asymmetric {
            true => std::sync::atomic::compiler_fence(Ordering::SeqCst),
            false => fence(Ordering::SeqCst),
        }
    }

    /// Between the store and the load of the rare side.
    pub(crate) fn heavy(self) {
        fence(Ordering::SeqCst);
        if self.is_asymmetric {
            run_through_all_threads();
        }
    }
}

/// Loom knows no `membarrier`: there, both sides have fences.
#[cfg(loom)]
fn register() -> bool {
    false
}

#[cfg(loom)]
fn run_through_all_threads() {}

#[cfg(not(loom))]
fn register() -> bool {
    use rustix::thread::{MembarrierCommand, membarrier};
    membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
}

#[cfg(not(loom))]
fn run_through_all_threads() {
    use rustix::thread::{MembarrierCommand, membarrier};
    membarrier(MembarrierCommand::PrivateExpedited)
        .expect("a process that has registered may use membarrier");
}
