//! A target that is set up and owned.

use std::cell::Cell;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use results::DeviceIo;

use crate::targets::device;

/// Access method of the load generator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// A file or block device. `direct` if it supports direct I/O.
    File { path: PathBuf, direct: bool },
    /// A Network Block Device.
    Nbd { uri: String },
    /// Socket of a vhost-user block device.
    VhostUser { socket: PathBuf },
    /// None: requests complete within the generator.
    Nothing,
}

/// Effect of killing a target's server with -9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterKill {
    /// The kernel serves it.
    NoServer,
    /// Requests wait until the server is back.
    GoesOn,
    /// Acknowledged data is available after a restart, but clients have seen errors.
    DataStays,
    DataLost,
}

/// Failures that acknowledged data survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    pub after_kill: AfterKill,
    pub survives_power_loss: bool,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kill = match self.after_kill {
            AfterKill::NoServer => "no server to kill",
            AfterKill::GoesOn => "survives kill -9 of its server, clients go on",
            AfterKill::DataStays => "survives kill -9 of its server, clients see errors",
            AfterKill::DataLost => "lost at kill -9 of its server",
        };
        let power = if self.survives_power_loss { "survives" } else { "lost at" };
        write!(f, "{kill}; {power} power loss")
    }
}

/// Resources of a target, released when dropped.
pub(crate) trait Backing {
    /// Returns the memory or disk space of the data, if known.
    fn used_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Returns the bytes that are still to be reduced in the background.
    fn pending_bytes(&self) -> Result<u64> {
        Ok(0)
    }

    /// Returns the server processes.
    fn server_ids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Returns the command line of its server.
    fn server_command(&self) -> Option<String> {
        None
    }

    /// Returns requests counted by its servers where they arrived, each once, or `None` if
    /// unavailable.
    fn counts(&self) -> Result<Option<DeviceIo>> {
        Ok(None)
    }

    /// Returns the command prefix for load generators, if any.
    fn starter(&self) -> &[String] {
        &[]
    }
}

/// Description of a target, without its resources.
pub(crate) struct Traits {
    pub(crate) access: Access,
    pub(crate) durability: Durability,
    pub(crate) reduces: bool,
    pub(crate) device: Option<String>,
}

/// A measured target. Its resources are released when dropped.
pub struct Target {
    name: String,
    size_bytes: u64,
    traits: Traits,
    backing: Box<dyn Backing>,
    /// Block size of the last complete fill.
    filled_block_bytes: Cell<Option<u32>>,
    counts_exactly: Cell<Option<bool>>,
    loses_concurrent_writes: Cell<bool>,
}

impl Target {
    pub(crate) fn new(
        name: String,
        size_bytes: u64,
        traits: Traits,
        backing: Box<dyn Backing>,
    ) -> Self {
        Self {
            name,
            size_bytes,
            traits,
            backing,
            filled_block_bytes: Cell::new(None),
            counts_exactly: Cell::new(None),
            loses_concurrent_writes: Cell::new(false),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub fn access(&self) -> &Access {
        &self.traits.access
    }

    /// Returns the folder of the target's file.
    pub(crate) fn folder(&self) -> Result<&Path> {
        let Access::File { path, .. } = self.access() else {
            bail!("{} has no folder", self.name);
        };
        path.parent().context("a file is in a folder")
    }

    pub fn durability(&self) -> Durability {
        self.traits.durability
    }

    /// Returns whether it stores data in reduced form.
    pub fn reduces(&self) -> bool {
        self.traits.reduces
    }

    /// Returns the kernel's name of the block device that requests pass through.
    pub fn device(&self) -> Option<&str> {
        self.traits.device.as_deref()
    }

    /// Returns requests and sectors since the target was created, counted at
    /// [`Target::counted_at`], or `None` without counters.
    pub fn counts(&self) -> Result<Option<DeviceIo>> {
        match self.device() {
            Some(device) => device::counts(device).map(Some),
            None => self.backing.counts(),
        }
    }

    /// Returns the layer at which requests are counted, for reports.
    pub fn counted_at(&self) -> String {
        match self.device() {
            Some(device) => format!("the kernel's block device {device}"),
            None => "the daemon's exports".to_owned(),
        }
    }

    pub fn used_bytes(&self) -> Result<Option<u64>> {
        self.backing.used_bytes()
    }

    /// Returns the bytes that are still to be reduced in the background.
    pub fn pending_bytes(&self) -> Result<u64> {
        self.backing.pending_bytes()
    }

    pub fn server_ids(&self) -> Vec<u32> {
        self.backing.server_ids()
    }

    /// Returns the command line of its server, or `None` without one.
    pub fn server_command(&self) -> Option<String> {
        self.backing.server_command()
    }

    pub(crate) fn starter(&self) -> &[String] {
        self.backing.starter()
    }

    pub(crate) fn is_filled_with(&self, block_bytes: u32) -> bool {
        self.filled_block_bytes.get() == Some(block_bytes)
    }

    pub(crate) fn is_filled_at_all(&self) -> bool {
        self.filled_block_bytes.get().is_some()
    }

    pub(crate) fn note_fill(&self, block_bytes: u32) {
        self.filled_block_bytes.set(Some(block_bytes));
    }

    /// Returns the result of [`crate::targets::calibrate`], or `None` before it or without a
    /// device.
    pub fn counts_exactly(&self) -> Option<bool> {
        self.counts_exactly.get()
    }

    pub(crate) fn note_calibration(&self, is_exact: bool) {
        self.counts_exactly.set(Some(is_exact));
    }

    /// Returns whether it was found to lose data with concurrent writes. Then it is only measured
    /// with one at a time, because the speed of losing data is irrelevant.
    pub fn loses_concurrent_writes(&self) -> bool {
        self.loses_concurrent_writes.get()
    }

    pub(crate) fn note_lost_writes(&self) {
        self.loses_concurrent_writes.set(true);
    }

    /// Passes its resources on to a target that is built on it.
    pub(crate) fn into_backing(self) -> (Traits, Box<dyn Backing>) {
        (self.traits, self.backing)
    }
}

/// Returns whether a file supports direct I/O.
pub(crate) fn opens_directly(path: &Path) -> bool {
    use rustix::fs::{Mode, OFlags, open};
    open(path, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_is_told_in_a_sentence() {
        let durability = Durability { after_kill: AfterKill::DataLost, survives_power_loss: false };
        assert_eq!(durability.to_string(), "lost at kill -9 of its server; lost at power loss");
    }
}
