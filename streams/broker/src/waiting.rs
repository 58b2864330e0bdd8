//! Worker threads of the runtime that block on a volume: another thread replaces a blocked one.
//!
//! A volume responds in microseconds, so requests use it on the worker thread that serves them. If
//! the daemon is not available, or a flush waits for a disk that does not respond, the thread is
//! blocked by that one request. Clients may have more requests than there are threads. Therefore,
//! while many threads are blocked, a request must acquire a place among a limited number before it
//! starts, and its task waits until then.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use shares::{Limit, Owner, Share};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

/// Maximum number of threads, including blocked ones.
pub(crate) const THREAD_COUNT_MAX: usize = 2_048;

/// Maximum number of requests that may block threads. One owner can use half of it. The other
/// threads are for flushes, for SQL statements, and for work that does not block.
pub(crate) const PLACE_COUNT_MAX: usize = 1_024;

/// Number of blocked threads below which requests are not counted.
const UNCOUNTED_MAX: usize = 64;

/// Time for which a worker thread waits for a lock before another thread replaces it.
const LOCK_TIME: Duration = Duration::from_micros(200);

/// Maximum number of requests that may block threads on files of users and access lists.
const FILE_PLACE_COUNT_MAX: usize = 64;

/// Places in use by requests.
static PLACES: LazyLock<Arc<Limit>> = LazyLock::new(|| Limit::new(PLACE_COUNT_MAX));

/// Places in use by requests that work on files of users and access lists.
static FILE_PLACES: LazyLock<Arc<Limit>> = LazyLock::new(|| Limit::new(FILE_PLACE_COUNT_MAX));

/// Number of threads that are blocked for any reason and were replaced.
static BESIDE: AtomicUsize = AtomicUsize::new(0);

/// Signalled when `BESIDE` falls below the number from which requests are counted.
static CALMED: Notify = Notify::const_new();

/// Permission of a request to block a thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _share: Option<Share>,
}

/// Acquires a place for a request that uses volumes on its worker thread.
pub(crate) async fn place(owner: Owner) -> Place {
    loop {
        // Before the check, so that a decrease after it is not missed.
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

/// Acquires a place if one is free now.
pub(crate) fn place_at_once(owner: Owner) -> Option<Place> {
    // Relaxed: a few more blocked threads do no harm.
    if BESIDE.load(Ordering::Relaxed) < UNCOUNTED_MAX {
        return Some(Place { _share: None });
    }
    PLACES.try_take(owner, 1).map(|share| Place { _share: Some(share) })
}

/// Acquires a place for a request that runs on its own thread.
pub(crate) async fn place_on_a_thread(owner: Owner) -> Place {
    Place { _share: Some(PLACES.take_one(owner).await) }
}

/// Acquires a place for a request that runs on its own thread and uses files only.
pub(crate) async fn place_for_a_file(owner: Owner) -> Place {
    Place { _share: Some(FILE_PLACES.take_one(owner).await) }
}

/// Waits for a lock of a log. Usually its owner is about to release it, and waking another thread
/// is not worth the cost. An owner that waits for a volume may keep it for long.
pub(crate) fn for_a_lock(try_lock: &mut dyn FnMut() -> bool, wait: &mut dyn FnMut()) {
    let begun = Instant::now();
    while begun.elapsed() < LOCK_TIME {
        if try_lock() {
            return;
        }
        std::thread::yield_now();
    }
    beside_others(wait);
}

/// Blocks until a slow volume responds. Another thread serves the requests of a worker thread.
pub(crate) fn beside_others(wait: &mut dyn FnMut()) {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => {
            BESIDE.fetch_add(1, Ordering::Relaxed);
            tokio::task::block_in_place(wait);
            if BESIDE.fetch_sub(1, Ordering::Relaxed) == UNCOUNTED_MAX {
                CALMED.notify_waiters();
            }
        }
        // This thread serves no other requests.
        _ => wait(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    use super::*;

    /// Serializes tests that take many places, which are shared by the process.
    pub(crate) static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    /// Blocks enough threads that requests are counted, until the result is dropped.
    pub(crate) async fn hold_up() -> Vec<Sender<()>> {
        let held = (0..UNCOUNTED_MAX).map(|_| {
            let (holds, ends) = channel();
            // The sender is dropped without sending.
            tokio::spawn(async move { beside_others(&mut || assert!(ends.recv().is_err())) });
            holds
        });
        let held = held.collect();
        while BESIDE.load(Ordering::Relaxed) < UNCOUNTED_MAX {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        held
    }

    /// With one worker thread nothing else would run if a wait for a lock kept it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_lock_whose_owner_waits_for_long_keeps_no_worker() {
        let _alone = ALONE.lock().await;
        let (releases, released) = channel::<()>();
        let (asks, asked) = channel();
        let waits = tokio::spawn(async move {
            let try_lock = &mut || {
                let _ = asks.send(());
                false
            };
            for_a_lock(try_lock, &mut || assert!(released.recv().is_err()));
        });
        while asked.try_recv().is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::spawn(async {}).await.expect("another task runs");
        drop(releases);
        waits.await.expect("it has the lock");
    }

    #[tokio::test]
    async fn requests_of_one_client_leave_threads_for_those_of_others() {
        let _alone = ALONE.lock().await;
        // Other tests of this process take a few places.
        let (one, other) = (Owner(u64::MAX), Owner(u64::MAX - 1));
        let taken: Vec<Share> = std::iter::from_fn(|| PLACES.try_take(one, 1)).collect();
        let half = PLACE_COUNT_MAX / 2;
        assert!((half - UNCOUNTED_MAX..=half).contains(&taken.len()), "{}", taken.len());
        place_on_a_thread(other).await;
        // While no thread is blocked, no place is needed.
        place(one).await;
        drop(taken);
        place_on_a_thread(one).await;
    }
}
