//! kcat, the unmodified client of the demonstration.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use system::{Ability, Broker, missing, wait_for};

const TIME_LIMIT: Duration = Duration::from_secs(60);

const NO_PANIC: &str = "no thread panics with this lock";

/// Fails if it is not installed.
pub(crate) fn check_that_it_is_there() -> Result<()> {
    match missing(&[Ability::Program("kcat")]) {
        Some(reason) => bail!("{reason}; kcat is the unmodified client that is shown"),
        None => Ok(()),
    }
}

/// Debian's client based on librdkafka. Dropping it ends it.
pub(crate) struct Kcat {
    child: Child,
}

impl Kcat {
    pub(crate) fn start(broker: &Broker, words: &[&str]) -> Result<Self> {
        let child = Command::new("kcat")
            // With -E it continues while the broker is down.
            .args(["-E", "-b", &broker.address()])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Clients report that the broker is down.
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run kcat")?;
        Ok(Self { child })
    }

    /// Standard input of the program.
    pub(crate) fn input(&mut self) -> Result<ChildStdin> {
        self.child.stdin.take().context("kcat has no input")
    }

    fn output(&mut self) -> Result<BufReader<ChildStdout>> {
        self.child.stdout.take().map(BufReader::new).context("kcat has no output")
    }

    /// Collects its output from now on.
    pub(crate) fn collect(mut self) -> Result<Collected> {
        let output = self.output()?;
        let seen = Arc::new(Mutex::new(BTreeSet::new()));
        let filled = Arc::clone(&seen);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                filled.lock().expect(NO_PANIC).insert(line);
            }
        });
        Ok(Collected { seen, _kcat: self })
    }

    /// Returns all lines that it prints until it ends.
    pub(crate) fn lines(mut self) -> Result<Vec<String>> {
        let lines = self.output()?.lines().collect::<std::io::Result<_>>()?;
        self.finish()?;
        Ok(lines)
    }

    pub(crate) fn finish(&mut self) -> Result<()> {
        wait_for("kcat to end", TIME_LIMIT, || Ok(self.child.try_wait()?.is_some()))?;
        let status = self.child.wait()?;
        ensure!(status.success(), "kcat ended with {status}");
        Ok(())
    }
}

impl Drop for Kcat {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The set of records that a consumer has received, possibly several times each.
pub(crate) struct Collected {
    seen: Arc<Mutex<BTreeSet<String>>>,
    _kcat: Kcat,
}

impl Collected {
    pub(crate) fn count(&self) -> u64 {
        self.seen.lock().expect(NO_PANIC).len() as u64
    }
}
