//! What all partitions of a topic share: the volume, its slots, and who has something to flush.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use block_device::BlockDevice;

use crate::error::LogError;
use crate::records::TopicId;
use crate::slots::Slots;

/// How a topic is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicOptions {
    /// A segment that would grow beyond this is followed by a new one; at most
    /// [`crate::SEGMENT_BYTES_MAX`].
    pub segment_bytes: u64,
}

pub(crate) struct TopicVolume {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) id: TopicId,
    pub(crate) options: TopicOptions,
    slots: Mutex<Slots>,
    /// Partitions with batches that were not flushed.
    dirty: Mutex<Vec<u32>>,
}

impl TopicVolume {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, slots: Slots, options: TopicOptions) -> Self {
        let id = slots.record.id;
        Self { device, id, options, slots: Mutex::new(slots), dirty: Mutex::default() }
    }

    pub(crate) fn lock_slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note_dirty(&self, partition: u32) {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner).push(partition);
    }

    pub(crate) fn take_dirty(&self) -> Vec<u32> {
        std::mem::take(&mut self.dirty.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn flush_device(&self) -> Result<(), LogError> {
        self.device
            .flush()
            .map_err(|error| LogError::device("cannot flush the volume of the topic", error))
    }
}

impl std::fmt::Debug for TopicVolume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicVolume").field("id", &self.id).finish_non_exhaustive()
    }
}
