//! Signals: they ask the daemon to stop, or to read its configuration again.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use anyhow::Context;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::events::EventLog;
use crate::http::Gate;

/// Wish of the sender of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Stop,
    Reload,
}

/// Wishes that were not yet taken up. Asking twice for one thing is asking once.
#[derive(Debug)]
pub(crate) struct Wishes(Receiver<Wish>);

impl Wishes {
    /// Listens to signals from now on. One that says to stop ends the process at once while the
    /// daemon starts, and also when it comes a second time.
    pub(crate) fn listen(
        runtime: &Handle,
        gate: Arc<Gate>,
        events: Arc<EventLog>,
    ) -> anyhow::Result<Self> {
        let _inside = runtime.enter();
        let listen = |kind| signal(kind).context("cannot install signal handlers");
        let signals = Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        };
        let (wishes, wanted) = mpsc::channel();
        runtime.spawn(signals.heed(wishes, gate, events));
        Ok(Self(wanted))
    }

    /// Waits for the next wish. Stopping comes first.
    pub(crate) fn next(&self) -> Wish {
        // Without a listener nothing else ends the daemon.
        let first = self.0.recv().unwrap_or(Wish::Stop);
        let is_stop = |wish| wish == Wish::Stop;
        match [first].into_iter().chain(self.0.try_iter()).any(is_stop) {
            true => Wish::Stop,
            false => Wish::Reload,
        }
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    async fn heed(mut self, wishes: Sender<Wish>, gate: Arc<Gate>, events: Arc<EventLog>) {
        let mut is_stopping = false;
        loop {
            let wish = tokio::select! {
                _ = self.terminate.recv() => Wish::Stop,
                _ = self.interrupt.recv() => Wish::Stop,
                _ = self.hang_up.recv() => Wish::Reload,
            };
            if wish == Wish::Stop && gate.is_starting() {
                tracing::info!("stopped during startup; the next start begins from scratch");
                events.stopped();
                exit_at_once(0);
            }
            if wish == Wish::Stop && is_stopping {
                tracing::warn!("stopped at once; the next start cleans up");
                exit_at_once(1);
            }
            is_stopping |= wish == Wish::Stop;
            // Nothing is wanted any more of a daemon that ends.
            let _taken_up = wishes.send(wish);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "there is nothing to end, or no time for it")]
fn exit_at_once(code: i32) {
    std::process::exit(code);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopping_comes_first_and_a_reload_is_done_once() {
        let (wishes, wanted) = mpsc::channel();
        let (ask, wanted) = (|wish| wishes.send(wish).expect("it listens"), Wishes(wanted));
        ask(Wish::Reload);
        ask(Wish::Reload);
        assert_eq!(wanted.next(), Wish::Reload);
        ask(Wish::Reload);
        ask(Wish::Stop);
        assert_eq!(wanted.next(), Wish::Stop);
    }
}
