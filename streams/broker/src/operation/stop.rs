//! Signals: they ask the broker to stop, or to read its files again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::broker::Broker;

/// The broker ends so long after it was asked to, whatever it waits for.
const STOP_TIME_MAX: Duration = Duration::from_secs(14);

/// The signals that are heeded, on a thread that waits for nothing else.
pub(crate) struct Signals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Heeds signals from now on.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let listen = |kind| signal(kind).context("cannot listen to signals");
        let (terminate, interrupt, hang_up) = (
            listen(SignalKind::terminate())?,
            listen(SignalKind::interrupt())?,
            listen(SignalKind::hangup())?,
        );
        drop(inside);
        Ok(Self { runtime, terminate, interrupt, hang_up })
    }

    /// Ends with a signal to stop. SIGHUP has users, access lists and certificates read again.
    /// Another signal to stop ends the process at once, and so does the time.
    pub(crate) fn heed(mut self, broker: &Arc<Broker>) -> anyhow::Result<oneshot::Receiver<()>> {
        let broker = Arc::downgrade(broker);
        let (stop, stops) = oneshot::channel();
        let work = move || {
            while !self.is_stop() {
                broker.upgrade().iter().for_each(|broker| reload(broker));
            }
            // It may have ended by itself.
            let _gone = stop.send(());
            self.end_at_last();
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(work)?;
        Ok(stops)
    }

    /// Waits for the next signal.
    fn is_stop(&mut self) -> bool {
        let Self { runtime, terminate, interrupt, hang_up } = self;
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => true,
                _ = interrupt.recv() => true,
                _ = hang_up.recv() => false,
            }
        })
    }

    /// The broker is to have ended before this does.
    fn end_at_last(mut self) {
        let start = Instant::now();
        while let Some(left) = STOP_TIME_MAX.checked_sub(start.elapsed()) {
            let Self { runtime, terminate, interrupt, .. } = &mut self;
            let has_come = runtime.block_on(async {
                tokio::select! {
                    _ = terminate.recv() => true,
                    _ = interrupt.recv() => true,
                    () = tokio::time::sleep(left) => false,
                }
            });
            if has_come {
                tracing::warn!("stopped at once; what was acknowledged is there at the next start");
                exit_at_once(1);
            }
        }
        tracing::warn!("what is waited for does not end; what was acknowledged is there");
        exit_at_once(0);
    }
}

fn reload(broker: &Broker) {
    service_manager::reloading();
    let failures = broker.gate.reload();
    for error in &failures {
        tracing::error!(error = format!("{error:#}"), "cannot reload; the old stays");
    }
    tracing::info!(failures = failures.len(), "users, lists and certificates read");
    service_manager::ready();
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operator asked twice, or the time is over: nothing is waited for"
)]
fn exit_at_once(code: i32) {
    std::process::exit(code);
}
