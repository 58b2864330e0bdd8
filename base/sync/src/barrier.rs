//! Asymmetric memory barrier, with a light and a heavy side, by `membarrier(2)`.
//!
//! Two threads that each store one word and then load the other's need a full barrier between store
//! and load on both sides, or both may miss the other's store. If one side runs a million times as
//! often as the other, the kernel can provide the barrier for both: the heavy side makes every
//! running thread of the process execute a full barrier, and the light side only has to prevent the
//! compiler from reordering store and load.

use crate::atomic::{Ordering, fence};

/// The barrier. Its kind is determined once for a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    /// The kernel provides the light side's barrier.
    is_asymmetric: bool,
}

impl Barrier {
    /// Registers the process with the kernel, if the kernel supports this.
    pub(crate) fn new() -> Self {
        Self { is_asymmetric: register() }
    }

    /// Barrier between the store and the load of the frequent side.
    #[inline]
    pub(crate) fn light(self) {
        match self.is_asymmetric {
            true => std::sync::atomic::compiler_fence(Ordering::SeqCst),
            false => fence(Ordering::SeqCst),
        }
    }

    /// Barrier between the store and the load of the rare side.
    pub(crate) fn heavy(self) {
        fence(Ordering::SeqCst);
        if self.is_asymmetric {
            run_through_all_threads();
        }
    }
}

/// Loom does not support `membarrier`, so both sides use fences.
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
