//! Number of requests in flight on lanes, of all contexts of this process.

use std::sync::atomic::{AtomicUsize, Ordering};

static COUNT: AtomicUsize = AtomicUsize::new(0);

pub(super) fn add_one() {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn remove(count: usize) {
    COUNT.fetch_sub(count, Ordering::Relaxed);
}

pub(super) fn is_any() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// Resets the count in a forked child.
pub(crate) fn forget_all() {
    COUNT.store(0, Ordering::Relaxed);
}
