//! A daemon with one volume, and programs that `memlane run` runs on it.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use system::{Ability, Daemon, DaemonOptions, Tool, ToolOutput, attach, missing};

pub(crate) const VOLUME: &str = "v";
pub(crate) const SIZE_MIB: u64 = 32;

/// A daemon, a volume, and where programs find it.
pub(crate) struct Site {
    pub(crate) daemon: Daemon,
    pub(crate) file: PathBuf,
    pub(crate) device: PathBuf,
}

impl Site {
    /// `None`, said on standard error, where tests cannot have what they need.
    pub(crate) fn new(needed: &[Ability]) -> Result<Option<Self>> {
        Self::with_class("ram", needed)
    }

    /// The same with a volume of another class.
    pub(crate) fn with_class(class: &str, needed: &[Ability]) -> Result<Option<Self>> {
        if let Some(reason) = missing(&[&[Ability::BlockDevices], needed].concat()) {
            eprintln!("skipped: {reason}");
            return Ok(None);
        }
        let daemon = Daemon::start(DaemonOptions { pool_size: "256MiB", flags: "" })?;
        let create = format!("volume create {VOLUME} --size {SIZE_MIB}MiB --durability {class}");
        daemon.memlane(&create)?;
        // So that its file can be written too.
        let device = attach(&daemon, &format!("{VOLUME} --share"))?;
        let file = daemon.run_dir().join("volumes").join(VOLUME);
        Ok(Some(Self { daemon, file, device }))
    }

    pub(crate) fn report(&self) -> PathBuf {
        self.daemon.folder().join("report")
    }

    /// `memlane run`, to which the program is to be added.
    pub(crate) fn run(&self) -> Tool {
        let run = self.daemon.command_line(&format!("run --volume {VOLUME}"));
        run.arg("--report").arg(self.report()).arg("--")
    }

    /// Runs a program that must succeed, of `words` without blanks.
    pub(crate) fn check(&self, words: &str) -> Result<String> {
        self.run().args(words.split_whitespace()).check()
    }

    pub(crate) fn shell(&self, script: &str) -> Result<ToolOutput> {
        self.run().args(["sh", "-c", script]).run()
    }

    /// Number of reads and writes that went through rings since the daemon was started.
    pub(crate) fn requests(&self) -> Result<u64> {
        self.count(&["read", "write"])
    }

    /// Number of flushes that went through rings since the daemon was started.
    pub(crate) fn flushes(&self) -> Result<u64> {
        self.count(&["flush"])
    }

    fn count(&self, kinds: &[&str]) -> Result<u64> {
        let page = Tool::new("curl --silent --show-error --max-time 30 --unix-socket")
            .arg(self.daemon.api_socket())
            .arg("http://localhost/metrics")
            .check()?;
        let count = |kind: &&str| {
            let name = format!("memlane_ring_requests_total{{kind=\"{kind}\"}} ");
            let line = page.lines().find_map(|line| line.strip_prefix(&name));
            let value = line.with_context(|| format!("no {name} among the metrics"))?;
            value.trim().parse::<u64>().context("a counter is a number")
        };
        kinds.iter().map(count).sum()
    }

    /// Does something that must go through the ring `least` times.
    pub(crate) fn through_the_ring<T>(
        &self,
        least: u64,
        act: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let before = self.requests()?;
        let done = act()?;
        let count = self.requests()? - before;
        ensure!(count >= least, "{count} requests went through the ring, not {least}");
        Ok(done)
    }
}

/// A program beside these tests.
pub(crate) fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    folder.join("tests/programs").join(name)
}
