//! Absent blocks: contents that are in an image and not in memory yet, fetched at the first access.
//!
//! ```text
//!  read ─▶ absent ─▶ fetch (no pin, no lock) ─┬─▶ the reader gets the page
//!                                            └─▶ absent entries of the leaf get theirs
//! ```
//! Fetching a page changes no contents: a concurrent write of the block takes precedence. Blocks
//! that cannot be fetched stay absent. Reads of them fail until the fetch succeeds or the owner
//! gives them up.

use block_device::{Action, ByteRange, DeviceError, DeviceErrorKind};
use codec::{BLOCK_BYTES, Block};
use page_store::{OwnedPageRef, PageRef, PageRefKind, Purpose, Writer};

use crate::blocks::{LEAF_BLOCKS, block_range, leaf_of, pieces};
use crate::device::hooks::{FetchedPages, Found, SourceErrorKind};
use crate::device::volume::Volume;
use crate::error::refusal;
use crate::map::entries::Update;

/// Outcome for the absent blocks of a leaf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BroughtIn {
    /// Number of blocks that are in memory now.
    pub present: u64,
    /// Blocks that could not be fetched.
    pub left: Vec<LeftBlock>,
}

/// An absent block whose contents could not be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftBlock {
    pub block: u64,
    /// Number of the page in the image.
    pub number: u64,
    pub kind: SourceErrorKind,
}

/// Outcome for absent blocks that were given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenUp {
    /// Number of blocks that are lost from now on.
    pub lost: u64,
    /// Number of blocks that were fetched after all.
    pub present: u64,
    /// Number of blocks that are still absent.
    pub left: u64,
}

impl Volume {
    /// Fetches the absent blocks of a leaf into memory, as far as the image can be read. Fails when
    /// there is no memory for them.
    pub fn bring_in_leaf(&self, leaf: u64) -> Result<BroughtIn, DeviceError> {
        let map = &*self.map;
        let range = ByteRange::new(leaf * LEAF_BLOCKS * BLOCK_BYTES as u64, 0);
        let fail = |kind| DeviceError::new(kind, Action::Write, range);
        let mut done = BroughtIn::default();
        for block in leaf * LEAF_BLOCKS..(leaf + 1) * LEAF_BLOCKS {
            let Some(number) = map.absent_number(block) else { continue };
            let fetched = match self.hooks.fetch(number) {
                Ok(fetched) => fetched,
                Err(error) => {
                    done.left.push(LeftBlock { block, number, kind: error.kind });
                    continue;
                }
            };
            self.space.find(
                map,
                || false,
                || {
                    done.present += keep_fetched(self, leaf, &*fetched).map_err(fail)?;
                    Ok(())
                },
            )?;
            if map.absent_number(block) == Some(number) {
                done.left.push(LeftBlock { block, number, kind: SourceErrorKind::Gone });
            }
        }
        Ok(done)
    }

    /// Gives up absent blocks that cannot be fetched for one of these reasons: reads of them fail
    /// until they are overwritten. Other blocks are fetched.
    pub fn give_up_absent(
        &self,
        is_reason: impl Fn(SourceErrorKind) -> bool,
    ) -> Result<GivenUp, DeviceError> {
        let mut done = GivenUp::default();
        let mut from = 0;
        while let Some(leaf) = self.map.next_leaf(from) {
            let brought = self.bring_in_leaf(leaf)?;
            done.present += brought.present;
            for LeftBlock { block, number, kind } in brought.left {
                let is_absent = |entry: PageRef| entry.kind() == PageRefKind::Absent(number);
                match is_reason(kind) {
                    true => done.lost += self.lose_own(block, is_absent)?,
                    false => done.left += 1,
                }
            }
            from = leaf + 1;
        }
        Ok(done)
    }

    /// Declares a block lost if its entry is still as expected. Returns the number of lost blocks.
    fn lose_own(
        &self,
        block: u64,
        is_expected: impl Fn(PageRef) -> bool,
    ) -> Result<u64, DeviceError> {
        let fail = |error| DeviceError::new(refusal(error), Action::Write, block_range(block));
        let mut lost = 0;
        let lose = || {
            lost += u64::from(self.map.lose_own_if(block, &is_expected).map_err(fail)?);
            Ok(())
        };
        self.space.find(&self.map, || true, lose)?;
        Ok(lost)
    }

    /// Stores the contents of a block, if it is still absent with this number.
    pub fn bring_in(&self, block: u64, number: u64, contents: &Block) -> Result<(), DeviceError> {
        let fail = |kind| DeviceError::new(kind, Action::Write, block_range(block));
        let keep = || keep_page(self, block, number, contents).map_err(fail);
        self.space.find(&self.map, || false, keep)
    }
}

/// Reads a range that may hold absent or damaged blocks, one block at a time.
pub(super) fn read_slowly(
    volume: &Volume,
    range: ByteRange,
    into: &mut [u8],
) -> Result<(), DeviceError> {
    let mut rest = into;
    let mut block = [0; BLOCK_BYTES];
    for piece in pieces(range) {
        read_or_fetch(volume, range, piece.block, &mut block)?;
        let (part, others) = rest.split_at_mut(piece.length);
        part.copy_from_slice(&block[piece.start..piece.start + piece.length]);
        rest = others;
    }
    Ok(())
}

/// Reads a block from memory or from the image.
fn read_or_fetch(
    volume: &Volume,
    range: ByteRange,
    block: u64,
    into: &mut Block,
) -> Result<(), DeviceError> {
    let map = &*volume.map;
    let fail = |error: Cause| failed(Action::Read, range, error);
    let read = |into: &mut Block| {
        let pinned = map.pool.store.pin();
        volume.admit(&pinned, Action::Read, range)?;
        let entry = map.entry(&pinned, block);
        match entry.kind() {
            PageRefKind::Absent(number) => Ok(Err(Some(number))),
            _ => Ok(map.pool.read_page(&pinned, entry, into).map_err(|_| None)),
        }
    };
    let number = match read(into)? {
        Ok(()) => return Ok(()),
        Err(Some(number)) => number,
        Err(None) => {
            // Its page is damaged: read its copy on stable storage, if there is one.
            volume.mend_block(block);
            let pinned = map.pool.store.pin();
            volume.admit(&pinned, Action::Read, range)?;
            let read = map.pool.read_page(&pinned, map.entry(&pinned, block), into);
            return read.map_err(|error| fail(error.into()));
        }
    };
    let fetched = volume.hooks.fetch(number).map_err(|error| fail(error.into()))?;
    let found = fetched.read(number, into).map_err(|error| fail(error.into()))?;
    debug_assert_eq!(found, Found::Here, "what was asked for is there");
    // If there is no memory for the page, the next read fetches it again.
    let _kept = keep_fetched(volume, leaf_of(block), &*fetched);
    Ok(())
}

/// Fetches an absent block into memory, so that a part of it can be changed. The caller handles a
/// lack of memory.
pub(super) fn bring_in_block(
    volume: &Volume,
    action: Action,
    block: u64,
) -> Result<(), DeviceError> {
    let range = block_range(block);
    let Some(number) = volume.map.absent_number(block) else { return Ok(()) };
    let fetched = volume.hooks.fetch(number);
    let fetched = fetched.map_err(|error| failed(action, range, error.into()))?;
    let kept = keep_fetched(volume, leaf_of(block), &*fetched);
    kept.map(|_| ()).map_err(|kind| DeviceError::new(kind, action, range))
}

/// Heals a block before a part of it is changed. Fails if its contents are lost.
pub(super) fn mend_before_change(
    volume: &Volume,
    action: Action,
    block: u64,
) -> Result<(), DeviceError> {
    volume.mend_block(block);
    let store = &volume.map.pool.store;
    let pinned = store.pin();
    let entry = volume.map.entry(&pinned, block);
    let is_absent = matches!(entry.kind(), PageRefKind::Absent(_));
    if is_absent || store.read_verified(&pinned, entry, &mut [0; BLOCK_BYTES]).is_ok() {
        return Ok(());
    }
    Err(DeviceError::new(DeviceErrorKind::Corrupt, action, block_range(block)))
}

/// Stores the fetched pages of a leaf. Returns the number of its blocks that were stored.
fn keep_fetched(
    volume: &Volume,
    leaf: u64,
    fetched: &dyn FetchedPages,
) -> Result<u64, DeviceErrorKind> {
    let map = &*volume.map;
    let mut kept = 0;
    let mut contents = [0; BLOCK_BYTES];
    for block in leaf * LEAF_BLOCKS..(leaf + 1) * LEAF_BLOCKS {
        let Some(number) = map.absent_number(block) else { continue };
        if let Ok(Found::Here) = fetched.read(number, &mut contents) {
            keep_page(volume, block, number, &contents)?;
            kept += 1;
        }
    }
    Ok(kept)
}

fn keep_page(
    volume: &Volume,
    block: u64,
    number: u64,
    contents: &Block,
) -> Result<(), DeviceErrorKind> {
    let map = &*volume.map;
    let store = &map.pool.store;
    let mut writer = store.writer();
    let mut for_others = None;
    let kept = map.update_if(&mut writer, block, |writer, now| {
        if now.kind() != PageRefKind::Absent(number) {
            return Ok(None);
        }
        // Pages shared with copies of the map must not use the volume's claim.
        let purpose = match map.has_leaf_alone(&writer.pinned, leaf_of(block)) {
            true => map.purpose(Purpose::NewData),
            false => Purpose::NewData,
        };
        let page = writer.lane.store_page(&writer.pinned, contents, map.policy(), || purpose)?;
        if map.may_share() && !map.claims.is_claimed() {
            for_others = writer.lane.share(&page);
        }
        Ok(Some(Update::Page(page)))
    });
    kept.map_err(|_| DeviceErrorKind::NoSpace)?;
    if let Some(page) = for_others {
        share_page(volume, &mut writer, &page, (block, number));
        writer.lane.give_back(page);
    }
    Ok(())
}

/// Shares a fetched page with all maps that lack the same block of the image, so that they need not
/// fetch it again.
fn share_page(
    volume: &Volume,
    writer: &mut Writer<'_>,
    page: &OwnedPageRef,
    (block, number): (u64, u64),
) {
    let lacks = |entry: PageRef| entry.kind() == PageRefKind::Absent(number);
    for other in volume.space.maps.all() {
        if !other.claims.is_claimed() && lacks(other.entry(&writer.pinned, block)) {
            let shared = other.update_if(writer, block, |writer, now| {
                let page = lacks(now).then(|| writer.lane.share(page)).flatten();
                Ok(page.map(Update::Page))
            });
            shared.expect("what is there already takes no memory");
        }
    }
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Error of contents that cannot be read.
fn failed(action: Action, range: ByteRange, source: Cause) -> DeviceError {
    let source = Some(source);
    DeviceError { source, ..DeviceError::new(DeviceErrorKind::Corrupt, action, range) }
}
