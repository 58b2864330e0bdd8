//! Signals to stop the broker, or to reload its files.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use program::Wish;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::access_rules::AccessRules;
use crate::broker::Broker;

/// Time from the signal until the process ends, even if requests are in flight.
const STOP_TIME_MAX: Duration = Duration::from_secs(14);

/// Signal handlers, which run on a separate thread.
pub(crate) struct Signals {
    runtime: Runtime,
    heeded: program::Signals,
}

impl Signals {
    /// Installs the handlers.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let heeded = program::Signals::listen()?;
        drop(inside);
        Ok(Self { runtime, heeded })
    }

    /// Handles signals until one to stop. SIGHUP reloads users, access lists and certificates. A
    /// second signal to stop ends the process immediately, as does the time limit.
    pub(crate) fn heed(mut self, broker: &Arc<Broker>) -> anyhow::Result<oneshot::Receiver<()>> {
        let reloading = start_reloading(broker)?;
        let (stop, stops) = oneshot::channel();
        let work = move || {
            while self.runtime.block_on(self.heeded.next()) == Wish::Reload {
                // A reload that is already queued will read the current files.
                reloading.try_send(()).ok();
            }
            // The broker may have ended already.
            let _gone = stop.send(());
            self.end_at_last();
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(work)?;
        Ok(stops)
    }

    /// Ends the process at a second signal or after the time limit, unless the broker has ended
    /// before.
    fn end_at_last(self) {
        let Self { runtime, mut heeded } = self;
        let again = async { tokio::time::timeout(STOP_TIME_MAX, heeded.stop()).await };
        if runtime.block_on(again).is_ok() {
            tracing::warn!("stopped immediately; acknowledged records are kept");
            exit_at_once(1);
        }
        tracing::warn!("timed out waiting for requests in flight; acknowledged records are kept");
        exit_at_once(0);
    }
}

/// Starts the thread that reloads files, which may wait for a disk. It ends with the sender. If it
/// hangs, it holds nothing that the broker needs to end.
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
