//! Checkpoints of current values, from which the follower of the next process continues.
//!
//! ```text
//! place 0, 1     0       header, written last
//!                4 KiB   frames of 1 MiB: the index, shard by shard, then the live offsets
//! ```
//!
//! Two places on the topic's volume are used alternately. Shards are written one by one while the
//! log is followed, so each reflects a different offset. Following the log from where the
//! checkpoint was begun to where it ended makes all parts consistent, because applying a record
//! twice has no effect. Until then, readers are not served. A checkpoint with any invalid part is
//! rejected, and the log is followed from its start.

mod contents;
mod frames;
mod header;
mod write;

use std::sync::Arc;

use block_device::{BLOCK_BYTES, ByteRange};
use record_log::{DerivedArea, Partition};

use self::contents::{take_index, take_live};
use self::frames::FrameReader;
use self::header::{CheckpointHeader, FRAMES_START};
use self::write::Writing;
use crate::error::ValuesError;
use crate::key_hash::Secret;
use crate::values::State;

pub use self::write::CheckpointStep;

/// Source of the values after an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The follower continues from a checkpoint.
    FromCheckpoint { follow_from: i64, serve_from: i64, key_count: usize },
    /// There is no checkpoint. The log is followed from its start.
    FromStart,
    /// The checkpoint was rejected for the given reason. The log is followed from its start.
    Refused { why: &'static str },
}

/// Checkpoints of one partition.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    derived_area: DerivedArea,
    /// Sequence number of the last checkpoint.
    sequence: u64,
    /// Generation and offset of the last valid checkpoint.
    last: Option<Last>,
    writing: Option<Writing>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    generation: u64,
    follow_from: i64,
}

/// Contents of a loaded checkpoint.
pub(crate) struct Loaded {
    pub(crate) secret: Secret,
    pub(crate) state: State,
    /// Offset of the live offsets. The index may be older.
    pub(crate) live_from: i64,
}

impl Checkpoints {
    /// Loads the newest checkpoint if it is valid.
    pub(crate) fn open(
        partition: &Partition,
    ) -> Result<(Self, Option<Loaded>, Opening), ValuesError> {
        let derived_area = partition.derived_area();
        let device = Arc::clone(derived_area.device());
        let found = [0, 1].map(|place| CheckpointHeader::load(&*device, derived_area.place(place)));
        let newest = found.into_iter().flatten().max_by_key(|it| it.sequence);
        let sequence = newest.map_or(0, |it| it.sequence);
        let mut this = Self { derived_area, sequence, last: None, writing: None };
        let Some(header) = newest else { return Ok((this, None, Opening::FromStart)) };
        let loaded = match header.refusal(partition) {
            Some(why) => Err(why),
            None => this.load(partition, &header).ok_or("it is corrupt"),
        };
        match loaded {
            Ok(loaded) => {
                let CheckpointHeader { follow_from, serve_from, generation, .. } = header;
                this.last = Some(Last { generation, follow_from });
                let key_count = loaded.state.live.count();
                let opening = Opening::FromCheckpoint { follow_from, serve_from, key_count };
                Ok((this, Some(loaded), opening))
            }
            Err(why) => {
                // Both are discarded, so neither is loaded again.
                for place in [0, 1] {
                    this.forget(place)?;
                }
                Ok((this, None, Opening::Refused { why }))
            }
        }
    }

    fn load(&self, partition: &Partition, header: &CheckpointHeader) -> Option<Loaded> {
        let at = self.place(header.sequence) + FRAMES_START;
        let device = &**self.derived_area.device();
        let mut frames = FrameReader::new(device, header.sequence, at, header.frame_count);
        let mut index = take_index(&mut frames)?;
        let mut live = take_live(&mut frames)?;
        if !frames.is_at_end() {
            return None;
        }
        // Drops values that were deleted with the start of the log since the checkpoint.
        let start_offset = partition.start_offset();
        if live.next(0).is_some_and(|first| first < start_offset) {
            live.limit(start_offset..i64::MAX);
        }
        index.retain(|offset| offset >= start_offset);
        let CheckpointHeader { secret, follow_from, serve_from, .. } = *header;
        let applied = follow_from.max(start_offset);
        let live_from = serve_from.max(start_offset);
        let state = State { index, live, applied, serves_from: live_from };
        Some(Loaded { secret, state, live_from })
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Returns the position of the checkpoint with a sequence number.
    fn place(&self, sequence: u64) -> u64 {
        self.derived_area.place(u32::from(sequence % 2 == 1))
    }

    fn forget(&self, place: u32) -> Result<(), ValuesError> {
        let range = ByteRange::new(self.derived_area.place(place), BLOCK_BYTES as u64);
        self.derived_area.device().discard(range).map_err(ValuesError::writing)
    }
}
