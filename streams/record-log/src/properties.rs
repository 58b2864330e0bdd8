//! The owner's bytes that belong to a topic, such as its name and configuration.
//!
//! There are two places for them. A change is written to the one that does not hold the newest, so
//! that a crash in the middle of it leaves what was there before. Both hold something from the
//! beginning: retention has to be set also in a full pool.

use std::sync::{Mutex, RwLock};

use block_device::BlockDevice;

use crate::error::{LogError, LogErrorKind};
use crate::records::PropertiesRecord;
use crate::slots;

/// The most bytes that a topic keeps for its owner.
pub const PROPERTIES_BYTES_MAX: usize = 64 << 10;

const CHANGING: &str = "nothing panics while they are replaced";

#[derive(Debug)]
pub(crate) struct Properties {
    bytes: RwLock<Vec<u8>>,
    /// Of the newest that is durable. Held by the thread that changes them.
    sequence: Mutex<u64>,
}

impl Properties {
    /// Writes the first ones of a new topic; they are durable after the next flush.
    pub(crate) fn create(device: &dyn BlockDevice, bytes: &[u8]) -> Result<Self, LogError> {
        check_length(bytes)?;
        let mut record = PropertiesRecord { sequence: 0, bytes: bytes.to_vec() };
        record.save(device)?;
        record.sequence = 1;
        record.save(device)?;
        Ok(Self::new(record))
    }

    pub(crate) fn open(device: &dyn BlockDevice) -> Result<Self, LogError> {
        let newest = PropertiesRecord::load_newest(device)?.ok_or_else(|| {
            LogError::new(LogErrorKind::Damaged, "the topic has lost the properties of its owner")
        })?;
        Ok(Self::new(newest))
    }

    fn new(record: PropertiesRecord) -> Self {
        Self { bytes: RwLock::new(record.bytes), sequence: Mutex::new(record.sequence) }
    }

    /// Has both places hold something, if there is memory.
    pub(crate) fn fill(&self, device: &dyn BlockDevice) -> Result<(), LogError> {
        let is_in_one = *self.sequence.lock().expect(CHANGING) == 0;
        match is_in_one {
            true => self.set(device, &self.get()).or_else(LogError::ignore_no_space),
            false => Ok(()),
        }
    }

    pub(crate) fn get(&self) -> Vec<u8> {
        self.bytes.read().expect("nothing panics with the properties locked").clone()
    }

    /// Replaces all of them, durably. After an error the old ones count, and the next opening may
    /// find the new ones.
    pub(crate) fn set(&self, device: &dyn BlockDevice, bytes: &[u8]) -> Result<(), LogError> {
        check_length(bytes)?;
        let mut sequence = self.sequence.lock().expect(CHANGING);
        let record = PropertiesRecord { sequence: *sequence + 1, bytes: bytes.to_vec() };
        record.save(device)?;
        slots::flush(device)?;
        *sequence = record.sequence;
        *self.bytes.write().expect("nothing panics with the properties locked") = record.bytes;
        Ok(())
    }
}

fn check_length(bytes: &[u8]) -> Result<(), LogError> {
    if bytes.len() <= PROPERTIES_BYTES_MAX {
        return Ok(());
    }
    let what = format!(
        "cannot keep properties of {} bytes: a topic has room for {PROPERTIES_BYTES_MAX}",
        bytes.len()
    );
    Err(LogError::new(LogErrorKind::TooLarge, what))
}
