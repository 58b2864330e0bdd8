//! Properties that the owner stores with a topic, such as its name and configuration.
//!
//! They have two places. A change overwrites the older one, so a crash during it leaves the
//! previous properties intact. Both places are written when the topic is created, so that later
//! changes need no memory: retention must be configurable even if the pool is full.

use std::sync::{Mutex, RwLock};

use block_device::BlockDevice;

use crate::error::{LogError, LogErrorKind};
use crate::records::PropertiesRecord;
use crate::slots;

/// Maximum size of a topic's properties.
pub const PROPERTIES_BYTES_MAX: usize = 64 << 10;

const CHANGING: &str = "nothing panics while they are replaced";

#[derive(Debug)]
pub(crate) struct Properties {
    bytes: RwLock<Vec<u8>>,
    /// Sequence number of the newest durable properties. Locked during changes.
    sequence: Mutex<u64>,
}

impl Properties {
    /// Writes the initial properties of a new topic. The next flush makes them durable.
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
            LogError::new(
                LogErrorKind::Damaged,
                "the properties record of the topic is missing or corrupt",
            )
        })?;
        Ok(Self::new(newest))
    }

    fn new(record: PropertiesRecord) -> Self {
        Self { bytes: RwLock::new(record.bytes), sequence: Mutex::new(record.sequence) }
    }

    /// Writes both places, if memory is available.
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

    /// Durably replaces the properties. After an error the old ones remain in effect, but the next
    /// opening may find the new ones.
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
        "topic properties of {} bytes exceed the limit of {PROPERTIES_BYTES_MAX}",
        bytes.len()
    );
    Err(LogError::new(LogErrorKind::TooLarge, what))
}
