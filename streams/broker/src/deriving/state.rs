//! State of a derived topic, for metrics and SQL.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const NO_PANIC: &str = "no thread panics with this lock";

/// Counters since the broker started.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Name of the derived topic.
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) source: String,
    /// Committed offsets of the source that were not processed.
    pub(crate) lag: AtomicU64,
    pub(crate) records_out: AtomicU64,
    /// Records that were skipped because the query failed, or the result is too long.
    pub(crate) skipped: AtomicU64,
    /// Offsets of the source that were deleted before they were processed.
    pub(crate) missed: AtomicU64,
    /// Reason why deriving is blocked.
    waits: Mutex<Option<String>>,
}

impl State {
    pub(crate) fn new(name: &str, kind: &'static str, source: &str) -> Self {
        Self { name: name.to_owned(), kind, source: source.to_owned(), ..Self::default() }
    }

    pub(crate) fn waits(&self) -> Option<String> {
        self.waits.lock().expect(NO_PANIC).clone()
    }

    /// Sets the reason why deriving is blocked. Logs it once.
    pub(super) fn wait(&self, why: &str) {
        let mut waits = self.waits.lock().expect(NO_PANIC);
        if waits.as_deref() != Some(why) {
            tracing::warn!(
                topic = self.name,
                source = self.source,
                why,
                "derived topic is blocked"
            );
            *waits = Some(why.to_owned());
        }
    }

    pub(super) fn goes_on(&self) {
        if self.waits.lock().expect(NO_PANIC).take().is_some() {
            tracing::info!(topic = self.name, "derived topic continues");
        }
    }

    pub(super) fn skip(&self, count: u64, why: &str) {
        if self.skipped.fetch_add(count, Ordering::Relaxed) == 0 {
            tracing::warn!(
                topic = self.name,
                why,
                "omitting a record on which the query failed; \
                                                    later ones are only counted"
            );
        }
    }

    pub(super) fn missed(&self, partition: u32, from: i64, to: i64) {
        let count = u64::try_from(to.saturating_sub(from)).unwrap_or(0);
        self.missed.fetch_add(count, Ordering::Relaxed);
        let (topic, source) = (&self.name, &self.source);
        tracing::warn!(
            topic,
            source,
            partition,
            from,
            to,
            "records were deleted before they were processed"
        );
    }
}
