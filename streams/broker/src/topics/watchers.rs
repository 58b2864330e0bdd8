//! Waiters for new records in a partition, such as fetches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

const NO_PANIC: &str = "no thread panics with this lock";

/// Number of waiters up to which no search for abandoned ones is done.
const KEPT_COUNT: usize = 64;

/// Waiting connections. Each is present at most once, until it is woken.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// Waiters by address.
    by_address: HashMap<usize, Arc<Notify>>,
    /// Number of waiters after the last removal of abandoned ones.
    alive_count: usize,
}

impl Watchers {
    /// Registers `watcher` to be notified once when there are new records. The caller must check
    /// for earlier records after this call.
    pub(crate) fn add(&self, watcher: &Arc<Notify>) {
        let mut waiting = self.0.lock().expect(NO_PANIC);
        if waiting.by_address.len() >= KEPT_COUNT.max(2 * waiting.alive_count) {
            // Closed connections no longer hold theirs.
            waiting.by_address.retain(|_, it| Arc::strong_count(it) > 1);
            waiting.alive_count = waiting.by_address.len();
        }
        waiting.by_address.insert(Arc::as_ptr(watcher).addr(), Arc::clone(watcher));
    }

    /// Wakes all waiters because of new records.
    pub(crate) fn wake(&self) {
        let mut waiting = self.0.lock().expect(NO_PANIC);
        for (_, watcher) in waiting.by_address.drain() {
            watcher.notify_one();
        }
    }
}
