//! Processes in the background, and the wish of the user to stop.

use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::tool::{Tool, name_of};

const POLL_INTERVAL: Duration = Duration::from_millis(2);

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
static CLEANING_UP: AtomicBool = AtomicBool::new(false);

/// The user's wish to stop: Ctrl-C or a polite signal. Waits end with an error then, so that guards
/// clean up on the way out.
pub struct Interruption;

impl Interruption {
    /// From now on the signals ask instead of ending the process.
    pub fn listen() -> Result<()> {
        let flag = INTERRUPTED.get_or_init(Arc::default);
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(flag))
                .context("cannot listen to signals")?;
        }
        Ok(())
    }

    /// Waits no longer end with an error: cleaning up is not interrupted by what began it.
    pub fn begin_to_clean_up() {
        // Relaxed: the flag carries no data.
        CLEANING_UP.store(true, Ordering::Relaxed);
    }

    /// Whether waits shall end.
    pub fn is_asked_for() -> bool {
        // Relaxed: the flag carries no data.
        Self::was_asked_for() && !CLEANING_UP.load(Ordering::Relaxed)
    }

    /// Whether the user wished to stop, however long ago.
    pub fn was_asked_for() -> bool {
        // Relaxed: the flag carries no data.
        INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

/// A program that runs beside the test; ended when dropped.
pub struct Background {
    child: Child,
    name: String,
}

impl Background {
    pub fn start(tool: Tool) -> Result<Self> {
        let mut command = tool.into_command();
        let name = name_of(&command);
        let child = command.spawn().with_context(|| format!("cannot run {name}"))?;
        Ok(Self { child, name })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn has_ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot wait for {}", self.name))
    }

    /// Waits for the program's end, which must be a success.
    pub fn finish(mut self, time_limit: Duration) -> Result<()> {
        let deadline = Instant::now() + time_limit;
        loop {
            if let Some(status) = self.has_ended()? {
                ensure!(status.success(), "{} failed: {status}", self.name);
                return Ok(());
            }
            ensure!(!Interruption::is_asked_for(), "interrupted during {}", self.name);
            if Instant::now() >= deadline {
                bail!("{} did not end within {time_limit:?}", self.name);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
