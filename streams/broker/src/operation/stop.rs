//! Signals: they ask the broker to stop, or to read its files again.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::broker::Broker;

/// The signals that are heeded.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Heeds signals from now on.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal to stop; SIGHUP has users, access lists and certificates read again.
    pub(crate) async fn stop(&mut self, broker: &Broker) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => reload(broker),
            }
        }
    }

    /// Ends the process at once when another signal to stop comes.
    pub(crate) async fn stop_at_once(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        tracing::warn!("stopped at once; what was acknowledged is there at the next start");
        exit_at_once(1);
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

#[expect(clippy::disallowed_methods, reason = "the operator asked twice: nothing is waited for")]
fn exit_at_once(code: i32) {
    std::process::exit(code);
}
