//! Bare memory: an upper bound on the performance of any medium.

use std::sync::RwLock;

use anyhow::Result;

use super::medium::Medium;
use super::message::BATCH_BYTES;

/// A slot per batch. Locks are uncontended, because the log separates its writer and readers.
pub(crate) struct Memory {
    slots: Vec<RwLock<Vec<u8>>>,
}

impl Memory {
    pub(crate) fn new(size_bytes: u64) -> Self {
        let slots = size_bytes.div_ceil(BATCH_BYTES as u64);
        Self { slots: (0..slots).map(|_| RwLock::new(vec![0; BATCH_BYTES])).collect() }
    }

    fn slot(&self, offset_bytes: u64) -> &RwLock<Vec<u8>> {
        let index = usize::try_from(offset_bytes / BATCH_BYTES as u64).expect("it is in memory");
        &self.slots[index]
    }
}

impl Medium for Memory {
    fn append(&self, offset_bytes: u64, batch: &[u8]) -> Result<()> {
        self.slot(offset_bytes).write().expect("copies do not panic").copy_from_slice(batch);
        Ok(())
    }

    fn read(&self, offset_bytes: u64, batch: &mut [u8]) -> Result<()> {
        batch.copy_from_slice(&self.slot(offset_bytes).read().expect("copies do not panic"));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}
