//! Threads that serve, while one of them waits for a volume: another one takes its place.
//!
//! A volume answers in microseconds, and so requests use it on the thread that serves them. Where
//! the daemon is away, or a flush meets a disk that takes nothing, that thread goes on with its
//! request alone. Clients may have more requests than there are threads: where some wait so, a
//! request is begun only once it has a place among those that may, and its task waits until then.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use shares::{Limit, Owner, Share};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

/// Threads at most, those included that wait.
pub(crate) const THREAD_COUNT_MAX: usize = 2_048;

/// Requests that may wait on threads at a time. One owner alone gets half. The other threads are
/// for flushes, for statements of SQL, and for what waits for nothing.
pub(crate) const PLACE_COUNT_MAX: usize = 1_024;

/// As long as no more threads wait, requests are not counted.
const UNCOUNTED_MAX: usize = 64;

/// Requests that may wait on threads for files of users and access lists.
const FILE_PLACE_COUNT_MAX: usize = 64;

/// Places that requests have.
static PLACES: LazyLock<Arc<Limit>> = LazyLock::new(|| Limit::new(PLACE_COUNT_MAX));

/// Places of requests that need no volume, and wait for none.
static FILE_PLACES: LazyLock<Arc<Limit>> = LazyLock::new(|| Limit::new(FILE_PLACE_COUNT_MAX));

/// Threads that gave their place to another one, for whatever they wait.
static BESIDE: AtomicUsize = AtomicUsize::new(0);

/// Told when these have become so few that requests are not counted.
static CALMED: Notify = Notify::const_new();

/// Threads that wait now for a volume to be read or written.
static WAITING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IS_FLUSHING: Cell<bool> = const { Cell::new(false) };
}

/// Place of a request among those that may wait on a thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _share: Option<Share>,
}

/// Takes a place for a request that uses volumes on the thread that serves it.
pub(crate) async fn place(owner: Owner) -> Place {
    loop {
        // Before it is looked: a number that falls from here on wakes it.
        let calmed = CALMED.notified();
        if let Some(place) = place_at_once(owner) {
            return place;
        }
        tokio::select! {
            place = place_on_a_thread(owner) => return place,
            () = calmed => {}
        }
    }
}

/// The same, if there is one now.
pub(crate) fn place_at_once(owner: Owner) -> Option<Place> {
    // Relaxed: a few more that wait change nothing.
    if BESIDE.load(Ordering::Relaxed) < UNCOUNTED_MAX {
        return Some(Place { _share: None });
    }
    PLACES.try_take(owner, 1).map(|share| Place { _share: Some(share) })
}

/// Takes a place for a request that has a thread of its own.
pub(crate) async fn place_on_a_thread(owner: Owner) -> Place {
    Place { _share: Some(PLACES.take_one(owner).await) }
}

/// Takes a place for a request that has a thread of its own, for files alone.
pub(crate) async fn place_for_a_file(owner: Owner) -> Place {
    Place { _share: Some(FILE_PLACES.take_one(owner).await) }
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
        Ok(RuntimeFlavor::MultiThread) => {
            BESIDE.fetch_add(1, Ordering::Relaxed);
            tokio::task::block_in_place(wait);
            if BESIDE.fetch_sub(1, Ordering::Relaxed) == UNCOUNTED_MAX {
                CALMED.notify_waiters();
            }
        }
        // A thread that serves nobody else.
        _ => wait(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    use super::*;

    /// Held by tests that take many places: they are all of this program's.
    pub(crate) static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    /// Has so many threads wait that requests are counted, until these are dropped.
    pub(crate) async fn hold_up() -> Vec<Sender<()>> {
        let held = (0..UNCOUNTED_MAX).map(|_| {
            let (holds, ends) = channel();
            // Nothing is sent.
            tokio::spawn(async move { for_a_volume(&mut || assert!(ends.recv().is_err())) });
            holds
        });
        let held = held.collect();
        while BESIDE.load(Ordering::Relaxed) < UNCOUNTED_MAX {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        held
    }

    #[tokio::test]
    async fn requests_of_one_client_leave_threads_for_those_of_others() {
        let _alone = ALONE.lock().await;
        // Other tests of this program take a few.
        let (one, other) = (Owner(u64::MAX), Owner(u64::MAX - 1));
        let taken: Vec<Share> = std::iter::from_fn(|| PLACES.try_take(one, 1)).collect();
        let half = PLACE_COUNT_MAX / 2;
        assert!((half - UNCOUNTED_MAX..=half).contains(&taken.len()), "{}", taken.len());
        place_on_a_thread(other).await;
        // Where no thread waits nobody needs one.
        place(one).await;
        drop(taken);
        place_on_a_thread(one).await;
    }
}
