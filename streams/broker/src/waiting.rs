//! Threads that serve, while one of them waits for a volume: another one takes its place.
//!
//! A volume answers in microseconds, and so requests use it on the thread that serves them. Where
//! the daemon is away, or a flush meets a disk that takes nothing, that thread goes on with its
//! request alone.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Handle, RuntimeFlavor};

/// Threads at most, those included that wait: more than connections.
pub(crate) const THREAD_COUNT_MAX: usize = 2_048;

/// Threads that wait now for a volume to be read or written.
static WAITING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IS_FLUSHING: Cell<bool> = const { Cell::new(false) };
}

/// Flushes a volume. Where that takes long, no lock is held that others want but for flushes.
pub(crate) fn while_flushing<T>(flush: impl FnOnce() -> T) -> T {
    IS_FLUSHING.set(true);
    let flushed = flush();
    IS_FLUSHING.set(false);
    flushed
}

/// Waits for a volume that is late.
pub(crate) fn for_a_volume(wait: &mut dyn FnMut()) {
    if IS_FLUSHING.get() {
        return beside_others(wait);
    }
    // Relaxed: who waits for a lock a moment too early holds up one thread, and not that of the
    // lock's owner.
    WAITING.fetch_add(1, Ordering::Relaxed);
    beside_others(wait);
    WAITING.fetch_sub(1, Ordering::Relaxed);
}

/// Waits for a lock of a log. Most often its owner is about to give it back, and no other thread is
/// worth waking for that.
pub(crate) fn for_a_lock(wait: &mut dyn FnMut()) {
    match WAITING.load(Ordering::Relaxed) {
        0 => wait(),
        _ => beside_others(wait),
    }
}

fn beside_others(wait: &mut dyn FnMut()) {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        // A thread that serves nobody else.
        _ => wait(),
    }
}
