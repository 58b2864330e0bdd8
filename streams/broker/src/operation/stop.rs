//! Signals: they ask the broker to stop, or to read its files again.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use program::Wish;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::access_rules::AccessRules;
use crate::broker::Broker;

/// The broker ends so long after it was asked to, whatever it waits for.
const STOP_TIME_MAX: Duration = Duration::from_secs(14);

/// The signals that are heeded, on a thread that waits for nothing else.
pub(crate) struct Signals {
    runtime: Runtime,
    heeded: program::Signals,
}

impl Signals {
    /// Heeds signals from now on.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let heeded = program::Signals::listen()?;
        drop(inside);
        Ok(Self { runtime, heeded })
    }

    /// Ends with a signal to stop. SIGHUP has users, access lists and certificates read again.
    /// Another signal to stop ends the process at once, and so does the time.
    pub(crate) fn heed(mut self, broker: &Arc<Broker>) -> anyhow::Result<oneshot::Receiver<()>> {
        let reloading = start_reloading(broker)?;
        let (stop, stops) = oneshot::channel();
        let work = move || {
            while self.runtime.block_on(self.heeded.next()) == Wish::Reload {
                // One that waits already reads what is there now.
                reloading.try_send(()).ok();
            }
            // It may have ended by itself.
            let _gone = stop.send(());
            self.end_at_last();
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(work)?;
        Ok(stops)
    }

    /// The broker is to have ended before this does.
    fn end_at_last(self) {
        let Self { runtime, mut heeded } = self;
        let again = async { tokio::time::timeout(STOP_TIME_MAX, heeded.stop()).await };
        if runtime.block_on(again).is_ok() {
            tracing::warn!("stopped at once; acknowledged records are kept");
            exit_at_once(1);
        }
        tracing::warn!("timed out waiting for requests in flight; acknowledged records are kept");
        exit_at_once(0);
    }
}

/// Starts the thread that reads files again, which may wait for a disk. It ends with the sender.
/// One that hangs has nothing of the broker that its end needs.
fn start_reloading(broker: &Broker) -> anyhow::Result<SyncSender<()>> {
    let rules = Arc::downgrade(&broker.rules);
    let (reloading, wishes) = sync_channel(1);
    let work = move || {
        for () in wishes {
            rules.upgrade().iter().for_each(|rules| reload(rules));
        }
    };
    std::thread::Builder::new().name("reloading".to_owned()).spawn(work)?;
    Ok(reloading)
}

fn reload(rules: &AccessRules) {
    service_manager::reloading();
    let failures = rules.reload();
    for error in &failures {
        tracing::error!(
            error = format!("{error:#}"),
            "cannot reload the configuration; keeping \
                                                       the old one"
        );
    }
    tracing::info!(failures = failures.len(), "reloaded users, access lists and certificates");
    service_manager::ready();
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operator asked twice, or the time is over: nothing is waited for"
)]
fn exit_at_once(code: i32) {
    std::process::exit(code);
}
