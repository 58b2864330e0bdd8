//! Contents that are not what was stored: found by a walk over the pool's memory or by a reader,
//! and mended from stable storage if that has them.
//!
//! ```text
//!  scrub ─▶ damaged pages ─▶ walk over all maps ─┬─▶ stable storage has it ─▶ another page
//!                                                └─▶ nobody has it ─▶ the entry says damaged
//! ```
//! The memory of a damaged page is not used again until the pool is opened the next time.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use block_device::{Action, ByteRange, DeviceError, DeviceErrorKind};
use codec::{BLOCK_BYTES, Block};
use page_store::{NODE_ENTRY_COUNT, NoSpace, OwnedPageRef, PageRef, PageRefKind, Purpose};
use sync::atomic::{AtomicBool, Ordering};

use crate::engine::Engine;
use crate::map::{LEAF_BLOCKS, index_in_leaf, leaf_of};
use crate::read::EntryCursor;
use crate::shared::Shared;
use crate::volume::Volume;

/// Reports that are kept for the owner; the oldest go first.
const REPORTS_MAX: usize = 256;

/// Pages whose memory is withheld at most: beyond that the memory is used again.
const WITHHELD_MAX: usize = 1024;

/// Slabs looked through in one step.
const SLABS_A_STEP: u32 = 4;

/// Where copies of damaged contents are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyPlace {
    /// The journal has the page.
    Journal,
    /// The image that is the volume's base has the block.
    Image,
}

impl CopyPlace {
    /// In the order in which they are asked: what the journal has is newer.
    pub const ALL: [Self; 2] = [Self::Journal, Self::Image];
}

/// A block whose page is damaged in memory.
#[derive(Clone, Copy, Debug)]
pub struct DamagedBlock<'it> {
    pub volume: &'it Volume,
    pub block: u64,
    /// Where the page is in memory ([`CapturedPage::number`]), if the journal has the page that is
    /// there now.
    ///
    /// [`CapturedPage::number`]: crate::CapturedPage::number
    pub journaled_page: Option<u64>,
}

/// Has copies of what volumes hold.
pub trait Healer: Debug + Send + Sync {
    /// The contents that a block had when this place took them. What is wrong or too old is told
    /// by the fingerprint that memory has of the right ones. The caller holds nothing of the
    /// engine.
    fn copy_of(&self, damaged: &DamagedBlock<'_>, place: CopyPlace, into: &mut Block) -> bool;
}

/// A block whose contents in memory were not what was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamageReport {
    pub volume: String,
    pub block: u64,
    /// Where the right contents were found; `None`: they are lost.
    pub healed_from: Option<CopyPlace>,
}

/// What a piece of the walk over the pool's memory has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes of memory that were read.
    pub bytes: u64,
    /// Pages that were damaged.
    pub damaged_pages: u64,
    /// The walk has come to the end, and begins again.
    pub is_round: bool,
}

/// The integrity of one pool.
#[derive(Debug, Default)]
pub(crate) struct Integrity {
    verifies_reads: AtomicBool,
    healer: OnceLock<Arc<dyn Healer>>,
    /// Where the walk goes on. Held by whoever walks.
    next_slab: Mutex<u32>,
    reports: Mutex<VecDeque<DamageReport>>,
    /// By name, with a reference that is never given back.
    withheld: Mutex<HashMap<PageRef, Withheld>>,
}

/// A damaged page whose memory is not used again.
#[derive(Debug)]
struct Withheld {
    page: OwnedPageRef,
    /// It was taken out of all maps. A reader takes it out of one place only.
    is_in_no_map: bool,
}

impl Integrity {
    #[inline]
    pub(crate) fn verifies_reads(&self) -> bool {
        self.verifies_reads.load(Ordering::Relaxed)
    }

    fn report(&self, report: DamageReport) {
        let mut reports = self.reports.lock().expect("nobody panics with the reports locked");
        if reports.len() == REPORTS_MAX {
            reports.pop_front();
        }
        reports.push_back(report);
    }

    /// Keeps the page's memory from being used again. Returns the reference if it is not needed for
    /// that: it is withheld already, or too many are.
    fn withhold(&self, page: OwnedPageRef, is_in_no_map: bool) -> Option<OwnedPageRef> {
        let mut withheld = self.withheld();
        let name = page.page_ref().name();
        if let Some(known) = withheld.get_mut(&name) {
            known.is_in_no_map |= is_in_no_map;
            return Some(page);
        }
        if withheld.len() == WITHHELD_MAX {
            return Some(page);
        }
        withheld.insert(name, Withheld { page, is_in_no_map });
        None
    }

    /// Whether nothing is left to be done about the page.
    fn is_dealt_with(&self, page: &OwnedPageRef) -> bool {
        self.withheld().get(&page.page_ref().name()).is_some_and(|withheld| withheld.is_in_no_map)
    }

    fn withheld(&self) -> MutexGuard<'_, HashMap<PageRef, Withheld>> {
        self.withheld.lock().expect("nobody panics with the pages locked")
    }

    fn turn(&self) -> MutexGuard<'_, u32> {
        self.next_slab.lock().expect("a panic in the walk ends the process")
    }
}

impl Engine {
    /// Says whether reads verify what they return, at the cost of a fingerprint for each block.
    pub fn set_verify_reads(&self, verifies: bool) {
        self.shared.integrity.verifies_reads.store(verifies, Ordering::Relaxed);
    }

    /// Says who has copies of damaged contents. Once.
    pub fn set_healer(&self, healer: Arc<dyn Healer>) {
        let was_set = self.shared.integrity.healer.set(healer);
        assert!(was_set.is_ok(), "one healer serves a pool");
    }

    /// Verifies a piece of the pool's memory, and deals with what is damaged there. The owner says
    /// how often. One thread at a time does the work.
    pub fn scrub(&self) -> Scrubbed {
        let shared = &self.shared;
        let mut next = shared.integrity.turn();
        let verified = shared.store.verify_slabs(*next, SLABS_A_STEP);
        *next = if verified.has_more { *next + SLABS_A_STEP } else { 0 };
        let (known, found): (Vec<_>, Vec<_>) =
            verified.damaged.into_iter().partition(|page| shared.integrity.is_dealt_with(page));
        let damaged_pages = found.len() as u64;
        if !found.is_empty() {
            self.replace_damaged(found);
        }
        let mut lane = shared.store.lane();
        known.into_iter().for_each(|page| lane.give_back(page));
        Scrubbed { bytes: verified.bytes, damaged_pages, is_round: !verified.has_more }
    }

    /// Blocks found damaged since this was called last, the oldest first; of very many the latest.
    pub fn take_damage_reports(&self) -> Vec<DamageReport> {
        let reports = &self.shared.integrity.reports;
        reports.lock().expect("nobody panics with the reports locked").drain(..).collect()
    }

    /// Bytes of memory that are not used any more since they were found damaged.
    pub fn withheld_bytes(&self) -> u64 {
        self.shared.integrity.withheld().len() as u64 * BLOCK_BYTES as u64
    }

    /// Gives withheld memory back, so that it is not taken for leaked: the next run finds out by
    /// itself.
    pub(crate) fn release_withheld(&self) {
        self.shared.release_withheld();
    }

    /// Takes damaged pages out of all maps.
    fn replace_damaged(&self, damaged: Vec<OwnedPageRef>) {
        let pages: HashMap<PageRef, OwnedPageRef> =
            damaged.into_iter().map(|page| (page.page_ref().name(), page)).collect();
        for volume in self.everything() {
            let mut from = 0;
            while let Some(leaf) = volume.next_leaf(from) {
                for (block, page) in volume.blocks_of(leaf, &pages) {
                    volume.mend(block, page);
                }
                from = leaf + 1;
            }
        }
        let mut lane = self.shared.store.lane();
        for page in pages.into_values() {
            if let Some(page) = self.shared.integrity.withhold(page, true) {
                lane.give_back(page);
            }
        }
    }
}

impl Shared {
    fn release_withheld(&self) {
        let withheld = std::mem::take(&mut *self.integrity.withheld());
        let mut lane = self.store.lane();
        withheld.into_values().for_each(|withheld| lane.give_back(withheld.page));
    }

    /// The first copy of a block on stable storage that is what memory should have.
    fn right_copy(
        &self,
        volume: &Volume,
        block: u64,
        page: &OwnedPageRef,
    ) -> Option<(CopyPlace, Block)> {
        let healer = self.integrity.healer.get()?;
        let journaled_page = page.slot_number().filter(|_| self.store.is_journaled(page));
        let damaged = DamagedBlock { volume, block, journaled_page };
        CopyPlace::ALL.into_iter().find_map(|place| {
            let mut contents = [0; BLOCK_BYTES];
            let is_right = healer.copy_of(&damaged, place, &mut contents)
                && self.store.is_of_page(page, &contents);
            is_right.then_some((place, contents))
        })
    }
}

impl Volume {
    /// The page of a block was found damaged by one who read it: mends it, or says that it is lost.
    /// Not to be called while pinned or with a lane.
    pub fn mend_block(&self, block: u64) {
        let store = &self.shared.store;
        let page = {
            let pinned = store.pin();
            let Some(node) = self.find_leaf(&pinned, block / LEAF_BLOCKS) else { return };
            store.hold_to_mend(&pinned, store.entry(&pinned, node, index_in_leaf(block)))
        };
        let Some(page) = page else { return };
        let mut scratch = [0; BLOCK_BYTES];
        if !store.is_intact(&page, &mut scratch) {
            self.mend(block, &page);
            if let Some(page) = self.shared.integrity.withhold(page, false) {
                store.lane().give_back(page);
            }
        } else {
            store.lane().give_back(page);
        }
    }

    /// Mends a block of which a part is to be changed; fails if what it holds is lost.
    pub(crate) fn mend_before_change(&self, action: Action, block: u64) -> Result<(), DeviceError> {
        self.mend_block(block);
        let store = &self.shared.store;
        let pinned = store.pin();
        let entry = EntryCursor::new(self).entry(&pinned, block);
        let is_lost = match entry.kind() {
            PageRefKind::Absent(_) => false,
            _ => store.read_verified(&pinned, entry, &mut [0; BLOCK_BYTES]).is_err(),
        };
        let range = ByteRange::new(block * BLOCK_BYTES as u64, BLOCK_BYTES as u64);
        match is_lost {
            true => Err(DeviceError::new(DeviceErrorKind::Corrupt, action, range)),
            false => Ok(()),
        }
    }

    /// Blocks whose contents are lost: reads of them fail until they are overwritten.
    pub fn lost_blocks(&self) -> u64 {
        self.counts.damaged.sum()
    }

    /// The blocks of a leaf that name one of these pages.
    fn blocks_of<'pages>(
        &self,
        leaf: u64,
        pages: &'pages HashMap<PageRef, OwnedPageRef>,
    ) -> Vec<(u64, &'pages OwnedPageRef)> {
        let store = &self.shared.store;
        let pinned = store.pin();
        let Some(node) = self.map.find_leaf(store, &pinned, leaf) else { return Vec::new() };
        let named = |index: usize| {
            let page = pages.get(&store.entry(&pinned, node, index).name())?;
            Some((leaf * LEAF_BLOCKS + index as u64, page))
        };
        (0..NODE_ENTRY_COUNT).filter_map(named).collect()
    }

    /// Gives a block that names a damaged page the right contents, or says that they are lost.
    fn mend(&self, block: u64, page: &OwnedPageRef) {
        let copy = self.shared.right_copy(self, block, page);
        let healed = copy.filter(|(_, contents)| self.heal_block(block, page, contents));
        let healed_from = healed.map(|(place, _)| place);
        let names_page = |entry: PageRef| entry.name() == page.page_ref().name();
        if healed_from.is_some() || self.lose_if(block, names_page) {
            let report = DamageReport { volume: self.name(), block, healed_from };
            self.shared.integrity.report(report);
        }
    }

    /// Stores the right contents for a block that still names the page. Returns whether it does
    /// not any more. In a full pool it takes what nobody else may take, then the memory of damaged
    /// pages: that a copy is lost is worse than that a damaged cell is used again.
    fn heal_block(&self, block: u64, page: &OwnedPageRef, contents: &Block) -> bool {
        let heal = |purpose| self.heal_block_for(purpose, (block, page), contents);
        let healed = heal(Purpose::Overwrite).or_else(|_| heal(Purpose::Removal)).or_else(|_| {
            self.shared.release_withheld();
            self.shared.store.reclaim();
            heal(Purpose::Removal)
        });
        healed.unwrap_or(false)
    }

    fn heal_block_for(
        &self,
        purpose: Purpose,
        (block, page): (u64, &OwnedPageRef),
        contents: &Block,
    ) -> Result<bool, NoSpace> {
        let store = &self.shared.store;
        let mut lane = store.lane();
        let pinned = store.pin();
        let new = lane.store_page(&pinned, contents, self.policy(), || self.purpose(purpose))?;
        let is_untried = new.page_ref().is_untried();
        let names_page = |entry: PageRef| entry.name() == page.page_ref().name();
        let mut new = Some(new);
        self.reword_block(&mut lane, &pinned, (block, names_page), |lane, at| {
            if let Some(new) = new.take() {
                self.move_to(lane, at, new);
            }
        });
        match new {
            Some(unused) => {
                lane.give_back(unused);
                Ok(false)
            }
            None => {
                if is_untried {
                    self.untried_leaves.mark(leaf_of(block));
                }
                Ok(true)
            }
        }
    }
}
