//! Signals that stop the daemon or reload its configuration.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use program::{Signals, Wish};
use tokio::runtime::Handle;

use crate::start_resources::StartResources;
use crate::wanted::{Restart, Wanted};

/// Queue of signals to be handled. Repeated signals count once.
#[derive(Debug)]
pub(crate) struct Wishes {
    wanted: Receiver<Wanted>,
    restart: Restart,
}

impl Wishes {
    /// Starts to handle signals. A stop signal ends the process immediately until exports start,
    /// and when it is repeated.
    pub(crate) fn listen(runtime: &Handle, resources: Arc<StartResources>) -> anyhow::Result<Self> {
        let _inside = runtime.enter();
        let signals = Signals::listen()?;
        let (wishes, wanted) = mpsc::channel();
        let restart = Restart(wishes.clone());
        runtime.spawn(heed(signals, wishes, resources));
        Ok(Self { wanted, restart })
    }

    /// Handle for requesting a restart of the daemon.
    pub(crate) fn restart(&self) -> Restart {
        self.restart.clone()
    }

    /// Waits for the next request. A stop has priority over a restart, and a restart over a reload,
    /// which follows it.
    pub(crate) fn next(&self) -> Wanted {
        // Without a sender, nothing else could stop the daemon.
        let first = self.wanted.recv().unwrap_or(Wanted::Stop);
        let all: Vec<Wanted> = [first].into_iter().chain(self.wanted.try_iter()).collect();
        let mut in_order = [Wanted::Stop, Wanted::Restart].into_iter();
        let next = in_order.find(|wanted| all.contains(wanted)).unwrap_or(Wanted::Reload);
        if next == Wanted::Restart && all.contains(&Wanted::Reload) {
            self.restart.0.send(Wanted::Reload).expect("its receiver is here");
        }
        next
    }
}

async fn heed(mut signals: Signals, wishes: Sender<Wanted>, resources: Arc<StartResources>) {
    let mut is_stopping = false;
    loop {
        let wish = signals.next().await;
        if wish == Wish::Stop
            && let Some(_undone) = resources.stop()
        {
            exit_at_once(0);
        }
        if wish == Wish::Stop && is_stopping {
            tracing::warn!("stopped at once; the next start cleans up");
            exit_at_once(1);
        }
        is_stopping |= wish == Wish::Stop;
        // The receiver is gone when the daemon is stopping.
        let _taken_up = wishes.send(match wish {
            Wish::Stop => Wanted::Stop,
            Wish::Reload => Wanted::Reload,
        });
    }
}

#[expect(clippy::disallowed_methods, reason = "there is nothing to end, or no time for it")]
fn exit_at_once(code: i32) -> ! {
    std::process::exit(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopping_comes_first_and_a_reload_is_done_once() {
        let (wishes, wanted) = mpsc::channel();
        let wanted = Wishes { wanted, restart: Restart(wishes.clone()) };
        let ask = |wish| wishes.send(wish).expect("it listens");
        ask(Wanted::Reload);
        ask(Wanted::Reload);
        assert_eq!(wanted.next(), Wanted::Reload);
        ask(Wanted::Reload);
        wanted.restart().ask();
        assert_eq!(wanted.next(), Wanted::Restart);
        assert_eq!(wanted.next(), Wanted::Reload);
        wanted.restart().ask();
        ask(Wanted::Stop);
        assert_eq!(wanted.next(), Wanted::Stop);
    }
}
