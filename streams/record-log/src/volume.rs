//! Volume shared by all partitions of a topic, with its slots and the list of partitions to flush.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use block_device::BlockDevice;

use crate::error::{LogError, LogErrorKind};
use crate::layout::{BLOCK, SEGMENT_BYTES_MAX, Slot};
use crate::records::{SegmentHeader, TopicId};
use crate::reserve;
use crate::segment::Segment;
use crate::slots::{self, NoSlot, Slots, Spare};
use crate::waits::lock;

/// Options of a topic. They may change while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicOptions {
    /// Maximum size of a segment, before a new one begins; at most [`crate::SEGMENT_BYTES_MAX`].
    pub segment_bytes: u64,
}

/// Target for the bytes of batches that an opening reads from a topic, unless the minimum per
/// partition exceeds it.
const UNCHECKED_BYTES_MAX: u64 = 128 << 20;

/// Minimum and maximum for one partition.
const CHECKPOINT_BYTES_MIN: u64 = 1 << 20;
const CHECKPOINT_BYTES_MAX: u64 = 64 << 20;

const OPTIONS_LOCK: &str = "nothing panics with the options locked";

pub(crate) struct TopicVolume {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) id: TopicId,
    /// Minimum leader epoch of partitions.
    pub(crate) least_epoch: i32,
    options: RwLock<TopicOptions>,
    /// Bytes of batches for which memory is reserved in a slot.
    reserved: AtomicU64,
    slots: Mutex<Slots>,
    /// Partitions with unflushed batches.
    dirty: Mutex<Vec<u32>>,
}

impl TopicVolume {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, slots: Slots, options: TopicOptions) -> Self {
        let (id, options) = (slots.record.id, RwLock::new(options));
        let (reserved, dirty) = Default::default();
        Self { device, id, least_epoch: 0, options, reserved, slots: Mutex::new(slots), dirty }
    }

    pub(crate) fn set_options(&self, options: TopicOptions) {
        *self.options.write().expect(OPTIONS_LOCK) = options;
    }

    pub(crate) fn set_reserved(&self, bytes: u64) {
        // Relaxed: a reader of the old value leaves the rest to the next call.
        self.reserved.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    pub(crate) fn lock_slots(&self) -> MutexGuard<'_, Slots> {
        lock(&self.slots).expect("nothing panics with the slots locked")
    }

    pub(crate) fn note_dirty(&self, partition: u32) {
        self.lock_dirty().push(partition);
    }

    pub(crate) fn take_dirty(&self) -> Vec<u32> {
        std::mem::take(&mut self.lock_dirty())
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.lock_dirty().is_empty()
    }

    fn lock_dirty(&self) -> MutexGuard<'_, Vec<u32>> {
        self.dirty.lock().expect("nothing panics with the list locked")
    }

    /// Returns the maximum size of a segment.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.options.read().expect(OPTIONS_LOCK).segment_bytes.min(SEGMENT_BYTES_MAX)
    }

    /// Returns the bytes of batches of one partition after which a checkpoint is due.
    pub(crate) fn checkpoint_bytes(&self) -> u64 {
        let partition_count = u64::from(self.lock_slots().record.partition_count.max(1));
        (UNCHECKED_BYTES_MAX / partition_count).clamp(CHECKPOINT_BYTES_MIN, CHECKPOINT_BYTES_MAX)
    }

    pub(crate) fn flush_device(&self) -> Result<(), LogError> {
        slots::flush(&*self.device)
    }

    /// Flushes, frees slots whose discards became durable, and prepares more if few are left. A
    /// lack of slots is reported when one is needed.
    pub(crate) fn flush_slots(&self) -> Result<(), LogError> {
        self.flush_for_slots().0
    }

    /// Same, and returns the error if slots could not be prepared.
    fn flush_for_slots(&self) -> (Result<(), LogError>, Result<(), LogError>) {
        let waiting = self.lock_slots().begin_flush(&*self.device);
        let flushed = self.flush_device();
        let ready = self.lock_slots().end_flush(&*self.device, waiting, flushed.is_ok());
        (flushed, ready)
    }

    /// Takes a slot for a new segment. Returns `None` if none is ready before a flush in progress
    /// ends, which may wait for a disk. That does not happen if flushes are frequent enough.
    pub(crate) fn take_slot(&self) -> Result<Option<Spare>, LogError> {
        let taken = self.lock_slots().take();
        match taken {
            Ok(slot) => return Ok(Some(slot)),
            Err(NoSlot::AllInUse(count)) => {
                let what = format!("the volume is full: all {count} segments are in use");
                return Err(LogError::new(LogErrorKind::NoSpace, what));
            }
            Err(NoSlot::BeforeFlushEnds) => return Ok(None),
            Err(NoSlot::BeforeFlush) => {}
        }
        let (flushed, ready) = self.flush_for_slots();
        flushed?;
        ready?;
        Ok(self.lock_slots().take().ok())
    }

    /// Same, but waits for a flush if necessary.
    pub(crate) fn await_slot(&self) -> Result<Spare, LogError> {
        if let Some(slot) = self.take_slot()? {
            return Ok(slot);
        }
        self.flush_slots()?;
        self.take_slot()?.ok_or_else(no_slot_ready)
    }

    /// Fills the spare slot with its reserve if memory is available, or creates one. Returns its
    /// size.
    pub(crate) fn reserve_spare(&self) -> Result<u64, LogError> {
        let device = &*self.device;
        let is_lacking = {
            let slots = self.lock_slots();
            // Before the first flush no slot can become the spare one.
            slots.wants_spare() && !slots.awaits_flush
        };
        if is_lacking {
            let slot = self.await_slot()?.slot;
            self.give_up(slot, 0, 0)?;
            self.lock_slots().give_back(slot);
        }
        let (spare, reserved) = (self.lock_slots().spare, self.reserved());
        let Some(mut spare) = spare else { return Ok(0) };
        if spare.filled < reserved {
            spare.filled = reserve::fill_or_give_back(device, spare.slot, spare.filled..reserved)?;
            self.lock_slots().spare = Some(spare);
        }
        Ok(spare.filled)
    }

    /// Frees a slot without readers: it becomes the spare one, or is discarded. `used` bytes of its
    /// batches were written, and blocks before `filled` have memory.
    pub(crate) fn give_up(&self, slot: Slot, used: u64, filled: u64) -> Result<(), LogError> {
        let device = &*self.device;
        if !self.lock_slots().wants_spare() {
            return slots::discard(device, slot);
        }
        if let Err(error) = self.make_spare(slot) {
            error.ignore_no_space()?;
            return slots::discard(device, slot);
        }
        let reserved = self.reserved();
        let used = used.next_multiple_of(BLOCK).min(reserved);
        let again = reserve::fill(device, slot, 0..used)?;
        let filled = match again == used {
            true => {
                reserve::fill_or_give_back(device, slot, filled.clamp(used, reserved)..reserved)?
            }
            false => reserve::fill_or_give_back(device, slot, again..again)?,
        };
        {
            let mut slots = self.lock_slots();
            if slots.spare.is_none() {
                slots.spare = Some(Spare { slot, filled });
                return Ok(());
            }
        }
        slots::discard(device, slot)
    }

    /// Marks the slot as spare. Its next use needs a header and one checkpoint, for which memory is
    /// reserved now. Further checkpoints are skipped if memory is short.
    fn make_spare(&self, slot: Slot) -> Result<(), LogError> {
        SegmentHeader::spare(self.id).save(&*self.device, slot)?;
        reserve::write(&*self.device, slot.checkpoint(0), BLOCK)
    }

    /// Retires segments that are no longer part of the log, and frees those without readers.
    pub(crate) fn retire(&self, segments: Vec<Arc<Segment>>) {
        {
            let mut slots = self.lock_slots();
            segments.into_iter().for_each(|segment| slots.retire(segment));
        }
        self.reclaim_now();
    }

    /// Frees retired segments. The next flush retries failed discards and reports their errors.
    pub(crate) fn reclaim_now(&self) {
        self.reclaim().ok();
    }

    /// Frees the memory of retired segments without readers. Failed discards are retried by the
    /// next call.
    pub(crate) fn reclaim(&self) -> Result<(), LogError> {
        let mut result = Ok(());
        let unread = self.lock_slots().take_unread();
        for segment in unread {
            let used = segment.extent().position;
            let filled = segment.lock_kept().filled;
            let discarded = self.give_up(segment.slot, used, filled);
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

/// Error while a flush in progress has yet to prepare slots.
pub(crate) fn no_slot_ready() -> LogError {
    let what = "cannot start a new segment until the current flush of the volume ends";
    LogError::new(LogErrorKind::NotDurable, what)
}

impl std::fmt::Debug for TopicVolume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicVolume").field("id", &self.id).finish_non_exhaustive()
    }
}
