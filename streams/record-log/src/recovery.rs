//! Recovery of a partition at an opening: determines its valid segments and the end of the last
//! one.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{LogError, LogErrorKind};
use crate::partition::Partition;
use crate::records::{Checkpoint, PartitionRecord};
use crate::segment::{Segment, Until};
use crate::volume::TopicVolume;
use crate::writer::Found;

/// Opens a partition from the segments with its number.
pub(crate) fn recover(
    volume: &Arc<TopicVolume>,
    number: u32,
    mut segments: Vec<Segment>,
) -> Result<Partition, LogError> {
    let device = &*volume.device;
    let Some(record) = PartitionRecord::load(device, number)? else {
        let what = format!("the metadata record of partition {number} is missing");
        return Err(LogError::new(LogErrorKind::Damaged, what));
    };
    for replaced in take_replaced(&mut segments) {
        give_back(volume, replaced)?;
    }
    segments.sort_by_key(|segment| segment.header.base_offset);
    // Segments before the start offset were deleted, possibly incompletely.
    let mut deleted = segments
        .iter()
        .skip(1)
        .take_while(|next| next.header.base_offset <= record.start_offset)
        .count();
    let first = segments.get(deleted).filter(|_| deleted > 0);
    if let Some(first) = first
        && Checkpoint::load_newest(device, first.slot, &first.header)?.is_none()
    {
        // The previous segment is kept, because only it has the state of producers.
        deleted -= 1;
    }
    for segment in segments.drain(..deleted) {
        give_back(volume, segment)?;
    }
    let bases: Vec<i64> = segments.iter().map(|segment| segment.header.base_offset).collect();
    let mut found = Found::nothing(record);
    let start_offset = found.record.start_offset;
    let mut end = bases.first().map_or(start_offset, |first| start_offset.min(*first));
    for (index, segment) in segments.into_iter().enumerate() {
        if bases[index] != end {
            drop_unflushed(volume, segment, end)?;
            continue;
        }
        let until = Until { epoch: found.record.epoch(), next_base: bases.get(index + 1).copied() };
        segment.recover(device, &mut found.producers, &until)?;
        end = segment.extent().next_offset;
        found.segments.push(Arc::new(segment));
    }
    if let Some(first) = found.segments.first() {
        // Batches before the start offset may have been freed.
        first.cut_index(start_offset);
    }
    if end < start_offset || found.segments.is_empty() && start_offset > 0 {
        let what = format!(
            "partition {number} has lost records: its start offset is {start_offset}, but its log \
             ends at {end}"
        );
        return Err(LogError::new(LogErrorKind::Damaged, what));
    }
    Partition::open(Arc::clone(volume), number, found)
}

/// Removes segments that were replaced. The latest replacement is valid; one that was itself
/// replaced has no effect.
fn take_replaced(segments: &mut Vec<Segment>) -> Vec<Segment> {
    segments.sort_by_key(|segment| Reverse(segment.header.generation()));
    let mut kept: Vec<Range<i64>> = Vec::new();
    let is_replaced = |segment: &mut Segment| {
        let base_offset = segment.header.base_offset;
        let is_replaced = kept.iter().any(|range| range.contains(&base_offset));
        if let Some(replacement) = segment.header.replacement.filter(|_| !is_replaced) {
            kept.push(base_offset..replacement.end_offset);
        }
        is_replaced
    };
    segments.extract_if(.., is_replaced).collect()
}

/// Drops a segment that does not follow the previous one, because both were unflushed at a loss of
/// power. A segment with a checkpoint of batches was flushed, as were all before it: then this is
/// an error.
fn drop_unflushed(volume: &TopicVolume, segment: Segment, end: i64) -> Result<(), LogError> {
    let device = &*volume.device;
    let checkpoint = Checkpoint::load_newest(device, segment.slot, &segment.header)?;
    let is_flushed =
        segment.header.replacement.is_some() || checkpoint.is_some_and(|it| it.position > 0);
    if is_flushed {
        let what =
            format!("{} does not continue the log, which ends at offset {end}", segment.place());
        return Err(LogError::new(LogErrorKind::Damaged, what));
    }
    give_back(volume, segment)
}

/// Frees a segment that is not part of the log: now, or once that fact is known to be durable.
pub(crate) fn give_back(volume: &TopicVolume, segment: Segment) -> Result<(), LogError> {
    if volume.lock_slots().awaits_flush {
        volume.lock_slots().supersede(&[Arc::new(segment)]);
        return Ok(());
    }
    volume.give_up(segment.slot, 0, 0)?;
    volume.lock_slots().give_back(segment.slot);
    Ok(())
}
