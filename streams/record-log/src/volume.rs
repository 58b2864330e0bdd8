//! Volume that all partitions of a topic share: the volume, its slots, and which of them have
//! something to flush.

use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use block_device::BlockDevice;

use crate::error::LogError;
use crate::layout::SEGMENT_BYTES_MAX;
use crate::records::TopicId;
use crate::segment::Segment;
use crate::slots::{self, Slots};

/// Options of keeping a topic. May change while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicOptions {
    /// A segment that would grow beyond this is followed by a new one; at most
    /// [`crate::SEGMENT_BYTES_MAX`].
    pub segment_bytes: u64,
}

/// An opening reads no more batches than this of a topic, as long as that leaves each partition the
/// least below.
const UNCHECKED_BYTES_MAX: u64 = 128 << 20;

/// Of one partition, at least and at most.
const CHECKPOINT_BYTES_MIN: u64 = 1 << 20;
const CHECKPOINT_BYTES_MAX: u64 = 64 << 20;

const OPTIONS_LOCK: &str = "nothing panics with the options locked";

pub(crate) struct TopicVolume {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) id: TopicId,
    options: RwLock<TopicOptions>,
    slots: Mutex<Slots>,
    /// Partitions with batches that were not flushed.
    dirty: Mutex<Vec<u32>>,
}

impl TopicVolume {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, slots: Slots, options: TopicOptions) -> Self {
        let (id, options) = (slots.record.id, RwLock::new(options));
        Self { device, id, options, slots: Mutex::new(slots), dirty: Mutex::default() }
    }

    pub(crate) fn set_options(&self, options: TopicOptions) {
        *self.options.write().expect(OPTIONS_LOCK) = options;
    }

    pub(crate) fn lock_slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().expect("nothing panics with the slots locked")
    }

    pub(crate) fn note_dirty(&self, partition: u32) {
        self.lock_dirty().push(partition);
    }

    pub(crate) fn take_dirty(&self) -> Vec<u32> {
        std::mem::take(&mut self.lock_dirty())
    }

    fn lock_dirty(&self) -> MutexGuard<'_, Vec<u32>> {
        self.dirty.lock().expect("nothing panics with the list locked")
    }

    /// The most that a segment is to hold.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.options.read().expect(OPTIONS_LOCK).segment_bytes.min(SEGMENT_BYTES_MAX)
    }

    /// A checkpoint is written after so many bytes of batches of one partition.
    pub(crate) fn checkpoint_bytes(&self) -> u64 {
        let partition_count = u64::from(self.lock_slots().record.partition_count.max(1));
        (UNCHECKED_BYTES_MAX / partition_count).clamp(CHECKPOINT_BYTES_MIN, CHECKPOINT_BYTES_MAX)
    }

    pub(crate) fn flush_device(&self) -> Result<(), LogError> {
        slots::flush(&*self.device)
    }

    /// Flushes, and has slots be used again whose discard that made durable.
    pub(crate) fn flush_slots(&self) -> Result<(), LogError> {
        let waiting = self.lock_slots().begin_flush();
        let flushed = self.flush_device();
        self.lock_slots().end_flush(waiting, flushed.is_ok());
        flushed
    }

    /// Gives back the memory of segments that are no longer part of the log, as far as they have
    /// no reader.
    pub(crate) fn retire(&self, segments: Vec<Arc<Segment>>) {
        {
            let mut slots = self.lock_slots();
            segments.into_iter().for_each(|segment| slots.retire(segment));
        }
        self.reclaim_now();
    }

    /// Gives back what can be given back. A discard that fails is tried again, and told of, by the
    /// next flush.
    pub(crate) fn reclaim_now(&self) {
        self.reclaim().ok();
    }

    /// Gives back the memory of retired segments that no reader has any more. One whose discard
    /// fails waits for the next time.
    pub(crate) fn reclaim(&self) -> Result<(), LogError> {
        let mut result = Ok(());
        let unread = self.lock_slots().take_unread();
        for segment in unread {
            let discarded = slots::discard(&*self.device, segment.slot);
            let mut slots = self.lock_slots();
            match discarded {
                Ok(()) => slots.note_discarded(segment.slot),
                Err(error) => {
                    slots.retire(segment);
                    result = result.and(Err(error));
                }
            }
        }
        result
    }
}

impl std::fmt::Debug for TopicVolume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicVolume").field("id", &self.id).finish_non_exhaustive()
    }
}
