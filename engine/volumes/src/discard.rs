//! Taking contents away: discards, zeroes, and the end of a volume.

use std::ops::Range;

use block_device::{Action, ByteRange, DeviceError, Zeroes};
use codec::BLOCK_BYTES;
use page_store::{
    DirtyBits, Lane, LinkError, NODE_ENTRY_COUNT, NodeRef, OwnedPageRef, PageRef, Parent, Purpose,
};
use sync::Pinned;

use crate::map::{LEAF_BLOCKS, index_in_leaf, leaf_of};
use crate::own::refusal;
use crate::read::EntryCursor;
use crate::volume::{Piece, Volume, pieces};
use crate::write::PartError;

impl Volume {
    pub(crate) fn zero_range(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError> {
        let zero = |piece| self.find_space(|| self.zero_piece(piece, zeroes));
        match zeroes {
            Zeroes::Unmap => {
                self.discard_for_request(Action::WriteZeroes, range)?;
                cut_pieces(range).try_for_each(zero)
            }
            Zeroes::KeepAllocated => {
                self.admit(&self.shared.store.pin(), Action::WriteZeroes, range)?;
                pieces(range).try_for_each(zero)
            }
        }
    }

    fn zero_piece(&self, piece: Piece, zeroes: Zeroes) -> Result<(), DeviceError> {
        loop {
            match self.zero_present_piece(piece, zeroes) {
                Err(PartError::Absent) => self.bring_in_block(Action::WriteZeroes, piece.block)?,
                Err(PartError::Damaged) => {
                    self.mend_before_change(Action::WriteZeroes, piece.block)?;
                }
                Err(PartError::Device(kind)) => {
                    return Err(DeviceError::new(kind, Action::WriteZeroes, piece.range()));
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    fn zero_present_piece(&self, piece: Piece, zeroes: Zeroes) -> Result<(), PartError> {
        let mut lane = self.shared.store.lane();
        let pinned = self.shared.store.pin();
        self.admit(&pinned, Action::WriteZeroes, piece.range()).map_err(|error| error.kind)?;
        if !piece.is_whole() {
            let is_hole = EntryCursor::new(self).entry(&pinned, piece.block).is_hole();
            if is_hole && zeroes == Zeroes::Unmap {
                return Ok(());
            }
            return self.change_part(&mut lane, &pinned, piece, |part| part.fill(0));
        }
        let _held = self.hold_own_block(&mut lane, &pinned, piece.block).map_err(refusal)?;
        Ok(self.publish_page(&mut lane, &pinned, piece.block, OwnedPageRef::fill(0))?)
    }

    /// Makes holes of the whole blocks in `range` of a volume that requests are served from. Their
    /// memory is free when this returns, unless a reader still looks at it or a copy of the map has
    /// them too. Stops where the volume is cut or deleted meanwhile: its place in the table may
    /// soon be another's.
    pub(crate) fn discard_for_request(
        &self,
        action: Action,
        range: ByteRange,
    ) -> Result<(), DeviceError> {
        self.admit(&self.shared.store.pin(), action, range)?;
        self.discard_leaves((action, range), |pinned| {
            self.admit(pinned, action, range)?;
            // A hole that the journal lacks is remembered until it has it. Asked under the pin, as
            // by writers: who changes the class waits for those that saw the old one.
            Ok(match self.is_journaled() {
                true => PageRef::HOLE.with(DirtyBits::JOURNAL),
                false => PageRef::HOLE,
            })
        })
    }

    /// Makes holes of the whole blocks in `range`, for the administration, which keeps requests
    /// away: the range lies behind the volume's end. Fails only where copies of shared nodes find
    /// no memory.
    pub(crate) fn discard_whole_blocks(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.discard_leaves((Action::Discard, range), |_| Ok(PageRef::HOLE))
    }

    /// Makes holes of the whole blocks in `range`, leaf by leaf. What kind of hole is asked for
    /// each leaf anew, under the pin that it is made in.
    fn discard_leaves(
        &self,
        (action, range): (Action, ByteRange),
        hole: impl Fn(&Pinned<'_>) -> Result<PageRef, DeviceError>,
    ) -> Result<(), DeviceError> {
        let blocks = whole_blocks(range);
        let fail = |error| DeviceError::new(refusal(error), action, range);
        let mut from = blocks.start;
        while from < blocks.end {
            let next = {
                let pinned = self.shared.store.pin();
                self.map.next_leaf(&self.shared.store, &pinned, leaf_of(from))
            };
            let Some((leaf, _)) = next else { break };
            let first = from.max(leaf * LEAF_BLOCKS);
            let last = blocks.end.min((leaf + 1) * LEAF_BLOCKS);
            if first < last {
                self.find_space(|| {
                    let mut lane = self.shared.store.lane();
                    {
                        let pinned = self.shared.store.pin();
                        let hole = hole(&pinned)?;
                        let done = self.discard_in_leaf(&mut lane, &pinned, first..last, hole);
                        done.map_err(fail)?;
                    }
                    lane.drain();
                    Ok(())
                })?;
            }
            from = last.max((leaf + 1) * LEAF_BLOCKS);
        }
        Ok(())
    }

    /// Makes holes of blocks of one leaf.
    fn discard_in_leaf(
        &self,
        lane: &mut Lane<'_>,
        pinned: &Pinned<'_>,
        blocks: Range<u64>,
        hole: PageRef,
    ) -> Result<(), LinkError> {
        let store = &self.shared.store;
        let leaf = leaf_of(blocks.start);
        let _held = self.shared.locks.lock_leaf(self.id(), leaf);
        // Looked up again: others may have taken the leaf out before it was ours.
        let Some(node) = self.map.find_leaf(store, pinned, leaf) else { return Ok(()) };
        let holds = |block| is_cleared_by(store.entry(pinned, node, index_in_leaf(block)), hole);
        if blocks.clone().any(holds) {
            self.shared.leak_check.before_change(self, pinned, leaf, node);
            if blocks.end - blocks.start == LEAF_BLOCKS
                && hole == PageRef::HOLE
                && !self.keeps_leaf(leaf)
                && self.leave_leaf(lane, pinned, (leaf, node))?
            {
                return Ok(());
            }
            let owned = self.own_leaf(lane, pinned, leaf, self.purpose(Purpose::Removal))?;
            let node = owned.expect("the leaf is held");
            for block in blocks {
                self.clear_entry(lane, pinned, (node, index_in_leaf(block)), hole);
            }
            if hole.is_dirty(DirtyBits::JOURNAL) {
                self.unjournaled_leaves.mark(leaf);
            }
        }
        self.unlink_if_empty(lane, pinned, leaf)
    }

    /// Takes a leaf out of the map with all that it names, if others share it. The caller holds the
    /// whole leaf.
    fn leave_leaf(
        &self,
        lane: &mut Lane<'_>,
        pinned: &Pinned<'_>,
        (leaf, node): (u64, NodeRef),
    ) -> Result<bool, LinkError> {
        let parent = self.own_leaf_parent(lane, pinned, leaf)?;
        let Some(parent) = parent.filter(|_| self.is_shared(pinned, node)) else {
            return Ok(false);
        };
        for index in 0..NODE_ENTRY_COUNT {
            let entry = self.shared.store.entry(pinned, node, index);
            self.note_change(lane, entry, PageRef::HOLE);
        }
        self.unlink_leaf(lane, pinned, leaf, parent);
        Ok(true)
    }

    /// Takes a leaf out of the map in which nothing is left to say.
    pub(crate) fn drop_leaf_if_empty(&self, leaf: u64) {
        let store = &self.shared.store;
        let mut lane = store.lane();
        let pinned = store.pin();
        if self.is_gone() {
            return;
        }
        let _held = self.shared.locks.lock_leaf(self.id(), leaf);
        // Without memory for copies of the nodes above it stays, and does no harm.
        let _stays = self.unlink_if_empty(&mut lane, &pinned, leaf);
    }

    /// The caller holds the whole leaf.
    fn unlink_if_empty(
        &self,
        lane: &mut Lane<'_>,
        pinned: &Pinned<'_>,
        leaf: u64,
    ) -> Result<(), LinkError> {
        let node = self.map.find_leaf(&self.shared.store, pinned, leaf);
        let Some(node) = node.filter(|&node| is_empty(self, pinned, node)) else { return Ok(()) };
        if self.keeps_leaf(leaf) {
            return Ok(());
        }
        self.shared.leak_check.before_change(self, pinned, leaf, node);
        if let Some(parent) = self.own_leaf_parent(lane, pinned, leaf)? {
            self.unlink_leaf(lane, pinned, leaf, parent);
        }
        Ok(())
    }

    /// The caller holds the whole leaf, below nodes of the volume's own.
    fn unlink_leaf(&self, lane: &mut Lane<'_>, pinned: &Pinned<'_>, leaf: u64, parent: Parent) {
        self.shared.leak_check.before_inner_change(&self.shared.store, pinned, parent);
        self.leaves.forget(leaf);
        lane.unlink(parent);
    }

    fn clear_entry(
        &self,
        lane: &mut Lane<'_>,
        pinned: &Pinned<'_>,
        (node, index): (NodeRef, usize),
        hole: PageRef,
    ) {
        if is_cleared_by(self.shared.store.entry(pinned, node, index), hole) {
            let old = lane.clear(node, index, hole);
            self.note_change(lane, old, hole);
        }
    }

    /// Whether a block of the range holds something.
    pub(crate) fn holds_data_in(&self, range: ByteRange) -> bool {
        let blocks = whole_blocks(range);
        let mut from = blocks.start;
        while from < blocks.end {
            let store = &self.shared.store;
            let pinned = store.pin();
            let Some((leaf, node)) = self.map.next_leaf(store, &pinned, leaf_of(from)) else {
                return false;
            };
            let first = from.max(leaf * LEAF_BLOCKS);
            let last = blocks.end.min((leaf + 1) * LEAF_BLOCKS);
            let holds = |block| !store.entry(&pinned, node, index_in_leaf(block)).is_hole();
            if (first..last).any(holds) {
                return true;
            }
            from = (leaf + 1) * LEAF_BLOCKS;
        }
        false
    }
}

/// The blocks that lie whole in a range.
fn whole_blocks(range: ByteRange) -> Range<u64> {
    let block_bytes = BLOCK_BYTES as u64;
    let first = range.start.div_ceil(block_bytes);
    let end = range.start.saturating_add(range.length) / block_bytes;
    first..end.max(first)
}

/// The pieces at both ends of a range that do not cover their block.
fn cut_pieces(range: ByteRange) -> impl Iterator<Item = Piece> {
    let blocks = whole_blocks(range);
    let end = range.start + range.length;
    let head_end = (blocks.start * BLOCK_BYTES as u64).min(end);
    let tail_start = (blocks.end * BLOCK_BYTES as u64).clamp(head_end, end);
    let head = ByteRange::new(range.start, head_end - range.start);
    let tail = ByteRange::new(tail_start, end - tail_start);
    pieces(head).chain(pieces(tail))
}

/// Whether an entry is to become this hole.
fn is_cleared_by(entry: PageRef, hole: PageRef) -> bool {
    !entry.is_hole() || entry != hole && hole == PageRef::HOLE
}

fn is_empty(volume: &Volume, pinned: &Pinned<'_>, node: NodeRef) -> bool {
    (0..NODE_ENTRY_COUNT)
        .all(|index| volume.shared.store.entry(pinned, node, index) == PageRef::HOLE)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use block_device::BlockDevice;
    use region::{Region, RegionSpec};

    use super::*;
    use crate::engine::Engine;
    use crate::spec::{Durability, EngineOptions, VolumeSpec};

    const LEAF_BYTES: u64 = LEAF_BLOCKS * BLOCK_BYTES as u64;

    /// The longest that the test waits for another thread.
    const WAIT_MAX: Duration = Duration::from_secs(60);

    #[track_caller]
    fn wait_until(is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < WAIT_MAX, "it does not happen");
            std::thread::yield_now();
        }
    }

    /// A discard that has begun holds the class up, or makes holes that the new class asks for.
    #[test]
    fn a_discard_while_the_class_becomes_journal_leaves_holes_that_the_journal_is_told_of() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        let path = folder.path().join("region");
        let region = Region::open(&RegionSpec { path, size_bytes: 16 << 20 });
        let options = EngineOptions { lane_count: 3, fresh_secret: [7; 32] };
        let engine = Engine::open(region.expect("the region opens"), options);
        let engine = engine.expect("the pool opens");
        let name = "one".parse().expect("a good name");
        let volume = engine.create_volume(VolumeSpec::new(name, 2 * LEAF_BYTES));
        let volume: Arc<Volume> = volume.expect("there is room");
        volume.write(0, &[5; BLOCK_BYTES]).expect("there is room");
        volume.write(LEAF_BYTES, &[6; BLOCK_BYTES]).expect("there is room");
        std::thread::scope(|scope| {
            let held = volume.shared.locks.lock_leaf(volume.id(), 0);
            let before = engine.activity_of_others();
            let discard = scope.spawn(|| volume.discard(ByteRange::new(0, 2 * LEAF_BYTES)));
            // It is on its way to the first leaf.
            wait_until(|| engine.activity_of_others() != before);
            let change = scope.spawn(|| engine.set_durability("one", Durability::Journal));
            wait_until(|| volume.durability() == Durability::Journal);
            drop(held);
            discard.join().expect("no panic").expect("holes can be made");
            change.join().expect("no panic").expect("the class can be changed");
        });
        let mut walk = volume.walk_unjournaled().expect("there is something to be journaled");
        let capture = walk.capture(8).expect("the second leaf has a hole");
        assert!(capture.blocks().any(|(block, _)| block == LEAF_BLOCKS), "{capture:?}");
    }
}
