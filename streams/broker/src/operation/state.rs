//! Readiness of the broker and its storage.

use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use metrics_text::Page;

use crate::broker::Broker;
use crate::storage::Storage;

const NO_PANIC: &str = "no thread panics with this lock";

/// Interval of storage probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Time without a response after which the storage counts as unavailable.
const PROBE_TIME_MAX: Duration = Duration::from_secs(5);

/// Writer of SQL metrics.
pub(crate) type SqlMetrics = Box<dyn Fn(&mut Page) + Send + Sync>;

/// State reported by the HTTP interface. Created before topics are opened.
pub(crate) struct Operation {
    pub(super) started: Instant,
    /// Set once topics are open.
    broker: OnceLock<Weak<Broker>>,
    /// Set if SQL is enabled.
    sql: OnceLock<SqlMetrics>,
    is_stopping: OnceLock<()>,
    probed: Mutex<Probed>,
}

struct Probed {
    at: Instant,
    /// Reason why the storage is not available.
    failed: Option<String>,
}

impl Operation {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            broker: OnceLock::new(),
            sql: OnceLock::new(),
            is_stopping: OnceLock::new(),
            probed: Mutex::new(Probed { at: now, failed: None }),
        }
    }

    /// Reports that clients are served from now on.
    pub(crate) fn serves(&self, broker: &Arc<Broker>, sql: Option<SqlMetrics>) {
        // A process has only one broker.
        let _first = sql.map(|sql| self.sql.set(sql));
        let _first = self.broker.set(Arc::downgrade(broker));
    }

    /// Reports that no more clients are accepted.
    pub(crate) fn stops(&self) {
        // Repeated calls are allowed.
        let _first = self.is_stopping.set(());
    }

    pub(super) fn broker(&self) -> Option<Arc<Broker>> {
        self.broker.get().and_then(Weak::upgrade)
    }

    pub(super) fn sql(&self) -> Option<&SqlMetrics> {
        self.sql.get()
    }

    pub(super) fn stage(&self) -> &'static str {
        match (self.is_stopping.get(), self.broker.get()) {
            (Some(()), _) => "stopping",
            (None, Some(_)) => "serving",
            (None, None) => "starting",
        }
    }

    /// Returns why the storage is not available, if so.
    pub(super) fn storage_failure(&self) -> Option<String> {
        let probed = self.probed.lock().expect(NO_PANIC);
        let silent = probed.at.elapsed();
        match &probed.failed {
            Some(why) => Some(format!("the storage is not available: {why}")),
            None if silent > PROBE_TIME_MAX => {
                Some(format!("the storage has not responded for {} s", silent.as_secs()))
            }
            None => None,
        }
    }

    /// Returns why the broker is not ready, if so.
    pub(super) fn unready(&self) -> Option<String> {
        match self.stage() {
            "stopping" => Some("the broker is stopping".to_owned()),
            "starting" => Some("the broker is opening its topics".to_owned()),
            _ => self.storage_failure().or_else(|| {
                let trouble = self.broker()?.coordinator.trouble()?;
                Some(format!("cannot store groups and transactions: {trouble}"))
            }),
        }
    }

    /// Returns a sentence about unavailable topics, if any. All others are served.
    pub(super) fn unserved(&self) -> Option<String> {
        let (count, names) = self.broker()?.topics.unserved();
        let more = if count > names.len() { ", …" } else { "" };
        let names = names.join(", ");
        let are = if count == 1 { "topic is" } else { "topics are" };
        (count > 0).then(|| {
            format!(
                "{count} {are} not available: the disk does not respond, or the volume cannot be \
                 opened: {names}{more}"
            )
        })
    }

    /// Probes the storage periodically until the runtime ends. Probes do not overlap: if one hangs,
    /// the storage is reported as not responding.
    pub(crate) async fn probe(self: Arc<Self>, storage: Arc<dyn Storage>) {
        loop {
            let storage = Arc::clone(&storage);
            let asked = tokio::task::spawn_blocking(move || storage.reach()).await;
            let reached = asked.expect("the question does not panic");
            let failed = reached.err().map(|error| error.to_string());
            *self.probed.lock().expect(NO_PANIC) = Probed { at: Instant::now(), failed };
            tokio::time::sleep(PROBE_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_not_ready_before_topics_are_open_and_says_so() {
        let operation = Operation::new();
        assert_eq!(operation.stage(), "starting");
        assert!(operation.unready().expect("not ready").contains("opening"));
        operation.stops();
        assert_eq!(operation.stage(), "stopping");
        assert!(operation.unready().expect("not ready").contains("stopping"));
    }

    #[test]
    fn a_storage_that_refuses_or_is_silent_is_away() {
        let operation = Operation::new();
        assert_eq!(operation.storage_failure(), None);
        operation.probed.lock().expect(NO_PANIC).failed = Some("no socket".to_owned());
        assert!(operation.storage_failure().expect("away").contains("no socket"));
        let long_ago = Instant::now().checked_sub(PROBE_TIME_MAX * 2).expect("a running clock");
        *operation.probed.lock().expect(NO_PANIC) = Probed { at: long_ago, failed: None };
        assert!(operation.storage_failure().expect("silent").contains("not responded"));
    }
}
