//! One pass of compaction over a partition, in steps.
//!
//! What a crash leaves of it is either the old segments of a group or the new one; see `replace` of
//! the partition for the switch. A pass that is not finished is begun anew by the next one, from
//! the same clean offset.

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

/// One step reads so many bytes of batches, and the end of the last one.
const STEP_BYTES: usize = 4 << 20;

/// When and how a partition is compacted. Times are Unix milliseconds.
#[derive(Clone)]
pub struct CompactionOptions {
    pub now_ms: i64,
    /// Time that tombstones and markers stay after a pass has met them (`delete.retention.ms`).
    pub delete_retention_ms: i64,
    /// Segments with newer records wait (`min.compaction.lag.ms`).
    pub min_compaction_lag_ms: i64,
    /// A segment that no pass has seen waits no longer than this after its newest record, however
    /// little is new (`max.compaction.lag.ms`).
    pub max_compaction_lag_ms: i64,
    /// From 0 to 1: the part of the bytes that no pass has seen, below which there is nothing to do
    /// (`min.cleanable.dirty.ratio`). Where all was seen there is a pass when the time has come of
    /// tombstones or markers that the last one met in the life of this process.
    pub min_dirty_ratio: f64,
    /// Memory that the map of keys may take; 24 bytes for each key, and a third more.
    pub map_bytes_max: usize,
    /// Random, and known to the owner alone: keys are told apart by a hash with it.
    pub hash_secret: [u8; 16],
}

impl fmt::Debug for CompactionOptions {
    /// Without the secret.
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

/// Work of a pass so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionOutcome {
    /// Size of the segments that were replaced, and of those that took their places.
    pub bytes_before: u64,
    pub bytes_after: u64,
    pub segments_before: u64,
    pub segments_after: u64,
    /// Taken out, in segments that stay as they are too.
    pub records_removed: u64,
    /// Batches that are kept as they are because they cannot be decoded.
    pub batches_unread: u64,
    /// Up to here the log holds one record for each key. 0 until the pass is done.
    pub clean_offset: i64,
}

/// Decision of a pass to go on or to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionStep {
    More,
    Done,
}

/// A pass that was begun. Dropping it ends it, with what it has done so far.
pub struct Compaction {
    partition: Arc<Partition>,
    rules: Rules,
    met: Met,
    clean_offset: i64,
    /// What earlier passes left as it was.
    stale: Option<Stale>,
    /// The keys of records from here on are noted.
    mapped_from: i64,
    /// That the pass may change, from the first on.
    segments: Vec<Arc<Segment>>,
    stage: Stage,
    outcome: CompactionOutcome,
}

enum Stage {
    Map(Position),
    Copy(Box<Copying>),
    Done,
}

/// Where in a run of segments a pass is.
struct Position {
    segment: usize,
    bytes: u64,
    /// Of the segment.
    aborted: AbortedBatches,
}

/// A group of neighbours that become one segment, and what comes after it.
struct Copying {
    /// Grows as long as the next segment fits what is left of those before it.
    group: Vec<Arc<Segment>>,
    rest: VecDeque<Arc<Segment>>,
    at: Position,
    target: Target,
    /// As it was at the start of the group.
    met_before: Met,
    /// Offsets of markers that are left out.
    markers_gone: BTreeSet<i64>,
}

enum Target {
    /// One segment, of which nothing has to change so far.
    Unchanged,
    New(NewSegment),
    /// What stays does not fit a segment: the group stays as it is.
    TooLong,
}

impl Partition {
    /// Compacts the partition to the end; `None` where there is nothing to do. For an owner with a
    /// thread to spare: see [`Compaction`] for one that has not.
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
    /// Begins a pass; `None` where there is nothing to do, or another pass goes on.
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
        // What an earlier pass had to leave is tried again, with all keys behind it.
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

    /// Does a bounded piece of work. After an error the pass is over.
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

    /// Work so far.
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

    /// The map has no room for the keys from an offset on.
    fn end_map(&mut self, full_at: i64) -> Result<Stage, LogError> {
        if full_at > self.clean_offset {
            self.rules.map_end = full_at;
            return self.begin_copy();
        }
        // So that passes get on: what was left stays.
        self.rules.keys.clear();
        self.mapped_from = self.clean_offset;
        self.met.stale = self.stale;
        self.begin_map()
    }

    /// Notes the keys of the dirty part, as long as the map has room.
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
            // One that cannot be read stays, and so do its keys elsewhere.
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
        // Those that are replaced are held no longer than they must.
        let mut segments = std::mem::take(&mut self.segments);
        segments.truncate(segments.partition_point(|it| it.header.base_offset < map_end));
        self.begin_group(segments.into())
    }

    fn begin_group(&mut self, mut rest: VecDeque<Arc<Segment>>) -> Result<Stage, LogError> {
        let Some(first) = rest.pop_front() else {
            let map_end = self.rules.map_end;
            // What lies behind the map's end was not tried again.
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

    /// Whether a segment may be copied behind a group of which so many bytes are left.
    fn fits(&self, group: &[Arc<Segment>], bytes: u64, next: &Segment) -> bool {
        let aborted_count = |segment: &Segment| segment.extent().aborted.len();
        let aborted: usize = group.iter().map(|it| aborted_count(it)).sum();
        bytes + next.extent().position <= self.partition.volume().segment_bytes()
            && aborted + aborted_count(next) <= ABORTED_COUNT_MAX
    }

    /// It may become half as long again as segments should be: records that are compressed again,
    /// or whose times count from a horizon, may take more room than before.
    fn new_segment(&self, first: &Segment) -> Result<NewSegment, LogError> {
        let volume = self.partition.volume();
        let slot = volume.await_slot()?.slot;
        let should_bytes = volume.segment_bytes().max(first.extent().position);
        Ok(NewSegment::new(slot, first.header, should_bytes + should_bytes / 2))
    }

    /// Copies what stays of a part of the group.
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

    /// Something has to change in the one segment of the group, or what stays is too long.
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
            // All of it is durable before the header that makes it count.
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
        // Where retention was faster there is nothing left to take the place of.
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

    /// What an opening has to know at the end of the group without reading it.
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

    /// Before a segment's first batch, behind those that were given back.
    fn start_of(&self, index: usize, segment: &Segment) -> Position {
        let bytes = segment.extent().index.head();
        Position { segment: index, bytes, aborted: self.aborted_in(segment) }
    }

    fn aborted_in(&self, segment: &Segment) -> AbortedBatches {
        let offsets = segment.header.base_offset..segment.extent().next_offset;
        AbortedBatches::new(self.partition.aborted(offsets))
    }

    /// Gives the memory back of a segment that was not finished.
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
    /// Takes what stays of a batch. `false` where the group is to be begun again.
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

/// Whether enough was appended since the last pass.
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
    let what = format!("cannot compact {}: its batches end too early", segment.place());
    LogError::new(LogErrorKind::Damaged, what)
}
