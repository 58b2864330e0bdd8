//! Readiness of the broker, and of its storage.

use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use metrics_text::Page;

use crate::broker::Broker;
use crate::storage::Storage;

const NO_PANIC: &str = "no thread panics with this lock";

/// The storage is asked so often.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// A storage that has not answered for so long is said to be away.
const PROBE_TIME_MAX: Duration = Duration::from_secs(5);

/// Writes what is measured of SQL.
pub(crate) type SqlMetrics = Box<dyn Fn(&mut Page) + Send + Sync>;

/// State that the interface tells of. Made before topics are opened.
pub(crate) struct Operation {
    pub(super) started: Instant,
    /// Once topics are open.
    broker: OnceLock<Weak<Broker>>,
    /// Where SQL is served.
    sql: OnceLock<SqlMetrics>,
    is_stopping: OnceLock<()>,
    probed: Mutex<Probed>,
}

struct Probed {
    at: Instant,
    /// Why the storage does not serve.
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

    /// Clients are served from now on.
    pub(crate) fn serves(&self, broker: &Arc<Broker>, sql: Option<SqlMetrics>) {
        // There is one broker in a process.
        let _first = sql.map(|sql| self.sql.set(sql));
        let _first = self.broker.set(Arc::downgrade(broker));
    }

    /// No more clients are taken in.
    pub(crate) fn stops(&self) {
        // It can be said twice.
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

    /// Why the storage does not serve, if it cannot.
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

    /// Why the broker is not ready, if it is not.
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

    /// Topics that are not served, if there are such, in a sentence: all others are.
    pub(super) fn unserved(&self) -> Option<String> {
        let (count, names) = self.broker()?.topics.unserved();
        let more = if count > names.len() { ", …" } else { "" };
        let names = names.join(", ");
        (count > 0).then(|| {
            format!(
                "{count} topics are not available, because they wait for their disk or \
                     cannot be opened: {names}{more}"
            )
        })
    }

    /// Asks the storage again and again, until the runtime ends. One question at a time: one that
    /// hangs shows as a storage that does not answer.
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
