//! Fetches that wait for a partition to have more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

const NO_PANIC: &str = "no thread panics with this lock";

/// So many are never looked through for those that ended.
const KEPT_COUNT: usize = 64;

/// The connections that wait. Each is there once, and until it is woken.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// By the address of each.
    by_address: HashMap<usize, Arc<Notify>>,
    /// How many there were when those that ended were last left out.
    alive_count: usize,
}

impl Watchers {
    /// Has `watcher` notified when there is more, once. What came before this call is for the
    /// caller to look at after it.
    pub(crate) fn add(&self, watcher: &Arc<Notify>) {
        let mut waiting = self.0.lock().expect(NO_PANIC);
        if waiting.by_address.len() >= KEPT_COUNT.max(2 * waiting.alive_count) {
            // Connections that ended hold theirs no longer.
            waiting.by_address.retain(|_, it| Arc::strong_count(it) > 1);
            waiting.alive_count = waiting.by_address.len();
        }
        waiting.by_address.insert(Arc::as_ptr(watcher).addr(), Arc::clone(watcher));
    }

    /// There is more.
    pub(crate) fn wake(&self) {
        let mut waiting = self.0.lock().expect(NO_PANIC);
        for (_, watcher) in waiting.by_address.drain() {
            watcher.notify_one();
        }
    }
}
