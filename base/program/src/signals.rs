//! Signals that stop a program or reload its configuration.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Request by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Stop,
    Reload,
}

/// Signal handlers of a program, which replace the default actions.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// SIGHUP, for programs that can reload. It terminates other programs.
    hang_up: Option<Signal>,
}

impl Signals {
    /// Handles SIGTERM, SIGINT and SIGHUP. Must be called in a runtime.
    ///
    /// # Errors
    /// The system has no free descriptor.
    pub fn listen() -> anyhow::Result<Self> {
        Ok(Self { hang_up: Some(listen(SignalKind::hangup())?), ..Self::listen_to_stop()? })
    }

    /// Handles SIGTERM and SIGINT. Must be called in a runtime.
    ///
    /// # Errors
    /// The system has no free descriptor.
    pub fn listen_to_stop() -> anyhow::Result<Self> {
        let terminate = listen(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: listen(SignalKind::interrupt())?, hang_up: None })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> Wish {
        let Self { terminate, interrupt, hang_up } = self;
        let hung_up = async {
            match hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => Wish::Stop,
            _ = interrupt.recv() => Wish::Stop,
            _ = hung_up => Wish::Reload,
        }
    }

    /// Waits for a signal to stop.
    pub async fn stop(&mut self) {
        while self.next().await != Wish::Stop {}
    }
}

fn listen(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("cannot install signal handlers")
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal as Number, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn a_signal_says_to_stop_or_to_reload() {
        let mut signals = Signals::listen().expect("there are descriptors");
        for (number, wish) in
            [(Number::HUP, Wish::Reload), (Number::TERM, Wish::Stop), (Number::INT, Wish::Stop)]
        {
            kill_process(getpid(), number).expect("this process is there");
            assert_eq!(signals.next().await, wish);
        }
    }
}
