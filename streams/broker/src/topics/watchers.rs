//! Fetches that wait for a partition to have more.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

const NO_PANIC: &str = "no thread panics with this lock";

/// The connections that wait. Each is there once, and until it is woken.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Mutex<Vec<Arc<Notify>>>);

impl Watchers {
    /// Has `watcher` notified when there is more, once. What came before this call is for the
    /// caller to look at after it.
    pub(crate) fn add(&self, watcher: &Arc<Notify>) {
        let mut watchers = self.0.lock().expect(NO_PANIC);
        // Connections that ended hold theirs no longer.
        watchers.retain(|it| Arc::strong_count(it) > 1);
        if !watchers.iter().any(|it| Arc::ptr_eq(it, watcher)) {
            watchers.push(Arc::clone(watcher));
        }
    }

    /// There is more.
    pub(crate) fn wake(&self) {
        let mut watchers = self.0.lock().expect(NO_PANIC);
        for watcher in watchers.drain(..) {
            watcher.notify_one();
        }
    }
}
