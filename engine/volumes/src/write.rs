//! Writes: contents become a page first, which then becomes what the block holds.

use std::cell::Cell;

use block_device::{Action, ByteRange, DeviceError, DeviceErrorKind};
use codec::{BLOCK_BYTES, Block};
use page_store::{DirtyBits, Lane, NoSpace, NodeRef, OwnedPageRef, PageRef, PageRefKind, Purpose};
use sync::Pinned;

use crate::map::{index_in_leaf, leaf_of};
use crate::own::refusal;
use crate::read::EntryCursor;
use crate::volume::{Piece, Volume, data_range, pieces};

/// Blocks written with one lane and under one pin.
const BATCH_BLOCKS_MAX: usize = 64;

impl Volume {
    pub(crate) fn write_bytes(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        let range = data_range(Action::Write, offset, from.len())?;
        let at = Cell::new(range.start / BLOCK_BYTES as u64);
        if let Ok(contents) = <&Block>::try_from(from)
            && offset.is_multiple_of(BLOCK_BYTES as u64)
        {
            return self.find_space_to_write(&at, || self.write_whole(range, contents));
        }
        let mut rest = from;
        let mut todo = pieces(range).peekable();
        // Once at least: an empty range has to fit the volume too.
        loop {
            let todo = &mut todo;
            self.find_space_to_write(&at, || self.write_batch((range, &at), todo, &mut rest))?;
            if todo.peek().is_none() {
                return Ok(());
            }
        }
    }

    /// One whole block: what most requests are, without what only longer ones need.
    fn write_whole(&self, range: ByteRange, contents: &Block) -> Result<(), DeviceError> {
        let mut lane = self.shared.store.lane();
        let pinned = self.shared.store.pin();
        self.admit(&pinned, Action::Write, range)?;
        let block = range.start / BLOCK_BYTES as u64;
        self.write_block(&mut lane, &pinned, block, contents)
            .map_err(|kind| DeviceError::new(kind, Action::Write, range))
    }

    /// Writes the next pieces with one lane. Those that are done leave `todo` and `from`.
    fn write_batch(
        &self,
        (range, at): (ByteRange, &Cell<u64>),
        todo: &mut std::iter::Peekable<impl Iterator<Item = Piece>>,
        from: &mut &[u8],
    ) -> Result<(), DeviceError> {
        let fail = |kind| DeviceError::new(kind, Action::Write, range);
        let mut lane = self.shared.store.lane();
        let pinned = self.shared.store.pin();
        self.admit(&pinned, Action::Write, range)?;
        for _ in 0..BATCH_BLOCKS_MAX {
            let Some(&piece) = todo.peek() else { break };
            at.set(piece.block);
            let bytes = &from[..piece.length];
            let result = match <&Block>::try_from(bytes) {
                Ok(block) => {
                    self.write_block(&mut lane, &pinned, piece.block, block).map_err(From::from)
                }
                Err(_) => {
                    self.change_part(&mut lane, &pinned, piece, |part| part.copy_from_slice(bytes))
                }
            };
            match result {
                Ok(()) => {}
                Err(PartError::Device(kind)) => return Err(fail(kind)),
                Err(PartError::Absent) => {
                    drop(pinned);
                    drop(lane);
                    return self.bring_in_block(Action::Write, piece.block);
                }
                Err(PartError::Damaged) => {
                    drop(pinned);
                    drop(lane);
                    return self.mend_before_change(Action::Write, piece.block);
                }
            }
            *from = &from[piece.length..];
            todo.next();
        }
        Ok(())
    }

    /// Stores a whole block's contents and publishes them.
    fn write_block(
        &self,
        lane: &mut Lane<'_>,
        pinned: &Pinned<'_>,
        block: u64,
        contents: &Block,
    ) -> Result<(), DeviceErrorKind> {
        let mut cursor = EntryCursor::new(self);
        cursor.prefetch_entry(pinned, block);
        // Held before the contents are streamed: a locked instruction behind them would wait until
        // they have reached memory.
        let _held = self.hold_own_block(lane, pinned, block).map_err(refusal)?;
        let purpose = || self.purpose_of(cursor.entry(pinned, block));
        let page = lane.store_page(pinned, contents, self.policy(), purpose).map_err(no_space)?;
        self.publish_page(lane, pinned, block, page)
    }

    /// Changes a part of a block: nobody else writes the block between the read and the write. The
    /// rest is verified, as it gets a fingerprint of its own.
    pub(crate) fn change_part(
        &self,
        lane: &mut Lane<'_>,
        pinned: &Pinned<'_>,
        piece: Piece,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), PartError> {
        let _held = self.hold_own_block(lane, pinned, piece.block).map_err(refusal)?;
        let old = EntryCursor::new(self).entry(pinned, piece.block);
        if let PageRefKind::Absent(_) = old.kind() {
            return Err(PartError::Absent);
        }
        let mut contents = [0; BLOCK_BYTES];
        let read = self.shared.store.read_verified(pinned, old, &mut contents);
        read.map_err(|_| PartError::Damaged)?;
        change(&mut contents[piece.start..piece.start + piece.length]);
        let purpose = || self.purpose_of(old);
        let page = lane.store_page(pinned, &contents, self.policy(), purpose).map_err(no_space)?;
        Ok(self.publish_page(lane, pinned, piece.block, page)?)
    }

    /// What memory is wanted for by who writes a block that holds this. Overwrites may use what new
    /// data leaves for them, and those that give up as much as they take all but the last.
    #[inline]
    fn purpose_of(&self, old: PageRef) -> Purpose {
        if self.capacity.is_claimed() {
            Purpose::Claimed
        } else if old.is_hole() {
            Purpose::NewData
        } else if self.shared.is_short_of_memory() && self.shared.store.is_raw_of_one(old) {
            Purpose::Replacement
        } else {
            Purpose::Overwrite
        }
    }

    /// Makes a page what the block holds. The caller holds the block as
    /// [`Volume::hold_own_block`] does.
    pub(crate) fn publish_page(
        &self,
        lane: &mut Lane<'_>,
        pinned: &Pinned<'_>,
        block: u64,
        page: OwnedPageRef,
    ) -> Result<(), DeviceErrorKind> {
        let node = match self.make_leaf(lane, pinned, leaf_of(block)) {
            Ok(node) => node,
            Err(error) => {
                lane.give_back(page);
                return Err(refusal(error));
            }
        };
        self.shared.leak_check.before_change(self, pinned, leaf_of(block), node);
        let is_untried = page.page_ref().is_untried();
        let index = index_in_leaf(block);
        let new = page.page_ref().with(DirtyBits::ALL);
        let old = lane.replace(node, index, page, DirtyBits::ALL);
        self.note_change(lane, old, new);
        if is_untried {
            self.untried_leaves.mark(leaf_of(block));
        }
        if self.is_journaled() {
            self.unjournaled_leaves.mark(leaf_of(block));
        }
        Ok(())
    }

    /// Says in another way what a block holds, if its entry still is what is expected: in a leaf
    /// that others may share too, where all that do so come one after the other. Returns whether it
    /// was. Who publishes something new owns the leaf instead ([`Volume::hold_own_block`]).
    pub(crate) fn reword_block(
        &self,
        lane: &mut Lane<'_>,
        pinned: &Pinned<'_>,
        (block, is_expected): (u64, impl FnOnce(PageRef) -> bool),
        reword: impl FnOnce(&mut Lane<'_>, (NodeRef, usize)),
    ) -> bool {
        let leaf = leaf_of(block);
        let _held = self.shared.locks.lock_block(self.id(), block);
        let _moves = self.hold_moves();
        let Some(node) = self.find_leaf(pinned, leaf).filter(|_| !self.is_gone()) else {
            return false;
        };
        let index = index_in_leaf(block);
        if !is_expected(self.shared.store.entry(pinned, node, index)) {
            return false;
        }
        self.shared.leak_check.before_change(self, pinned, leaf, node);
        reword(lane, (node, index));
        true
    }

    /// Gives an entry another page of the same contents: what it lacks stays so. For
    /// [`Volume::reword_block`].
    pub(crate) fn move_to(
        &self,
        lane: &mut Lane<'_>,
        (node, index): (NodeRef, usize),
        page: OwnedPageRef,
    ) {
        let marks = lane.dirty_bits(node, index);
        let new = page.page_ref().with(marks);
        let old = lane.replace(node, index, page, marks);
        self.note_change(lane, old, new);
    }

    /// Says that what a block holds is lost, if its entry still is what is expected. Returns
    /// whether it was. What stable storage lacks of the block it lacks still: it has to know that
    /// what it has is older.
    pub(crate) fn lose_if(&self, block: u64, is_expected: impl FnOnce(PageRef) -> bool) -> bool {
        let store = &self.shared.store;
        let mut lane = store.lane();
        let pinned = store.pin();
        self.reword_block(&mut lane, &pinned, (block, is_expected), |lane, (node, index)| {
            let lost = PageRef::DAMAGED.with(lane.dirty_bits(node, index));
            let old = lane.clear(node, index, lost);
            self.note_change(lane, old, lost);
            if lost.is_dirty(DirtyBits::JOURNAL) {
                self.unjournaled_leaves.mark(leaf_of(block));
            }
        })
    }
}

/// Why a part of a block cannot be changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PartError {
    /// The rest of the block has to be fetched first.
    Absent,
    /// The rest of the block has to be mended first.
    Damaged,
    Device(DeviceErrorKind),
}

impl From<DeviceErrorKind> for PartError {
    fn from(kind: DeviceErrorKind) -> Self {
        Self::Device(kind)
    }
}

fn no_space(_: NoSpace) -> DeviceErrorKind {
    DeviceErrorKind::NoSpace
}
