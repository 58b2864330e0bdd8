//! The daemon inside a guest.

use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::machine::Guest;
use crate::process::GuestProcess;

/// Time limits of one step. Processors are emulated, and the host may be loaded.
const START_TIME_MAX: Duration = Duration::from_secs(180);
const STOP_TIME_MAX: Duration = Duration::from_secs(180);
const COMMAND_TIME_MAX: Duration = Duration::from_secs(180);

const LOG: &str = "/run/memlaned.log";

/// Waits until the daemon answers or has ended. Its socket is checked first, which is cheaper than
/// the command line.
const WAIT: &str = "while pidof memlaned && ! [ -S /run/memlane/api.sock ]; do usleep 20000; done
while pidof memlaned && ! memlane status; do usleep 50000; done >/dev/null 2>&1
memlane status";

/// A daemon in a guest, and its command line.
pub struct GuestDaemon<'guest> {
    guest: &'guest Guest,
    process: GuestProcess,
}

impl<'guest> GuestDaemon<'guest> {
    /// Starts the daemon with `flags` and waits until it answers.
    pub fn start(guest: &'guest Guest, flags: &str) -> Result<Self> {
        let process = guest.start(&format!("exec memlaned {flags} >>{LOG} 2>&1"))?;
        let daemon = Self { guest, process };
        let answered = guest.check(WAIT, START_TIME_MAX);
        answered.with_context(|| {
            format!("the guest's daemon does not answer:\n{}", daemon.log_end())
        })?;
        Ok(daemon)
    }

    /// Kills only the daemon. Processes that it started continue.
    pub fn kill(self) -> Result<()> {
        self.kill_behind("true", COMMAND_TIME_MAX).map(drop)
    }

    /// Kills the daemon immediately after a line of the guest's shell. Returns the output of the
    /// line.
    pub fn kill_behind(self, line: &str, time_max: Duration) -> Result<String> {
        let status = self.memlane("--json status | tr , '\\n' | grep '\"pid\"' | tr -dc 0-9")?;
        let printed =
            self.guest.check(&format!("{line}; kill -KILL {}", status.trim()), time_max)?;
        let ended = self.process.wait(STOP_TIME_MAX)?.exit_code;
        anyhow::ensure!(ended == Some(-9), "the guest's daemon ended with {ended:?}");
        Ok(printed)
    }

    /// Runs the command line, which must succeed, and returns its output.
    pub fn memlane(&self, words: &str) -> Result<String> {
        self.guest.check(&format!("memlane {words}"), COMMAND_TIME_MAX)
    }

    /// Starts the command line without waiting for it.
    pub fn begin(&self, words: &str) -> Result<GuestProcess> {
        self.guest.start(&format!("exec memlane {words}"))
    }

    /// Stops the daemon and waits for its end.
    pub fn stop(self) -> Result<()> {
        let log_end = self.log_end();
        self.process.signal(Signal::TERM)?;
        let output = self.process.wait(STOP_TIME_MAX)?;
        let code = output.exit_code;
        anyhow::ensure!(code == Some(0), "the guest's daemon ended with {code:?}:\n{log_end}");
        Ok(())
    }

    /// Returns the end of the daemon's log, for messages.
    pub fn log_end(&self) -> String {
        let log = self.guest.run(&format!("tail -n 40 {LOG}"), COMMAND_TIME_MAX);
        log.map_or_else(|error| format!("{error:#}"), |output| output.stdout)
    }
}
