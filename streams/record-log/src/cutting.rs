//! Freeing of memory before the start offset in a segment that is retained.

use std::sync::Arc;

use block_device::{BlockDevice, ByteRange};

use crate::error::LogError;
use crate::layout::BLOCK;
use crate::partition::Partition;
use crate::records::Checkpoint;
use crate::segment::Segment;
use crate::slots;

impl Partition {
    /// Frees the memory of deleted records in the first remaining segment, up to a few KiB before
    /// its first remaining record. Needs memory only for a checkpoint that is longer than the last
    /// one. If the log is pinned or being compacted, or memory is short, nothing is done until the
    /// next call.
    pub fn cut(&self) -> Result<(), LogError> {
        let _one = self.lock_restructuring();
        let (first, start_offset) = {
            let view = self.view();
            (view.segments.first().map(Arc::clone), view.start_offset)
        };
        let is_pinned = Arc::strong_count(&self.pins) > 1;
        let Some(segment) = first.filter(|_| !is_pinned) else { return Ok(()) };
        if !self.begin_compacting() {
            return Ok(());
        }
        let result = match segment.cut_index(start_offset) {
            false => Ok(()),
            true => {
                let checkpoint = self.lock_writer().checkpoint_of(&segment);
                segment.cut(&*self.volume().device, checkpoint)
            }
        };
        self.end_compacting();
        result.or_else(LogError::ignore_no_space)
    }
}

impl Segment {
    /// Frees the memory of batches before the first one in the index. An opening must not need
    /// them: therefore a checkpoint that covers them is made durable first, `checkpoint` if there
    /// is no newer one. Without a checkpoint nothing is freed.
    fn cut(
        &self,
        device: &dyn BlockDevice,
        checkpoint: Option<Checkpoint>,
    ) -> Result<(), LogError> {
        self.await_readers();
        let head = self.extent().index.head();
        let mut kept = self.lock_kept();
        let needed = self.header.replacement.map_or(head, |it| it.size_bytes);
        slots::flush(device)?;
        if kept.position < needed {
            let Some(checkpoint) = checkpoint.filter(|it| it.position >= needed) else {
                return Ok(());
            };
            self.save_next(device, checkpoint, &mut kept)?;
            slots::flush(device)?;
        }
        let end = head / BLOCK * BLOCK;
        let range = ByteRange::new(self.slot.batches(kept.cut), end - kept.cut);
        device.discard(range).map_err(|error| {
            LogError::device(format!("cannot discard the start of {}", self.place()), error)
        })?;
        kept.cut = end;
        Ok(())
    }
}
