//! Incremental compaction pass over a partition.
//!
//! A crash leaves either the old segments of a group or the new one; see `replace` of the partition
//! for the switch. An unfinished pass is repeated by the next one, from the same clean offset.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use record_batch::{BatchHeader, Marker};

use crate::compaction::key_map::KeyMap;
use crate::compaction::new_segment::{Known, NewSegment};
use crate::compaction::rules::{Fate, Met, Rules};
use crate::compaction::transactions::{AbortedBatches, LastBatches};
use crate::error::{LogError, LogErrorKind};
use crate::partition::Partition;
use crate::producers::Producers;
use crate::records::Stale;
use crate::segment::{Segment, Until, Walk};
use crate::writer::ABORTED_COUNT_MAX;

/// Bytes of batches that one step reads, plus the rest of the last batch.
const STEP_BYTES: usize = 4 << 20;

/// Options of compaction. Times are Unix milliseconds.
#[derive(Clone)]
pub struct CompactionOptions {
    pub now_ms: i64,
    /// Retention of tombstones and markers after their first pass (`delete.retention.ms`).
    pub delete_retention_ms: i64,
    /// Segments with newer records are not compacted (`min.compaction.lag.ms`).
    pub min_compaction_lag_ms: i64,
    /// Maximum time from the newest record of a dirty segment to its compaction, regardless of the
    /// dirty ratio (`max.compaction.lag.ms`).
    pub max_compaction_lag_ms: i64,
    /// Minimum ratio of dirty bytes, from 0 to 1, for a pass to start
    /// (`min.cleanable.dirty.ratio`). A clean log is compacted when the delete horizon of
    /// tombstones or markers is reached that the last pass of this process retained.
    pub min_dirty_ratio: f64,
    /// Maximum memory of the key map: 24 bytes for each key, and a third more.
    pub map_bytes_max: usize,
    /// Random key of the hash of keys, known to the owner only.
    pub hash_secret: [u8; 16],
}

impl fmt::Debug for CompactionOptions {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactionOptions")
            .field("now_ms", &self.now_ms)
            .field("delete_retention_ms", &self.delete_retention_ms)
            .field("min_compaction_lag_ms", &self.min_compaction_lag_ms)
            .field("max_compaction_lag_ms", &self.max_compaction_lag_ms)
            .field("min_dirty_ratio", &self.min_dirty_ratio)
            .field("map_bytes_max", &self.map_bytes_max)
            .finish_non_exhaustive()
    }
}

/// Progress and result of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionOutcome {
    /// Size of the replaced segments, and of their replacements.
    pub bytes_before: u64,
    pub bytes_after: u64,
    pub segments_before: u64,
    pub segments_after: u64,
    /// Removed records, including those of segments that were not replaced.
    pub records_removed: u64,
    /// Batches that were retained unchanged because they cannot be decoded.
    pub batches_unread: u64,
    /// Offset before which the log has one record for each key. 0 until the pass is done.
    pub clean_offset: i64,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionStep {
    More,
    Done,
}

/// A compaction pass in progress. Dropping it ends the pass; completed groups remain replaced.
pub struct Compaction {
    partition: Arc<Partition>,
    rules: Rules,
    met: Met,
    clean_offset: i64,
    /// Batches that earlier passes left unchanged.
    stale: Option<Stale>,
    /// Offset from which keys are collected.
    mapped_from: i64,
    /// Segments that the pass may replace, from the first on.
    segments: Vec<Arc<Segment>>,
    stage: Stage,
    outcome: CompactionOutcome,
}

enum Stage {
    Map(Position),
    Copy(Box<Copying>),
    Done,
}

/// Position of a pass in a list of segments.
struct Position {
    segment: usize,
    bytes: u64,
    /// Aborted batches of the segment.
    aborted: AbortedBatches,
}

/// A group of adjacent segments that is copied to one new segment, and the segments after it.
struct Copying {
    /// The next segment is added while it fits into the space that removed records have left.
    group: Vec<Arc<Segment>>,
    rest: VecDeque<Arc<Segment>>,
    at: Position,
    target: Target,
    /// State at the start of the group.
    met_before: Met,
    /// Offsets of removed markers.
    markers_gone: BTreeSet<i64>,
}

enum Target {
    /// A single segment, in which nothing had to change so far.
    Unchanged,
    New(NewSegment),
    /// The retained records exceed the segment's size: the group remains unchanged.
    TooLong,
}

impl Partition {
    /// Runs a complete compaction pass. Returns `None` if nothing is to be done. Blocks; see
    /// [`Compaction`] for an incremental pass.
    pub fn compact(
        self: &Arc<Self>,
        options: &CompactionOptions,
    ) -> Result<Option<CompactionOutcome>, LogError> {
        let Some(mut pass) = Compaction::begin(self, options)? else { return Ok(None) };
        while pass.step()? == CompactionStep::More {}
        Ok(Some(pass.outcome()))
    }
}

impl Compaction {
    /// Begins a pass. Returns `None` if nothing is to be done, or another pass is running.
    pub fn begin(
        partition: &Arc<Partition>,
        options: &CompactionOptions,
    ) -> Result<Option<Self>, LogError> {
        let (clean_offset, stale) = partition.compacted();
        let newest_ms = match options.min_compaction_lag_ms {
            ..=0 => i64::MAX,
            lag_ms => options.now_ms.saturating_sub(lag_ms),
        };
        let segments = partition.decided_segments(|segment| {
            let extent = segment.extent();
            extent.next_offset <= clean_offset || extent.index.max_timestamp() <= newest_ms
        });
        let Some(last) = segments.last() else { return Ok(None) };
        let end_offset = last.extent().next_offset;
        let late_ms = options.now_ms.saturating_sub(options.max_compaction_lag_ms);
        let is_late = segments.iter().any(|it| {
            let extent = it.extent();
            extent.next_offset > clean_offset && extent.index.max_timestamp() <= late_ms
        });
        let is_due = is_late
            || is_dirty(&segments, clean_offset, options.min_dirty_ratio)
            || partition.next_horizon_ms().is_some_and(|it| it <= options.now_ms);
        if !is_due || !partition.begin_compacting() {
            return Ok(None);
        }
        // Batches that an earlier pass left unchanged are retried, with all keys after them.
        let wanted_from = stale.map_or(clean_offset, |it| it.first_offset.min(clean_offset));
        let mapped_from = wanted_from.max(segments[0].header.base_offset);
        let key_count = u64::try_from(end_offset - mapped_from).unwrap_or(0);
        let rules = Rules {
            keys: KeyMap::new(&options.hash_secret, key_count, options.map_bytes_max),
            map_end: end_offset,
            now_ms: options.now_ms,
            horizon_ms: options.now_ms.saturating_add(options.delete_retention_ms),
            last_batches: LastBatches::new(
                partition.last_batches().into_iter(),
                partition.next_offset(),
            ),
            record_count_max: KeyMap::key_count_max(options.map_bytes_max),
        };
        let mut pass = Self {
            partition: Arc::clone(partition),
            rules,
            met: Met::default(),
            clean_offset,
            stale,
            mapped_from,
            segments,
            stage: Stage::Done,
            outcome: CompactionOutcome::default(),
        };
        pass.stage = pass.begin_map()?;
        Ok(Some(pass))
    }

    /// Performs a bounded amount of work. An error ends the pass.
    pub fn step(&mut self) -> Result<CompactionStep, LogError> {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Map(at) => self.map(at)?,
            Stage::Copy(copying) => self.copy(copying)?,
            Stage::Done => Stage::Done,
        };
        Ok(match self.stage {
            Stage::Done => CompactionStep::Done,
            _ => CompactionStep::More,
        })
    }

    /// Returns the progress so far.
    pub fn outcome(&self) -> CompactionOutcome {
        CompactionOutcome {
            records_removed: self.met.removed_count,
            batches_unread: self.met.unread_count,
            ..self.outcome
        }
    }

    fn begin_map(&mut self) -> Result<Stage, LogError> {
        let is_before = |it: &Arc<Segment>| it.extent().next_offset <= self.mapped_from;
        let segment = self.segments.partition_point(is_before);
        let Some(first) = self.segments.get(segment) else { return self.begin_copy() };
        Ok(Stage::Map(self.start_of(segment, first)))
    }

    /// Handles a full map, which lacks the keys from offset `full_at` on.
    fn end_map(&mut self, full_at: i64) -> Result<Stage, LogError> {
        if full_at > self.clean_offset {
            self.rules.map_end = full_at;
            return self.begin_copy();
        }
        // To guarantee progress, batches that an earlier pass left unchanged are not retried.
        self.rules.keys.clear();
        self.mapped_from = self.clean_offset;
        self.met.stale = self.stale;
        self.begin_map()
    }

    /// Collects the keys of the dirty part, until the map is full.
    fn map(&mut self, mut at: Position) -> Result<Stage, LogError> {
        let segment = Arc::clone(&self.segments[at.segment]);
        let end = segment.extent().position;
        let (mapped_from, rules) = (self.mapped_from, &mut self.rules);
        let (mut seen, mut full_at) = (0, None);
        let device = &*self.partition.volume().device;
        let reached = segment.walk(device, at.bytes..end, &mut |batch, bytes| {
            if seen >= STEP_BYTES {
                return Walk::Enough;
            }
            seen += bytes.len();
            let is_mapped = batch.last_offset() >= mapped_from
                && !batch.is_control()
                && !at.aborted.contains(batch);
            if !is_mapped {
                return Walk::On;
            }
            // Undecodable batches are retained, and so are other records with their keys.
            let Some(records) = rules.read(batch, bytes) else { return Walk::On };
            if !rules.keys.has_room_for(usize::try_from(batch.record_count).unwrap_or(0)) {
                full_at = Some(batch.base_offset);
                return Walk::Enough;
            }
            for record in records.iter().flatten() {
                if let Some(key) = record.key {
                    rules.keys.note(key, record.offset);
                }
            }
            Walk::On
        })?;
        if let Some(full_at) = full_at {
            return self.end_map(full_at);
        }
        at.bytes = reached;
        if reached < end {
            return if seen >= STEP_BYTES { Ok(Stage::Map(at)) } else { Err(damaged(&segment)) };
        }
        match self.segments.get(at.segment + 1) {
            None => self.begin_copy(),
            Some(next) => Ok(Stage::Map(self.start_of(at.segment + 1, next))),
        }
    }

    fn begin_copy(&mut self) -> Result<Stage, LogError> {
        let map_end = self.rules.map_end;
        self.partition.extend_compaction(map_end);
        // Moved out, so that the pass holds replaced segments no longer than necessary.
        let mut segments = std::mem::take(&mut self.segments);
        segments.truncate(segments.partition_point(|it| it.header.base_offset < map_end));
        self.begin_group(segments.into())
    }

    fn begin_group(&mut self, mut rest: VecDeque<Arc<Segment>>) -> Result<Stage, LogError> {
        let Some(first) = rest.pop_front() else {
            let map_end = self.rules.map_end;
            // Stale batches behind the end of the map were not retried.
            let unseen = self.stale.filter(|it| it.last_offset >= map_end);
            let stale = self.met.stale.map(|it| it.and(unseen)).or(unseen);
            self.partition.set_compacted(map_end, stale)?;
            self.partition.set_next_horizon(self.met.next_horizon_ms);
            self.outcome.clean_offset = map_end;
            return Ok(Stage::Done);
        };
        let at = self.start_of(0, &first);
        let bytes = first.extent().position;
        let group = vec![first];
        let target = match rest.front().is_some_and(|next| self.fits(&group, bytes, next)) {
            true => Target::New(self.new_segment(&group[0])?),
            false => Target::Unchanged,
        };
        let (met_before, markers_gone) = (self.met.clone(), BTreeSet::new());
        let copying = Copying { group, rest, at, target, met_before, markers_gone };
        Ok(Stage::Copy(Box::new(copying)))
    }

    /// Returns whether a segment may be added to a group of which `bytes` were retained.
    fn fits(&self, group: &[Arc<Segment>], bytes: u64, next: &Segment) -> bool {
        let aborted_count = |segment: &Segment| segment.extent().aborted.len();
        let aborted: usize = group.iter().map(|it| aborted_count(it)).sum();
        bytes + next.extent().position <= self.partition.volume().segment_bytes()
            && aborted + aborted_count(next) <= ABORTED_COUNT_MAX
    }

    /// Allocates a segment of up to one and a half times the normal size: recompressed records, and
    /// records whose timestamp deltas are relative to a delete horizon, may take more space.
    fn new_segment(&self, first: &Segment) -> Result<NewSegment, LogError> {
        let volume = self.partition.volume();
        let slot = volume.await_slot()?.slot;
        let should_bytes = volume.segment_bytes().max(first.extent().position);
        Ok(NewSegment::new(slot, first.header, should_bytes + should_bytes / 2))
    }

    /// Copies retained records of a part of the group.
    fn copy(&mut self, mut copying: Box<Copying>) -> Result<Stage, LogError> {
        let segment = Arc::clone(&copying.group[copying.at.segment]);
        let end = segment.extent().position;
        let (mut seen, mut result) = (0, Ok(true));
        let device = Arc::clone(&self.partition.volume().device);
        let walked = segment.walk(&*device, copying.at.bytes..end, &mut |batch, bytes| {
            if seen >= STEP_BYTES {
                return Walk::Enough;
            }
            seen += bytes.len();
            let fate = self.rules.fate(batch, bytes, &copying.at.aborted, &mut self.met);
            result = match copying.take(&*device, (batch, bytes), fate) {
                Ok(true) => return Walk::On,
                other => other,
            };
            Walk::Enough
        });
        let reached = walked.and_then(|reached| result.map(|is_taken| (reached, is_taken)));
        let (reached, is_taken) = match reached {
            Ok(reached) => reached,
            Err(error) => {
                self.abandon(copying.target);
                return Err(error);
            }
        };
        if !is_taken {
            return self.begin_group_again(copying);
        }
        copying.at.bytes = reached;
        if reached < end && seen < STEP_BYTES {
            self.abandon(copying.target);
            return Err(damaged(&segment));
        }
        if reached < end {
            return Ok(Stage::Copy(copying));
        }
        if copying.at.segment + 1 == copying.group.len() {
            let next = match (&copying.target, copying.rest.front()) {
                (Target::New(new), Some(next))
                    if self.fits(&copying.group, new.position(), next) =>
                {
                    copying.rest.pop_front().expect("it is there")
                }
                _ => return self.end_group(*copying),
            };
            copying.group.push(next);
        }
        let segment = copying.at.segment + 1;
        copying.at = self.start_of(segment, &copying.group[segment]);
        Ok(Stage::Copy(copying))
    }

    /// Restarts a group after the first change in its single segment, or because the retained
    /// records are too long.
    fn begin_group_again(&mut self, mut copying: Box<Copying>) -> Result<Stage, LogError> {
        self.met = copying.met_before.clone();
        copying.markers_gone.clear();
        let first = Arc::clone(&copying.group[0]);
        copying.at = self.start_of(0, &first);
        copying.target = match std::mem::replace(&mut copying.target, Target::TooLong) {
            Target::Unchanged => Target::New(self.new_segment(&first)?),
            other => {
                self.abandon(other);
                Target::TooLong
            }
        };
        Ok(Stage::Copy(copying))
    }

    fn end_group(&mut self, copying: Copying) -> Result<Stage, LogError> {
        let Copying { group, rest, target, met_before, markers_gone, .. } = copying;
        match target {
            Target::Unchanged => {}
            Target::TooLong => {
                self.met.removed_count = met_before.removed_count;
                let end_offset = group[group.len() - 1].extent().next_offset;
                self.met.note_stale(group[0].header.base_offset, end_offset - 1);
            }
            Target::New(new) => self.put_in_place(group, new, &markers_gone)?,
        }
        self.begin_group(rest)
    }

    fn put_in_place(
        &mut self,
        group: Vec<Arc<Segment>>,
        new: NewSegment,
        markers_gone: &BTreeSet<i64>,
    ) -> Result<(), LogError> {
        let volume = Arc::clone(self.partition.volume());
        let (unused, bytes_after) = (new.abandon(), new.position());
        let finished = self.known_after(&group, markers_gone).and_then(|known| {
            let generation = self.partition.next_generation();
            let segment = new.finish(&*volume.device, generation, known)?;
            // All contents are durable before the header makes the segment valid.
            volume.flush_device()?;
            Ok(segment)
        });
        let segment = match finished {
            Ok(segment) => segment,
            Err(error) => {
                volume.retire(vec![unused]);
                return Err(error);
            }
        };
        // Retention may have deleted the whole group meanwhile.
        if self.partition.replace(&group, segment)? {
            let bytes = group.iter().map(|it| it.extent().position);
            self.outcome.bytes_before += bytes.sum::<u64>();
            self.outcome.bytes_after += bytes_after;
            self.outcome.segments_before += group.len() as u64;
            self.outcome.segments_after += 1;
        }
        drop(group);
        volume.reclaim_now();
        Ok(())
    }

    /// Returns the state at the end of the group, which an opening can no longer derive from its
    /// batches.
    fn known_after(
        &self,
        group: &[Arc<Segment>],
        markers_gone: &BTreeSet<i64>,
    ) -> Result<Known, LogError> {
        let mut aborted = Vec::new();
        for segment in group {
            aborted.extend_from_slice(&segment.extent().aborted);
        }
        aborted.retain(|it| !markers_gone.contains(&it.last_offset));
        let last = &group[group.len() - 1];
        let end_offset = last.extent().next_offset;
        let mut producers = Producers::default();
        let again = Segment::new(last.slot, last.header);
        let until = Until { epoch: i32::MAX, next_base: Some(end_offset) };
        again.recover(&*self.partition.volume().device, &mut producers, &until)?;
        if again.extent().next_offset != end_offset {
            return Err(damaged(last));
        }
        Ok(Known { end_offset, aborted, producers })
    }

    /// Returns the position of a segment's first batch, behind the part that was cut.
    fn start_of(&self, index: usize, segment: &Segment) -> Position {
        let bytes = segment.extent().index.head();
        Position { segment: index, bytes, aborted: self.aborted_in(segment) }
    }

    fn aborted_in(&self, segment: &Segment) -> AbortedBatches {
        let offsets = segment.header.base_offset..segment.extent().next_offset;
        AbortedBatches::new(self.partition.aborted(offsets))
    }

    /// Frees the slot of an unfinished segment.
    fn abandon(&self, target: Target) {
        if let Target::New(new) = target {
            self.partition.volume().retire(vec![new.abandon()]);
        }
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        if let Stage::Copy(copying) = std::mem::replace(&mut self.stage, Stage::Done) {
            self.abandon(copying.target);
        }
        self.segments.clear();
        self.partition.volume().reclaim_now();
        self.partition.end_compacting();
    }
}

impl Copying {
    /// Appends the retained part of a batch. Returns `false` if the group must be restarted.
    fn take(
        &mut self,
        device: &dyn block_device::BlockDevice,
        (batch, bytes): (&BatchHeader, &[u8]),
        fate: Fate,
    ) -> Result<bool, LogError> {
        let kept = match (&self.target, &fate) {
            (Target::TooLong, _) | (Target::Unchanged, Fate::Whole) => return Ok(true),
            (Target::Unchanged, _) => return Ok(false),
            (Target::New(_), Fate::Whole) => bytes,
            (Target::New(_), Fate::Changed(changed)) => changed,
            (Target::New(_), Fate::Gone) => {
                if batch.is_control() && Marker::read(bytes) == Some(Marker::Abort) {
                    self.markers_gone.insert(batch.last_offset());
                }
                return Ok(true);
            }
        };
        let Target::New(new) = &mut self.target else { unreachable!("the others have returned") };
        if !new.has_room_for(kept.len()) {
            return Ok(false);
        }
        new.push(device, kept).map(|()| true)
    }
}

/// Returns whether the ratio of dirty bytes requires a pass.
fn is_dirty(segments: &[Arc<Segment>], clean_offset: i64, min_dirty_ratio: f64) -> bool {
    let (mut all_bytes, mut dirty_bytes) = (0, 0);
    for segment in segments {
        let extent = segment.extent();
        all_bytes += extent.position;
        if extent.next_offset > clean_offset {
            dirty_bytes += extent.position;
        }
    }
    dirty_bytes > 0 && dirty_bytes as f64 >= min_dirty_ratio * all_bytes as f64
}

fn damaged(segment: &Segment) -> LogError {
    let what =
        format!("cannot compact {}: it is corrupt, its batches end too early", segment.place());
    LogError::new(LogErrorKind::Damaged, what)
}
