//! Group commit: one flush makes all earlier appends of a topic stable.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use record_log::{LogError, LogErrorKind, Topic};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// Maximum number of concurrent flushes of topics on blocking threads. Each takes one of the
/// `waiting::THREAD_COUNT_MAX` threads of the runtime. Further flushes wait for one to end.
const FLUSH_COUNT_MAX: usize = 128;

static FLUSHES: Semaphore = Semaphore::const_new(FLUSH_COUNT_MAX);

/// Same, for state logs.
static STATE_FLUSHES: Semaphore = Semaphore::const_new(FLUSH_COUNT_MAX);

const NO_PANIC: &str = "no thread panics with this lock";

/// Flushes of one topic.
#[derive(Debug)]
pub(crate) struct Flusher {
    topic: Arc<Topic>,
    /// True once the topic is being deleted, unless that fails.
    pub(super) is_deleted: AtomicBool,
    /// Limit of threads for its flushes.
    threads: &'static Semaphore,
    flushes: Mutex<Flushes>,
    /// Number of completed flushes, and the result of the last one.
    ended: watch::Sender<Ended>,
}

#[derive(Debug, Default)]
struct Flushes {
    begun: u64,
    is_running: bool,
    is_wanted: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    flush: u64,
    /// Error of that flush, if it failed.
    failed: Option<LogErrorKind>,
}

/// Number of the flush for which an append waits, which begins after the append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlushNumber(u64);

impl Flusher {
    pub(crate) fn new(topic: Arc<Topic>) -> Self {
        let (is_deleted, flushes, ended) = Default::default();
        Self { topic, is_deleted, threads: &FLUSHES, flushes, ended }
    }

    /// Creates a flusher for a log of the broker's state, which topics cannot delay. There are few.
    pub(crate) fn of_state(topic: Arc<Topic>) -> Self {
        Self { threads: &STATE_FLUSHES, ..Self::new(topic) }
    }

    /// Flushes on this thread, for topics whose flush does not wait for a disk.
    pub(crate) fn flush_now(&self) -> Result<(), LogError> {
        self.topic.flush()
    }

    /// Flushes all appended records on a blocking thread. `then` is called after each flush.
    pub(crate) fn flush_later(
        self: &Arc<Self>,
        then: impl Fn() + Send + Sync + 'static,
    ) -> FlushNumber {
        let mut flushes = self.flushes.lock().expect(NO_PANIC);
        let flush = FlushNumber(flushes.begun + 1);
        if std::mem::replace(&mut flushes.is_running, true) {
            // The running flush may have begun before the append, so another one follows.
            flushes.is_wanted = true;
            return flush;
        }
        drop(flushes);
        let this = Arc::clone(self);
        match self.threads.try_acquire() {
            Ok(permit) => drop(tokio::task::spawn_blocking(move || this.run(&then, permit))),
            Err(_) => drop(tokio::spawn(async move {
                let permit = this.threads.acquire().await.expect("nobody closes it");
                tokio::task::spawn_blocking(move || this.run(&then, permit));
            })),
        }
        flush
    }

    /// Waits for the end of a flush. Returns the error of the last flush, if any. The partition
    /// tells whether the records are stable.
    pub(crate) async fn ended(&self, flush: FlushNumber) -> Option<LogErrorKind> {
        let mut ended = self.ended.subscribe();
        let seen = ended.wait_for(|ended| ended.flush >= flush.0).await;
        seen.expect("the sender is in self").failed
    }

    /// Returns whether the last completed flush has failed, if it is this one or later.
    pub(crate) fn has_failed(&self, flush: FlushNumber) -> bool {
        let ended = *self.ended.borrow();
        ended.flush >= flush.0 && ended.failed.is_some()
    }

    fn run(&self, then: &(dyn Fn() + Send + Sync), _permit: SemaphorePermit<'static>) {
        loop {
            let flush = {
                let mut flushes = self.flushes.lock().expect(NO_PANIC);
                flushes.is_wanted = false;
                flushes.begun += 1;
                flushes.begun
            };
            let flushed = self.topic.flush();
            if let Err(error) = &flushed
                && !self.is_deleted.load(Ordering::Relaxed)
            {
                let error = error.with_causes();
                tracing::warn!(topic = ?self.topic.id(), error, "cannot flush");
            }
            self.ended.send_replace(Ended { flush, failed: flushed.err().map(|error| error.kind) });
            then();
            let mut flushes = self.flushes.lock().expect(NO_PANIC);
            if !flushes.is_wanted {
                flushes.is_running = false;
                return;
            }
        }
    }
}
