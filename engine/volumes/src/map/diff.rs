//! Differences between two maps. Subtrees that they share are skipped.
//!
//! Blocks are equal if their contents are equal, wherever these are stored: pages are moved and
//! compressed without a change of contents.

use std::ops::Range;

use block_device::{
    Action, BLOCK_BYTES, ByteRange, ChangeExtent, ChangeKind, DeviceError, DeviceErrorKind,
};
use codec::Block;
use page_store::{NodeRef, PageRef};
use sync::Pinned;

use crate::blocks::{LEAF_BLOCKS, LEAF_BYTES, index_in_leaf, leaf_of};
use crate::map::runs::Runs;
use crate::map::tree::Tree;
use crate::map::volume_map::VolumeMap;

/// Maximum number of blocks compared under one pin.
const BLOCKS_A_PIN: u64 = 64;

/// Maximum number of leaves skipped under one pin where both maps are equal: half a tebibyte.
const LEAVES_A_PIN: u64 = 1 << 18;

/// Maximum number of pins for one request, which then returns the result so far.
const PINS_MAX: usize = 1 << 14;

impl VolumeMap {
    /// Lists byte ranges in `range` that differ from `from`, in at most `count_max` runs. `admit`
    /// checks under each pin that the request still fits the volume.
    pub(crate) fn list_changes(
        &self,
        from: &Self,
        (range, count_max): (ByteRange, usize),
        admit: impl Fn(&Pinned<'_>) -> Result<(), DeviceError>,
    ) -> Result<Vec<ChangeExtent>, DeviceError> {
        let mut runs = Runs::new(count_max);
        let end = range.start.saturating_add(range.length);
        let mut at = range.start;
        // At least once, because an empty range must be checked against the volume too.
        for _ in 0..PINS_MAX {
            let pinned = self.pool.store.pin();
            admit(&pinned)?;
            if from.is_gone() {
                let kind = DeviceErrorKind::NoSnapshot;
                return Err(DeviceError::new(kind, Action::ListChanges, range));
            }
            if at >= end || runs.is_full() {
                break;
            }
            let known_end = from.size_bytes().clamp(at, end);
            if known_end == at {
                runs.add(at, end, ChangeKind::Changed);
                break;
            }
            at = self.compare_some(from, &pinned, at..known_end, &mut runs);
        }
        Ok(runs.into_list(|range, kind| ChangeExtent { range, kind }))
    }

    /// Compares a part of `bytes`, from their start. Returns the end of the part.
    fn compare_some(
        &self,
        from: &Self,
        pinned: &Pinned<'_>,
        bytes: Range<u64>,
        runs: &mut Runs<ChangeKind>,
    ) -> u64 {
        let Range { start: at, end } = bytes;
        let store = &self.pool.store;
        let (block_bytes, leaf_bytes) = (BLOCK_BYTES as u64, LEAF_BYTES);
        let first = leaf_of(at / block_bytes);
        let leaves = first..end.div_ceil(leaf_bytes).min(first + LEAVES_A_PIN);
        let until = (leaves.end * leaf_bytes).min(end);
        let maps = [from.tree, self.tree];
        let Some((leaf, nodes)) = Tree::next_difference(maps, store, pinned, leaves) else {
            runs.add(at, until, ChangeKind::Unchanged);
            return until;
        };
        let start = (leaf * leaf_bytes).max(at);
        runs.add(at, start, ChangeKind::Unchanged);
        let first = start / block_bytes;
        let last = (first + BLOCKS_A_PIN).min((leaf + 1) * LEAF_BLOCKS);
        let mut reached = start;
        for block in first..last {
            let until = ((block + 1) * block_bytes).min(end);
            if reached < until {
                let kind = self.compare_block(pinned, nodes, index_in_leaf(block));
                runs.add(reached, until, kind);
                reached = until;
            }
        }
        reached
    }

    fn compare_block(
        &self,
        pinned: &Pinned<'_>,
        nodes: [Option<NodeRef>; 2],
        index: usize,
    ) -> ChangeKind {
        let store = &self.pool.store;
        let entries = nodes
            .map(|node| node.map_or(PageRef::HOLE, |node| store.entry(pinned, node, index)).name());
        let are_equal = entries[0] == entries[1] || {
            let mut contents: [Block; 2] = [[0; BLOCK_BYTES]; 2];
            let reads = [0, 1].map(|one| store.read_page(pinned, entries[one], &mut contents[one]));
            // Blocks that are damaged or not in memory may have changed.
            reads.iter().all(Result::is_ok) && contents[0] == contents[1]
        };
        if are_equal { ChangeKind::Unchanged } else { ChangeKind::Changed }
    }
}
