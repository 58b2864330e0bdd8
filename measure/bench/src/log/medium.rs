//! Places on which a log can lie: anything that stores bytes at an offset.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::Result;

/// Something that holds a log. Any thread may call it.
pub(crate) trait Medium: Send + Sync {
    /// Stores a batch. It begins on a multiple of its own length, in memory on a page.
    fn append(&self, offset_bytes: u64, batch: &[u8]) -> Result<()>;

    /// Fills `batch` with what lies at `offset_bytes`.
    fn read(&self, offset_bytes: u64, batch: &mut [u8]) -> Result<()>;

    /// Makes what was appended as durable as the medium can.
    fn sync(&self) -> Result<()>;

    /// What readers of its measurements should know.
    fn flags(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A file or a block device.
impl Medium for File {
    fn append(&self, offset_bytes: u64, batch: &[u8]) -> Result<()> {
        Ok(self.write_all_at(batch, offset_bytes)?)
    }

    fn read(&self, offset_bytes: u64, batch: &mut [u8]) -> Result<()> {
        Ok(self.read_exact_at(batch, offset_bytes)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.sync_data()?)
    }
}
