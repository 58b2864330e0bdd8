//! Signals: they ask the daemon to stop, or to read its configuration again.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use program::{Signals, Wish};
use tokio::runtime::Handle;

use crate::events::EventLog;
use crate::http::Gate;

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
        let signals = Signals::listen()?;
        let (wishes, wanted) = mpsc::channel();
        runtime.spawn(heed(signals, wishes, gate, events));
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

async fn heed(mut signals: Signals, wishes: Sender<Wish>, gate: Arc<Gate>, events: Arc<EventLog>) {
    let mut is_stopping = false;
    loop {
        let wish = signals.next().await;
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
