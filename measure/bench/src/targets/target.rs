//! One thing that is measured, set up and owned.

use std::cell::Cell;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use results::DeviceIo;

use crate::targets::device;

/// Way by which the load generator reaches a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// A file or block device; `direct` where it can be opened without the page cache.
    File { path: PathBuf, direct: bool },
    /// A Network Block Device.
    Nbd { uri: String },
    /// The socket of a vhost-user block device.
    VhostUser { socket: PathBuf },
    /// Nothing at all: requests are answered within the generator.
    Nothing,
}

/// Effect on a target of a kill with -9 of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterKill {
    /// The kernel serves it.
    NoServer,
    /// Requests wait until the server is back.
    GoesOn,
    /// Acknowledged data is there again after a restart; clients have seen errors.
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

/// Resources that were made for a target. Dropping it takes it down.
pub(crate) trait Backing {
    /// Memory or disk that the data takes now, where that can be told.
    fn used_bytes(&self) -> Result<Option<u64>>;

    /// Bytes that are stored as they are until there is time to make them smaller.
    fn pending_bytes(&self) -> Result<u64> {
        Ok(0)
    }

    /// The processes that serve it.
    fn server_ids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// How its server was started, with its flags.
    fn server_command(&self) -> Option<String> {
        None
    }

    /// Requests as its servers counted them where they came in, each at one place; `None` where
    /// they do not tell.
    fn counts(&self) -> Result<Option<DeviceIo>> {
        Ok(None)
    }

    /// The words of the command that generators of load are started by, if there is one.
    fn starter(&self) -> &[String] {
        &[]
    }
}

/// Description of a target, beside what was made for it.
pub(crate) struct Traits {
    pub(crate) access: Access,
    pub(crate) durability: Durability,
    pub(crate) reduces: bool,
    pub(crate) device: Option<String>,
}

/// One thing that is measured. Dropping it takes it down.
pub struct Target {
    name: String,
    size_bytes: u64,
    traits: Traits,
    backing: Box<dyn Backing>,
    /// With which block size everything was last written in full.
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

    pub fn durability(&self) -> Durability {
        self.traits.durability
    }

    /// Returns whether it stores data in fewer bytes than it has.
    pub fn reduces(&self) -> bool {
        self.traits.reduces
    }

    /// The kernel's name of the block device that requests pass.
    pub fn device(&self) -> Option<&str> {
        self.traits.device.as_deref()
    }

    /// Requests and sectors since the target was made, counted at [`Target::counted_at`]; `None`
    /// where nobody counts.
    pub fn counts(&self) -> Result<Option<DeviceIo>> {
        match self.device() {
            Some(device) => device::counts(device).map(Some),
            None => self.backing.counts(),
        }
    }

    /// The one layer at which requests are counted, for reports.
    pub fn counted_at(&self) -> String {
        match self.device() {
            Some(device) => format!("the kernel's block device {device}"),
            None => "the daemon's exports".to_owned(),
        }
    }

    pub fn used_bytes(&self) -> Result<Option<u64>> {
        self.backing.used_bytes()
    }

    /// Bytes that are stored as they are until there is time to make them smaller.
    pub fn pending_bytes(&self) -> Result<u64> {
        self.backing.pending_bytes()
    }

    pub fn server_ids(&self) -> Vec<u32> {
        self.backing.server_ids()
    }

    /// Command by which its server was started, with its flags; `None` where there is none.
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

    /// Finding of [`crate::targets::calibrate`]; `None` before it, or where there is no device.
    pub fn counts_exactly(&self) -> Option<bool> {
        self.counts_exactly.get()
    }

    pub(crate) fn note_calibration(&self, is_exact: bool) {
        self.counts_exactly.set(Some(is_exact));
    }

    /// Returns whether it was seen to lose data when several writes were under way. Then it is only
    /// measured with one at a time: the speed of losing data is of no interest.
    pub fn loses_concurrent_writes(&self) -> bool {
        self.loses_concurrent_writes.get()
    }

    pub(crate) fn note_lost_writes(&self) {
        self.loses_concurrent_writes.set(true);
    }

    /// Puts what was made for it below something that is made upon it.
    pub(crate) fn into_backing(self) -> (Traits, Box<dyn Backing>) {
        (self.traits, self.backing)
    }
}

/// Returns whether a file can be opened without the page cache.
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
