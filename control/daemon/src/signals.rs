//! Signals: who sends them wants the daemon to stop, or to read its configuration again.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use anyhow::Context;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::events::EventLog;
use crate::http::Gate;

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Stop,
    Reload,
}

/// What is wanted and was not yet taken up. Asking twice for one thing is asking once.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    open: Mutex<Open>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct Open {
    stop: bool,
    reload: bool,
}

impl Wishes {
    /// Listens to signals from now on. One that says to stop ends the process at once while the
    /// daemon starts, and also when it comes a second time.
    pub(crate) fn listen(
        runtime: &Handle,
        gate: Arc<Gate>,
        events: Arc<EventLog>,
    ) -> anyhow::Result<Arc<Self>> {
        let _inside = runtime.enter();
        let listen = |kind| signal(kind).context("cannot listen to signals");
        let signals = Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        };
        let wishes = Arc::<Self>::default();
        runtime.spawn(signals.heed(Arc::clone(&wishes), gate, events));
        Ok(wishes)
    }

    /// Waits for the next wish. Stopping comes first.
    pub(crate) fn next(&self) -> Wish {
        let is_idle = |open: &mut Open| !open.stop && !open.reload;
        let mut open = self.came.wait_while(self.open(), is_idle).expect(NO_PANIC);
        if open.stop {
            return Wish::Stop;
        }
        open.reload = false;
        Wish::Reload
    }

    fn ask(&self, wish: Wish) {
        match wish {
            Wish::Stop => self.open().stop = true,
            Wish::Reload => self.open().reload = true,
        }
        self.came.notify_all();
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect(NO_PANIC)
    }
}

const NO_PANIC: &str = "nobody panics with this lock";

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    async fn heed(mut self, wishes: Arc<Wishes>, gate: Arc<Gate>, events: Arc<EventLog>) {
        let mut is_stopping = false;
        loop {
            let wish = tokio::select! {
                _ = self.terminate.recv() => Wish::Stop,
                _ = self.interrupt.recv() => Wish::Stop,
                _ = self.hang_up.recv() => Wish::Reload,
            };
            if wish == Wish::Stop && gate.is_starting() {
                tracing::info!("stopped during the start; the next start begins anew");
                events.stopped();
                exit_at_once(0);
            }
            if wish == Wish::Stop && is_stopping {
                tracing::warn!("stopped at once; the next start cleans up");
                exit_at_once(1);
            }
            is_stopping |= wish == Wish::Stop;
            wishes.ask(wish);
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
        let wishes = Wishes::default();
        wishes.ask(Wish::Reload);
        wishes.ask(Wish::Reload);
        assert_eq!(wishes.next(), Wish::Reload);
        wishes.ask(Wish::Reload);
        wishes.ask(Wish::Stop);
        assert_eq!(wishes.next(), Wish::Stop);
    }
}
