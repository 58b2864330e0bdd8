//! A daemon, libvirt and `memlane-machines` between them.

use std::ops::Deref;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
pub(crate) use guest::FROM_SCRIPT;
use guest::{ImageContents, MachinesHost};
use system::{Ability, Daemon, DaemonOptions, Tool, missing};

pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(180);

/// A guest that listens to its power button.
pub(crate) const PLAIN: ImageContents =
    ImageContents { products: &[], programs: &[], modules: &["button", "evdev"] };

/// Returns whether this host lacks what the test needs; says so.
pub(crate) fn lacks(programs: &[&'static str]) -> bool {
    let programs = programs.iter().map(|&program| Ability::Program(program));
    let reason = missing(&programs.chain([Ability::BlockDevices]).collect::<Vec<_>>());
    if let Some(reason) = &reason {
        eprintln!("skipped: {reason}");
    }
    reason.is_some()
}

/// Ends with the test, with all that it started.
pub(crate) struct Site {
    // The order is that of dropping.
    host: MachinesHost,
    pub(crate) daemon: Daemon,
}

impl Deref for Site {
    type Target = MachinesHost;

    fn deref(&self) -> &MachinesHost {
        &self.host
    }
}

impl Site {
    pub(crate) fn start(contents: ImageContents) -> Result<Self> {
        let daemon = Daemon::start(DaemonOptions { pool_size: "256MiB", flags: "--no-fuse" })?;
        Ok(Self { host: MachinesHost::start(contents, &daemon)?, daemon })
    }

    /// Makes a volume of 16 MiB that begins with a text, such as a script for the guest.
    pub(crate) fn volume_with_text(&self, name: &str, text: &str) -> Result<()> {
        MachinesHost::volume_with_text(&self.daemon, name, text)
    }

    /// `memlane vm`, to be run.
    pub(crate) fn vm(&self, words: &[&str]) -> Tool {
        self.daemon.command_line("vm --json --machines-socket").arg(self.socket()).args(words)
    }

    /// Answer of `memlane vm`.
    pub(crate) fn ask<T: serde::de::DeserializeOwned>(&self, words: &[&str]) -> Result<T> {
        let text = self.vm(words).check()?;
        serde_json::from_str(&text).with_context(|| format!("memlane vm {words:?}: {text}"))
    }

    /// The kind of problem that `memlane vm` fails with.
    pub(crate) fn refusal(&self, words: &[&str]) -> Result<String> {
        let output = self.vm(words).run()?;
        ensure!(output.exit_code != Some(0), "memlane vm {words:?} was not refused: {output:?}");
        let answer: serde_json::Value = serde_json::from_str(&output.stdout)?;
        Ok(answer["error"]["kind"].as_str().context("no kind")?.to_owned())
    }

    /// Ends all of it and checks that nothing is left.
    pub(crate) fn finish(self) -> Result<()> {
        self.host.finish()
    }
}
