//! Reading single pages back from the journal while it is in use.
//!
//! The journal only guarantees that the returned contents were written to it. The caller verifies
//! that they are current. No lock is held across disk I/O. If a segment is removed meanwhile, the
//! search ends there.

use codec::Block;
use sealing::SetKey;
use storage::{AlignedBuffer, BLOCK_BYTES, StableFile};

use crate::format::{Entry, Place, Seal, SetId, open_stored};
use crate::known::Known;
use crate::reader::{SegmentReader, Step, length_of};
use crate::replay::decode;
use crate::segment_file::read_header;
use crate::segment_set::SegmentSet;

/// Limit on the segment bytes that one search reads, newest first. The search ends with the segment
/// in which it is reached.
const SEARCH_BYTES_MAX: u64 = 512 << 20;

/// The journal's latest record of a block.
enum Latest {
    /// The contents were in the transaction itself, and are decoded if they were intact.
    Here {
        is_whole: bool,
    },
    Elsewhere(Known),
    /// A hole, fill or loss, without a page.
    NoPage,
}

/// Reads the page at a location of the journal. Returns `false` if the page there is missing or
/// corrupt.
pub(crate) fn read_known(
    segments: &SegmentSet,
    key: Option<&SetKey>,
    known: Known,
    into: &mut Block,
) -> bool {
    let Ok(Some(file)) = segments.open(known.at.segment) else { return false };
    let seal = match key {
        // Page checksums are not seeded.
        None => Seal::new(SetId::default(), 0),
        Some(_) => match read_header(&*file, known.at.segment) {
            Ok(Ok(header)) if header.matches(key) => header.seal(key),
            _ => return false,
        },
    };
    read_page(&*file, &seal, known, into)
}

/// Reads the latest contents of a block, if they are a page.
pub(crate) fn read_latest(
    segments: &SegmentSet,
    key: Option<&SetKey>,
    volume_id: u64,
    block: u64,
    into: &mut Block,
) -> bool {
    let mut left_bytes = SEARCH_BYTES_MAX;
    for number in segments.kept_numbers().into_iter().rev() {
        if left_bytes == 0 {
            break;
        }
        let Ok(Some(file)) = segments.open(number) else { continue };
        left_bytes = left_bytes.saturating_sub(file.size_bytes());
        let Ok(Ok(header)) = read_header(&*file, number) else { continue };
        if !header.matches(key) {
            continue;
        }
        match find_in_segment(SegmentReader::of(file, key, header), volume_id, block, into) {
            Some(Latest::Here { is_whole }) => return is_whole,
            Some(Latest::Elsewhere(known)) => return read_known(segments, key, known, into),
            Some(Latest::NoPage) => return false,
            None => {}
        }
    }
    false
}

fn read_page(file: &dyn StableFile, seal: &Seal, known: Known, into: &mut Block) -> bool {
    let block_bytes = BLOCK_BYTES as u64;
    let start = u64::from(known.at.offset);
    let end = start + u64::from(known.length);
    // Reads must be block-aligned.
    let first = start / block_bytes * block_bytes;
    let last = end.next_multiple_of(block_bytes);
    if last > file.size_bytes() {
        return false;
    }
    let mut bytes = AlignedBuffer::zeroed(usize::try_from(last - first).expect("a few blocks"));
    let skipped = usize::try_from(start - first).expect("within a block");
    if file.read(first, &mut bytes).is_err() {
        return false;
    }
    let mut opened = Vec::new();
    let stored = bytes.get(skipped..skipped + usize::from(known.length));
    let stored = stored.and_then(|it| open_stored(seal, it, start, known.check, &mut opened));
    decode(stored, into)
}

/// Finds the last transaction of a segment with an entry for the block. Stops at the first
/// transaction that is not intact: it is being written, or damaged.
fn find_in_segment(
    mut reader: SegmentReader,
    volume_id: u64,
    block: u64,
    into: &mut Block,
) -> Option<Latest> {
    let mut latest = None;
    let mut opened = Vec::new();
    let mut offset = SegmentReader::first_offset();
    let mut sequence = reader.first_sequence();
    while let Ok(Step::Transaction(transaction)) = reader.read(offset, sequence) {
        let mut is_of_volume = false;
        for entry in transaction.entries() {
            match *entry {
                Entry::Volume(id) => is_of_volume = id == volume_id,
                _ if !is_of_volume || !names(entry, block) => {}
                Entry::Page { place: Place::Elsewhere(at), length, check, .. } => {
                    latest = Some(Latest::Elsewhere(Known { at, length, check }));
                }
                Entry::Page { place, length, check, .. } => {
                    let stored = transaction.open_page(place, length, check, &mut opened);
                    latest = Some(Latest::Here { is_whole: decode(stored, into) });
                }
                Entry::Hole { .. } | Entry::Fill { .. } | Entry::Lost { .. } => {
                    latest = Some(Latest::NoPage);
                }
            }
        }
        offset = offset.saturating_add(length_of(&transaction));
        sequence += 1;
    }
    latest
}

/// Returns whether an entry concerns the block. The caller has checked the volume.
fn names(entry: &Entry, wanted: u64) -> bool {
    match *entry {
        Entry::Volume(_) => false,
        Entry::Page { block, .. } => block == wanted,
        Entry::Hole { block, count }
        | Entry::Fill { block, count, .. }
        | Entry::Lost { block, count } => {
            wanted.checked_sub(block).is_some_and(|distance| distance < u64::from(count))
        }
    }
}
