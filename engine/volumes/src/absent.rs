//! Blocks whose contents are in an image and not in memory yet: fetched when they are touched.
//!
//! ```text
//!  read ─▶ absent ─▶ fetch (nothing held) ─┬─▶ the reader gets the page
//!                                          └─▶ entries of the leaf that still say so get theirs
//! ```
//! Bringing a page in changes no contents: whoever overwrites the block meanwhile wins. What cannot
//! be fetched stays absent: reads of it fail until it can be, or until the owner gives it up.

use std::sync::Arc;

use block_device::{Action, BlockDevice, ByteRange, DeviceError, DeviceErrorKind, Zeroes};
use codec::{BLOCK_BYTES, Block};
use page_store::{PageRef, PageRefKind, Purpose};

use crate::hooks::{FetchedPages, Found, SourceError, SourceErrorKind};
use crate::map::{LEAF_BLOCKS, leaf_of};
use crate::read::EntryCursor;
use crate::volume::{Volume, pieces};

/// What became of the absent blocks of a leaf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BroughtIn {
    /// Blocks that are in memory now.
    pub present: u64,
    /// Blocks that could not be had.
    pub left: Vec<LeftBlock>,
}

/// An absent block whose contents could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftBlock {
    pub block: u64,
    /// Under which the image has it.
    pub number: u64,
    pub kind: SourceErrorKind,
}

/// What became of absent blocks that were given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenUp {
    /// Blocks that are lost from now on.
    pub lost: u64,
    /// Blocks that could be had after all.
    pub present: u64,
    /// Blocks that are absent still.
    pub left: u64,
}

impl Volume {
    /// Blocks that are in an image and not in memory.
    pub fn absent_blocks(&self) -> u64 {
        self.counts.absent.sum()
    }

    /// Reads a range that may hold absent blocks, one block at a time.
    pub(crate) fn read_slowly(&self, range: ByteRange, into: &mut [u8]) -> Result<(), DeviceError> {
        let mut rest = into;
        let mut block = [0; BLOCK_BYTES];
        for piece in pieces(range) {
            self.read_or_fetch(Action::Read, range, piece.block, &mut block)?;
            let (part, behind) = rest.split_at_mut(piece.length);
            part.copy_from_slice(&block[piece.start..piece.start + piece.length]);
            rest = behind;
        }
        Ok(())
    }

    /// Reads a block, from where it is.
    fn read_or_fetch(
        &self,
        action: Action,
        range: ByteRange,
        block: u64,
        into: &mut Block,
    ) -> Result<(), DeviceError> {
        let store = &self.shared.store;
        let number = {
            let pinned = store.pin();
            self.admit(&pinned, action, range)?;
            let entry = EntryCursor::new(self).entry(&pinned, block);
            match entry.kind() {
                PageRefKind::Absent(number) => number,
                _ if self.shared.read_page(&pinned, entry, into).is_ok() => return Ok(()),
                _ => {
                    drop(pinned);
                    return self.mend_and_read(action, range, block, into);
                }
            }
        };
        let fetched = self.fetch(number).map_err(|error| failed(action, range, error))?;
        let found = fetched.read(number, into).map_err(|error| failed(action, range, error))?;
        debug_assert_eq!(found, Found::Here, "what was asked for is there");
        // Without memory for it the page is fetched again next time.
        let _kept = self.keep_fetched(leaf_of(block), &*fetched);
        Ok(())
    }

    /// Reads a block whose page was found damaged: its copy on stable storage, if there is one.
    fn mend_and_read(
        &self,
        action: Action,
        range: ByteRange,
        block: u64,
        into: &mut Block,
    ) -> Result<(), DeviceError> {
        self.mend_block(block);
        let pinned = self.shared.store.pin();
        self.admit(&pinned, action, range)?;
        let entry = EntryCursor::new(self).entry(&pinned, block);
        let read = self.shared.read_page(&pinned, entry, into);
        read.map_err(|error| failed(action, range, error))
    }

    /// Brings an absent block into memory, so that a part of it can be changed. The search for
    /// memory is the caller's.
    pub(crate) fn bring_in_block(&self, action: Action, block: u64) -> Result<(), DeviceError> {
        let range = ByteRange::new(block * BLOCK_BYTES as u64, BLOCK_BYTES as u64);
        let Some(number) = self.absent_number(block) else { return Ok(()) };
        let fetched = self.fetch(number).map_err(|error| failed(action, range, error))?;
        let kept = self.keep_fetched(leaf_of(block), &*fetched);
        kept.map(|_| ()).map_err(|kind| DeviceError::new(kind, action, range))
    }

    /// Brings the absent blocks of a leaf into memory, as far as they can be had. Fails when there
    /// is no memory for them.
    pub fn bring_in_leaf(&self, leaf: u64) -> Result<BroughtIn, DeviceError> {
        let range = ByteRange::new(leaf * LEAF_BLOCKS * BLOCK_BYTES as u64, 0);
        let mut done = BroughtIn::default();
        for block in leaf * LEAF_BLOCKS..(leaf + 1) * LEAF_BLOCKS {
            let Some(number) = self.absent_number(block) else { continue };
            let fetched = match self.fetch(number) {
                Ok(fetched) => fetched,
                Err(error) => {
                    done.left.push(LeftBlock { block, number, kind: error.kind });
                    continue;
                }
            };
            self.find_space(|| {
                let kept = self.keep_fetched(leaf, &*fetched);
                done.present +=
                    kept.map_err(|kind| DeviceError::new(kind, Action::Write, range))?;
                Ok(())
            })?;
            if self.absent_number(block) == Some(number) {
                done.left.push(LeftBlock { block, number, kind: SourceErrorKind::Gone });
            }
        }
        Ok(done)
    }

    /// Gives up what is absent and cannot be had for such a reason: reads of it fail until it is
    /// overwritten. What can be had is brought in.
    pub fn give_up_absent(
        &self,
        is_reason: impl Fn(SourceErrorKind) -> bool,
    ) -> Result<GivenUp, DeviceError> {
        let mut done = GivenUp::default();
        let mut from = 0;
        while let Some(leaf) = self.next_leaf(from) {
            let brought = self.bring_in_leaf(leaf)?;
            done.present += brought.present;
            for LeftBlock { block, number, kind } in brought.left {
                let is_absent = |entry: PageRef| entry.kind() == PageRefKind::Absent(number);
                match is_reason(kind) {
                    true => done.lost += u64::from(self.lose_if(block, is_absent)),
                    false => done.left += 1,
                }
            }
            from = leaf + 1;
        }
        Ok(done)
    }

    /// The next leaf from number `from` on; not all of them have absent blocks.
    pub fn next_leaf(&self, from: u64) -> Option<u64> {
        let store = &self.shared.store;
        let next = self.map.next_leaf(store, &store.pin(), from);
        next.filter(|_| !self.is_gone()).map(|(leaf, _)| leaf)
    }

    /// The number under which an image has what the block holds, if it is absent.
    pub fn absent_number(&self, block: u64) -> Option<u64> {
        let pinned = self.shared.store.pin();
        if self.is_gone() {
            return None;
        }
        match EntryCursor::new(self).entry(&pinned, block).kind() {
            PageRefKind::Absent(number) => Some(number),
            _ => None,
        }
    }

    fn fetch(&self, number: u64) -> Result<Arc<dyn FetchedPages>, SourceError> {
        self.shared.page_source()?.fetch(number)
    }

    /// Stores what was fetched for a leaf. Returns for how many of its blocks.
    fn keep_fetched(&self, leaf: u64, fetched: &dyn FetchedPages) -> Result<u64, DeviceErrorKind> {
        let mut kept = 0;
        let mut contents = [0; BLOCK_BYTES];
        for block in leaf * LEAF_BLOCKS..(leaf + 1) * LEAF_BLOCKS {
            let Some(number) = self.absent_number(block) else { continue };
            if let Ok(Found::Here) = fetched.read(number, &mut contents) {
                self.keep_page(block, number, &contents)?;
                kept += 1;
            }
        }
        Ok(kept)
    }

    /// Stores the contents of a block, if it is still absent under this number.
    pub fn bring_in(&self, block: u64, number: u64, contents: &Block) -> Result<(), DeviceError> {
        let range = ByteRange::new(block * BLOCK_BYTES as u64, BLOCK_BYTES as u64);
        self.find_space(|| {
            self.keep_page(block, number, contents)
                .map_err(|kind| DeviceError::new(kind, Action::Write, range))
        })
    }

    fn keep_page(&self, block: u64, number: u64, contents: &Block) -> Result<(), DeviceErrorKind> {
        let store = &self.shared.store;
        let mut lane = store.lane();
        let pinned = store.pin();
        let is_absent = |entry: PageRef| entry.kind() == PageRefKind::Absent(number);
        let mut result = Ok(());
        self.reword_block(&mut lane, &pinned, (block, is_absent), |lane, at| {
            // What copies of the map get too is nothing that the volume has claimed.
            let has_own = self.has_leaf_alone(&pinned, leaf_of(block));
            let purpose = match has_own {
                true => self.purpose(Purpose::NewData),
                false => Purpose::NewData,
            };
            match lane.store_page(&pinned, contents, self.policy(), || purpose) {
                Ok(page) => {
                    let is_untried = page.page_ref().is_untried();
                    self.move_to(lane, at, page);
                    if !has_own {
                        self.note_shared_page(lane);
                    }
                    if is_untried {
                        self.untried_leaves.mark(leaf_of(block));
                    }
                }
                Err(_) => result = Err(DeviceErrorKind::NoSpace),
            }
        });
        result
    }

    /// What a block holds cannot be had any more: reads of it fail until it is overwritten.
    pub fn declare_lost(&self, block: u64) -> Result<(), DeviceError> {
        let range = ByteRange::new(block * BLOCK_BYTES as u64, BLOCK_BYTES as u64);
        // A pattern first, so that the block has an entry of the volume's own.
        self.write_zeroes(range, Zeroes::KeepAllocated)?;
        self.lose_if(block, |entry| entry.kind() == PageRefKind::Fill(0));
        Ok(())
    }
}

/// Contents that cannot be had.
fn failed(
    action: Action,
    range: ByteRange,
    error: impl std::error::Error + Send + Sync + 'static,
) -> DeviceError {
    let source = Some(error.into());
    DeviceError { source, ..DeviceError::new(DeviceErrorKind::Corrupt, action, range) }
}
