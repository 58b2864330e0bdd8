//! Processes in the background.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::interruption::Interruption;
use crate::tool::{Tool, name_of};

const POLL_INTERVAL: Duration = Duration::from_millis(2);

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
