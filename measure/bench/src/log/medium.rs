//! Storage media for a log: anything that stores bytes at an offset.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::Result;

/// A medium for a log. Any thread may call it.
pub(crate) trait Medium: Send + Sync {
    /// Stores a batch. Its offset is a multiple of its length, and its memory is page-aligned.
    fn append(&self, offset_bytes: u64, batch: &[u8]) -> Result<()>;

    /// Reads `batch` from `offset_bytes`.
    fn read(&self, offset_bytes: u64, batch: &mut [u8]) -> Result<()>;

    /// Makes appends as durable as the medium supports.
    fn sync(&self) -> Result<()>;

    /// Returns remarks on its measurements.
    fn flags(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A file or block device.
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
