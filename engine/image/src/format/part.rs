//! Parts of a volume's map: the block references of 256 leaves, as runs.
//!
//! Part boundaries are fixed. An unchanged part has the same bytes as in the previous image and is
//! not written again.

use crate::error::Disbelief;
use crate::format::fields::{Fields, PutFields};
use crate::names::{CHUNK_PAGES_MAX, PageNumber};

/// Number of blocks per leaf.
pub const LEAF_BLOCKS: usize = 512;

/// Number of leaves per part.
pub(crate) const PART_LEAVES: u64 = 256;

const RUN_BYTES: usize = 12;
const KIND_SHIFT: u32 = 56;
const KIND_FILL: u64 = 1;
const KIND_PAGES: u64 = 2;
const KIND_DAMAGED: u64 = 3;
const VALUE_MASK: u64 = (1 << KIND_SHIFT) - 1;

/// Contents of a block of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockRef {
    /// Never written, or discarded.
    Hole,
    /// Filled with the repeated pattern.
    Fill(u32),
    Page(PageNumber),
    /// The contents were lost before the image was saved.
    Damaged,
}

/// Contents of the blocks of one leaf.
pub type LeafRefs = [BlockRef; LEAF_BLOCKS];

/// Returns the number of the part that contains a leaf.
pub(crate) fn part_of(leaf: u64) -> u64 {
    leaf / PART_LEAVES
}

/// Appends a leaf. Leaves must be in ascending order. A leaf of holes is omitted.
pub(crate) fn put_leaf(part: &mut Vec<u8>, leaf: u64, refs: &LeafRefs) {
    let header = part.len();
    part.put_u16(u16::try_from(leaf % PART_LEAVES).expect("a part has few leaves"));
    part.put_u16(0);
    let mut run_count: u16 = 0;
    let mut first = 0;
    while first < LEAF_BLOCKS {
        let count = run_length(&refs[first..]);
        if let Some(value) = encode(refs[first]) {
            part.put_u16(u16::try_from(first).expect("a leaf is short"));
            part.put_u16(u16::try_from(count).expect("a leaf is short"));
            part.put_u64(value);
            run_count += 1;
        }
        first += count;
    }
    match run_count {
        0 => part.truncate(header),
        count => part[header + 2..header + 4].copy_from_slice(&count.to_le_bytes()),
    }
}

/// Returns the length of the run at the start of `refs`.
fn run_length(refs: &[BlockRef]) -> usize {
    let goes_on = |index: usize| match (refs[0], refs[index]) {
        (BlockRef::Page(first), next) => {
            let distance = u16::try_from(index).expect("a leaf is short");
            first.after(distance).map(BlockRef::Page) == Some(next)
        }
        (first, next) => first == next,
    };
    (1..refs.len()).find(|&index| !goes_on(index)).unwrap_or(refs.len())
}

fn encode(block: BlockRef) -> Option<u64> {
    match block {
        BlockRef::Hole => None,
        BlockRef::Fill(pattern) => Some((KIND_FILL << KIND_SHIFT) | u64::from(pattern)),
        BlockRef::Page(number) => Some((KIND_PAGES << KIND_SHIFT) | number.get()),
        BlockRef::Damaged => Some(KIND_DAMAGED << KIND_SHIFT),
    }
}

fn decode(value: u64) -> Option<BlockRef> {
    let rest = value & VALUE_MASK;
    match value >> KIND_SHIFT {
        KIND_FILL => u32::try_from(rest).ok().map(BlockRef::Fill),
        KIND_PAGES => PageNumber::new(rest).map(BlockRef::Page),
        KIND_DAMAGED => (rest == 0).then_some(BlockRef::Damaged),
        _ => None,
    }
}

/// A decoded and validated part.
#[derive(Debug, Default)]
pub(crate) struct Part {
    bytes: Vec<u8>,
    /// Byte range of each leaf's runs, in ascending order of leaf.
    leaves: Vec<(u64, std::ops::Range<usize>)>,
}

impl Part {
    /// Decodes part `number` of a map. `is_page` returns whether the image has the page.
    pub(crate) fn read(
        number: u64,
        bytes: &[u8],
        is_page: &dyn Fn(PageNumber) -> bool,
    ) -> Result<Self, Disbelief> {
        let mut part = Self { bytes: bytes.to_vec(), leaves: Vec::new() };
        let mut fields = Fields::new(bytes);
        let mut at = 0;
        while !fields.is_empty() {
            let (leaf, run_count) = read_leaf_header(&mut fields)
                .ok_or(Disbelief::Damaged("the map has an invalid leaf index"))?;
            let leaf = number * PART_LEAVES + leaf;
            if part.leaves.last().is_some_and(|(last, _)| *last >= leaf) {
                return Err(Disbelief::Damaged("the map's leaves are out of order"));
            }
            check_runs(&mut fields, run_count, is_page).ok_or(Disbelief::Damaged(
                "the map refers to data that the image does not contain",
            ))?;
            let from = at + 4;
            at = from + run_count * RUN_BYTES;
            part.leaves.push((leaf, from..at));
        }
        Ok(part)
    }

    /// Returns its approximate memory use.
    pub(crate) fn length_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.leaves[..])
    }

    pub(crate) fn leaves(&self) -> impl Iterator<Item = u64> {
        self.leaves.iter().map(|(leaf, _)| *leaf)
    }

    /// Returns the references of a leaf's blocks. A leaf that is not in the part consists of holes.
    pub(crate) fn refs(&self, leaf: u64) -> LeafRefs {
        let mut refs = [BlockRef::Hole; LEAF_BLOCKS];
        let Ok(found) = self.leaves.binary_search_by_key(&leaf, |(known, _)| *known) else {
            return refs;
        };
        let (runs, _) = self.bytes[self.leaves[found].1.clone()].as_chunks::<RUN_BYTES>();
        for run in runs {
            let (first, count, block) = read_run(&mut Fields::new(run)).expect("read before");
            for (distance, slot) in (0..).zip(&mut refs[first..first + count]) {
                *slot = match block {
                    BlockRef::Page(page) => {
                        BlockRef::Page(page.after(distance).expect("checked when it was read"))
                    }
                    other => other,
                };
            }
        }
        refs
    }
}

fn read_leaf_header(fields: &mut Fields<'_>) -> Option<(u64, usize)> {
    let leaf = u64::from(fields.u16()?);
    let run_count = usize::from(fields.u16()?);
    (leaf < PART_LEAVES && (1..=LEAF_BLOCKS).contains(&run_count)).then_some((leaf, run_count))
}

fn check_runs(
    fields: &mut Fields<'_>,
    run_count: usize,
    is_page: &dyn Fn(PageNumber) -> bool,
) -> Option<()> {
    let mut end = 0;
    for _ in 0..run_count {
        let (first, count, block) = read_run(fields)?;
        if first < end {
            return None;
        }
        end = first + count;
        if let BlockRef::Page(page) = block {
            // A run is within one chunk, so checking its first and last page suffices.
            let last = page.after(u16::try_from(count - 1).ok()?)?;
            if !is_page(page) || !is_page(last) {
                return None;
            }
        }
    }
    Some(())
}

fn read_run(fields: &mut Fields<'_>) -> Option<(usize, usize, BlockRef)> {
    let first = usize::from(fields.u16()?);
    let count = usize::from(fields.u16()?);
    let block = decode(fields.u64()?)?;
    let is_inside = count > 0 && count <= CHUNK_PAGES_MAX && first + count <= LEAF_BLOCKS;
    is_inside.then_some((first, count, block))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::ChunkNumber;

    fn page(index: u16) -> BlockRef {
        BlockRef::Page(ChunkNumber(3).page(index))
    }

    fn read(bytes: &[u8]) -> Result<Part, Disbelief> {
        Part::read(2, bytes, &|page| page.chunk() == ChunkNumber(3) && page.index() < 500)
    }

    fn example() -> LeafRefs {
        let mut refs = [BlockRef::Hole; LEAF_BLOCKS];
        for index in 0..100_u16 {
            refs[usize::from(index)] = page(index);
            refs[300 + usize::from(index)] = page(99 - index);
        }
        refs[200..210].fill(BlockRef::Fill(u32::MAX));
        refs[511] = BlockRef::Damaged;
        refs
    }

    #[test]
    fn leaves_come_back_as_they_were_put() {
        let mut bytes = Vec::new();
        put_leaf(&mut bytes, 512, &example());
        put_leaf(&mut bytes, 600, &[BlockRef::Hole; LEAF_BLOCKS]);
        put_leaf(&mut bytes, 767, &[BlockRef::Fill(7); LEAF_BLOCKS]);
        let part = read(&bytes).expect("in order");
        assert_eq!(part.leaves().collect::<Vec<_>>(), [512, 767]);
        assert_eq!(part.refs(512), example());
        assert_eq!(part.refs(600), [BlockRef::Hole; LEAF_BLOCKS]);
        assert_eq!(part.refs(767), [BlockRef::Fill(7); LEAF_BLOCKS]);
    }

    #[test]
    fn a_leaf_written_in_one_piece_takes_16_bytes() {
        let mut bytes = Vec::new();
        let mut refs = [BlockRef::Hole; LEAF_BLOCKS];
        for (index, slot) in (0..).zip(&mut refs) {
            *slot = page(index);
        }
        put_leaf(&mut bytes, 0, &refs);
        assert_eq!(bytes.len(), 4 + RUN_BYTES);
    }

    #[track_caller]
    fn check_refused(run: (u16, u16, u64)) {
        let mut bytes = Vec::new();
        bytes.put_u16(0);
        bytes.put_u16(1);
        bytes.put_u16(run.0);
        bytes.put_u16(run.1);
        bytes.put_u64(run.2);
        assert!(matches!(read(&bytes), Err(Disbelief::Damaged(_))), "{run:?}");
    }

    #[test]
    fn runs_that_lead_nowhere_are_refused() {
        let pages = (KIND_PAGES << KIND_SHIFT) | ChunkNumber(3).page(0).get();
        check_refused((0, 0, KIND_FILL << KIND_SHIFT));
        check_refused((512, 1, KIND_FILL << KIND_SHIFT));
        check_refused((500, 13, KIND_FILL << KIND_SHIFT));
        check_refused((0, 1, (KIND_FILL << KIND_SHIFT) | 1 << 40));
        check_refused((0, 1, 0));
        check_refused((0, 1, 9 << KIND_SHIFT));
        check_refused((0, 1, (KIND_DAMAGED << KIND_SHIFT) | 1));
        check_refused((0, 1, (KIND_PAGES << KIND_SHIFT) | 1 << 48));
        check_refused((0, 1, (KIND_PAGES << KIND_SHIFT) | ChunkNumber(4).page(0).get()));
        check_refused((0, 501, pages));
        check_refused((0, 500, pages + 13));
    }

    #[test]
    fn overlapping_runs_and_leaves_out_of_order_are_refused() {
        let mut leaf = Vec::new();
        put_leaf(&mut leaf, 5, &[BlockRef::Fill(1); LEAF_BLOCKS]);
        let twice = [&leaf[..], &leaf[..]].concat();
        assert!(matches!(read(&twice), Err(Disbelief::Damaged(_))));
        let mut overlapping = leaf.clone();
        overlapping[2] = 2;
        overlapping.extend_from_within(4..);
        assert!(matches!(read(&overlapping), Err(Disbelief::Damaged(_))));
        assert!(matches!(read(&leaf[..leaf.len() - 1]), Err(Disbelief::Damaged(_))));
    }
}
