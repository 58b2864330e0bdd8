//! Load on the host: processes that are always busy, beside which tests must pass.

use std::fmt;
use std::process::{Child, Command};

use anyhow::{Context, Result};

/// Number of times that suites run beside the load.
pub(crate) const ROUNDS: usize = 10;

const BUSY_PROCESSES: usize = 4;

/// Busy processes. They end when this is dropped, and with the process that started them.
pub(crate) struct Load {
    processes: Vec<Child>,
}

impl Load {
    pub(crate) fn start() -> Result<Self> {
        let mut load = Self { processes: Vec::new() };
        for _ in 0..BUSY_PROCESSES {
            let words = ["--pdeathsig", "KILL", "sh", "-c", "while :; do :; done"];
            let process = Command::new("setpriv").args(words).spawn();
            load.processes.push(process.context("cannot start a busy process by setpriv")?);
        }
        Ok(load)
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} busy processes", self.processes.len())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // It may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
