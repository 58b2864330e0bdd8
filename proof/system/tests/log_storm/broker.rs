//! The broker as a process, at an address that stays.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use system::{Random, product_path, wait_for};

const START_TIME_LIMIT: Duration = Duration::from_secs(30);
const LOG_BYTES_SHOWN_MAX: usize = 4000;

/// Below the ports that the kernel gives to clients: one of these could connect to itself while
/// the broker is gone.
const PORT_FIRST: u16 = 20_000;
const PORT_COUNT: u16 = 12_000;
const PORT_ATTEMPTS_MAX: usize = 100;

/// A running broker, or one that was just killed. Dropping it kills it.
pub(crate) struct Broker {
    flags: Vec<String>,
    address: String,
    log: PathBuf,
    child: Option<Child>,
}

impl Broker {
    /// Starts a broker with these flags, which keeps its log in `folder`.
    pub(crate) fn start(flags: Vec<String>, folder: &Path, random: &mut Random) -> Result<Self> {
        let address = free_address(random)?;
        let mut broker = Self { flags, address, log: folder.join("broker.log"), child: None };
        broker.launch()?;
        broker.wait_until_ready()?;
        Ok(broker)
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Starts the broker and waits for nothing.
    pub(crate) fn launch(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.context("cannot open the broker's log")?;
        let child = Command::new(product_path("memlane-broker"))
            .args(["--listen", &self.address, "--anonymous", "loopback"])
            .args(["--group-initial-rebalance-delay", "0", "--log", "warn"])
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share the broker's log")?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .context("cannot start memlane-broker")?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until the broker takes connections.
    pub(crate) fn wait_until_ready(&mut self) -> Result<()> {
        let ready = wait_for("the broker to serve", START_TIME_LIMIT, || {
            let child = self.child.as_mut().context("the broker was not started")?;
            if let Some(status) = child.try_wait().context("cannot wait for the broker")? {
                bail!("the broker ended with {status}");
            }
            Ok(TcpStream::connect(&self.address).is_ok())
        });
        ready.with_context(|| format!("the broker's log:\n{}", self.log_end()))
    }

    /// Kills the broker with -9 and waits until the kernel has let go of it.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("the broker does not run")?;
        child.kill().context("cannot kill the broker")?;
        child.wait().context("cannot wait for the killed broker")?;
        Ok(())
    }

    /// The end of the broker's log, for messages.
    pub(crate) fn log_end(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let start = log.len().saturating_sub(LOG_BYTES_SHOWN_MAX);
        String::from_utf8_lossy(&log[start..]).into_owned()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.child.is_some() {
            // It may have ended by itself, which is as good.
            let _ = self.kill();
        }
    }
}

fn free_address(random: &mut Random) -> Result<String> {
    for _ in 0..PORT_ATTEMPTS_MAX {
        let offset = u16::try_from(random.below(PORT_COUNT.into())).unwrap_or_default();
        let address = format!("127.0.0.1:{}", PORT_FIRST + offset);
        if TcpListener::bind(&address).is_ok() {
            return Ok(address);
        }
    }
    bail!("{PORT_ATTEMPTS_MAX} ports of 127.0.0.1 are all in use")
}
