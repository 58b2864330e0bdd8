//! Incremental writing of a checkpoint.

use std::sync::Arc;

use block_device::{BlockDevice, ByteRange};

use super::super::Follower;
use super::Last;
use super::contents::{put_count, put_run, put_shard};
use super::frames::{FRAME_BYTES, FrameWriter};
use super::header::{CheckpointHeader, FRAMES_START};
use crate::error::ValuesError;
use crate::index::SHARD_COUNT;
use crate::live::Live;
use crate::shard::ENTRY_BYTES;

/// A checkpoint is due after this number of records, or a fraction of the keys if that is more.
/// Following fewer records takes less time than loading a checkpoint.
const RECORDS_MIN: i64 = 500_000;
const KEYS_DIVISOR: i64 = 4;

/// Maximum length of the range that is discarded behind a checkpoint.
const OLD_BYTES_MAX: u64 = 16 << 30;

/// Number of runs of live offsets that one step writes.
const STEP_RUNS: usize = 256;

/// Result of a step of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointStep {
    More,
    Done,
}

/// A checkpoint in progress.
#[derive(Debug)]
pub(super) struct Writing {
    header: CheckpointHeader,
    frames: FrameWriter,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Next shard to write.
    Shards(usize),
    /// Next run to write.
    Runs { live: Live, next: i64 },
}

impl Follower {
    /// Returns whether following the log from the last checkpoint would take long, or that
    /// checkpoint is invalid because the log was compacted since.
    pub fn is_checkpoint_due(&self) -> bool {
        if self.is_writing_checkpoint() || !self.can_be_written() {
            return false;
        }
        let state = self.values.state();
        let keys = i64::try_from(state.index.count()).unwrap_or(i64::MAX);
        let records_max = (keys / KEYS_DIVISOR).max(RECORDS_MIN);
        let Some(last) = self.checkpoints.last else { return state.applied >= records_max };
        state.applied - last.follow_from >= records_max
            || last.generation != self.values.partition.compaction_generation()
    }

    /// Returns whether a new checkpoint would be equal to the last one.
    pub fn is_checkpoint_current(&self) -> bool {
        let generation = self.values.partition.compaction_generation();
        self.checkpoints.last.is_some_and(|it| {
            it.generation == generation && it.follow_from == self.values.applied()
        })
    }

    /// Begins a checkpoint, which [`Follower::step_checkpoint`] writes. A checkpoint in progress is
    /// abandoned. `partition_count` is that of the topic, and determines the available space.
    /// Returns `false` if the values are not ready or do not fit. Until the checkpoint is written,
    /// nothing expires for live queries.
    pub fn begin_checkpoint(&mut self, partition_count: u32) -> Result<bool, ValuesError> {
        self.checkpoints.writing = None;
        let room_bytes = self.checkpoints.derived_area.room_bytes(partition_count);
        let key_count = self.values.state().index.count();
        // Live offsets take at most a tenth of the space of the entries, so half the space leaves
        // ample room.
        let wanted_bytes = u64::try_from(key_count * ENTRY_BYTES).unwrap_or(u64::MAX);
        if !self.can_be_written() || wanted_bytes > room_bytes / 2 {
            return Ok(false);
        }
        let partition = &self.values.partition;
        let header = CheckpointHeader {
            sequence: self.checkpoints.sequence + 1,
            topic: partition.topic_id(),
            partition: partition.number(),
            secret: self.values.secret,
            generation: partition.compaction_generation(),
            epoch: partition.epoch(),
            follow_from: self.values.applied(),
            serve_from: 0,
            frame_count: 0,
        };
        let place = self.checkpoints.place(header.sequence);
        let old = ByteRange::new(place, room_bytes.min(OLD_BYTES_MAX));
        self.checkpoints.derived_area.device().discard(old).map_err(ValuesError::writing)?;
        let frames = FrameWriter::new(header.sequence, place + FRAMES_START);
        self.checkpoints.writing = Some(Writing { header, frames, stage: Stage::Shards(0) });
        Ok(true)
    }

    /// Writes a part of the checkpoint: a mebibyte or one shard of the index. The checkpoint is
    /// valid once this returns `Done`. After an error it is abandoned, and the previous one remains
    /// valid. Following may continue after an error for lack of memory.
    pub fn step_checkpoint(&mut self) -> Result<CheckpointStep, ValuesError> {
        let Some(writing) = self.checkpoints.writing.take() else {
            return Ok(CheckpointStep::Done);
        };
        let place = self.checkpoints.place(writing.header.sequence);
        match self.write_piece(writing) {
            Ok(step) => Ok(step),
            Err(error) => {
                let written = ByteRange::new(place, OLD_BYTES_MAX);
                // Memory that cannot be freed now is reused by the next checkpoint at this place.
                self.checkpoints.derived_area.device().discard(written).ok();
                Err(error)
            }
        }
    }

    fn write_piece(&mut self, mut writing: Writing) -> Result<CheckpointStep, ValuesError> {
        let device = Arc::clone(self.checkpoints.derived_area.device());
        let frames = &mut writing.frames;
        match &mut writing.stage {
            Stage::Shards(number) => {
                let mut bytes = 0;
                while *number < SHARD_COUNT && bytes < FRAME_BYTES {
                    // Copied, so that readers and the follower do not wait for the device.
                    let shard = self.values.state().index.shard(*number).clone();
                    put_shard(frames, &*device, &shard)?;
                    bytes += shard.size_bytes();
                    *number += 1;
                }
                if *number == SHARD_COUNT {
                    let state = self.values.state();
                    writing.header.serve_from = state.applied;
                    let live = state.live.clone();
                    drop(state);
                    put_count(frames, &*device, live.run_count())?;
                    writing.stage = Stage::Runs { live, next: 0 };
                }
            }
            Stage::Runs { live, next } => {
                let swept = self.swept_run();
                let mut runs = live.runs_from(*next);
                for (number, run) in runs.by_ref().take(STEP_RUNS) {
                    // The oldest time of a run that is being swept is unknown.
                    let is_known = swept != Some(number);
                    let oldest_ms = if is_known { run.oldest_ms } else { i64::MIN };
                    put_run(frames, &*device, (number, run), oldest_ms)?;
                    *next = number + 1;
                }
                if runs.next().is_none() {
                    writing.header.frame_count = frames.finish(&*device)?;
                    self.end_checkpoint(&*device, &writing.header)?;
                    return Ok(CheckpointStep::Done);
                }
            }
        }
        self.checkpoints.writing = Some(writing);
        Ok(CheckpointStep::More)
    }

    fn end_checkpoint(
        &mut self,
        device: &dyn BlockDevice,
        header: &CheckpointHeader,
    ) -> Result<(), ValuesError> {
        // The contents are durable before the header makes the checkpoint valid.
        device.flush().map_err(ValuesError::writing)?;
        header.save(device, self.checkpoints.place(header.sequence))?;
        device.flush().map_err(ValuesError::writing)?;
        let CheckpointHeader { generation, follow_from, sequence, .. } = *header;
        self.checkpoints.sequence = sequence;
        self.checkpoints.last = Some(Last { generation, follow_from });
        Ok(())
    }

    /// Returns whether all parts of the values are consistent.
    fn can_be_written(&self) -> bool {
        self.live_from.is_none() && self.values.ready().is_ok()
    }
}
