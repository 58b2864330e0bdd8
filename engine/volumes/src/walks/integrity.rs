//! Contents that are not what was stored: found by a walk over the pool's memory or by a reader,
//! and mended from stable storage if that has them.
//!
//! ```text
//!  scrub ─▶ damaged pages ─▶ walk over all maps ─┬─▶ stable storage has it ─▶ another page
//!                                                └─▶ nothing has it ─▶ the entry says damaged
//! ```
//! The memory of a damaged page is not used again until the pool is opened the next time.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use codec::{BLOCK_BYTES, Block};
use page_store::{NODE_ENTRY_COUNT, NoSpace, OwnedPageRef, PageRef, Purpose};

use crate::blocks::LEAF_BLOCKS;
use crate::map::entries::Update;
use crate::map::table::ImageBase;
use crate::map::volume_map::VolumeMap;
use crate::pool::shared::Pool;

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
pub struct DamagedBlock {
    /// The id under which the journal has the block: of a snapshot, its volume's.
    pub volume_id: u64,
    /// The image that has what is not dirty towards images.
    pub image_base: Option<ImageBase>,
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
    fn copy_of(&self, damaged: &DamagedBlock, place: CopyPlace, into: &mut Block) -> bool;
}

/// A block whose contents in memory were not what was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamageReport {
    pub volume: String,
    pub block: u64,
    /// Where the right contents were found; `None`: they are lost.
    pub healed_from: Option<CopyPlace>,
}

/// Result of a piece of the walk over the pool's memory.
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
    healer: OnceLock<Arc<dyn Healer>>,
    /// Where the walk goes on. Held by the thread that walks.
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
    /// Sets what has copies of damaged contents. Once.
    pub(crate) fn set_healer(&self, healer: Arc<dyn Healer>) {
        assert!(self.healer.set(healer).is_ok(), "one healer serves a pool");
    }

    /// Verifies a piece of the pool's memory, and takes what is damaged there out of all maps.
    pub(crate) fn scrub(
        &self,
        pool: &Pool,
        maps: impl FnOnce() -> Vec<Arc<VolumeMap>>,
    ) -> Scrubbed {
        let mut next = self.turn();
        let verified = pool.store.verify_slabs(*next, SLABS_A_STEP);
        *next = if verified.has_more { *next + SLABS_A_STEP } else { 0 };
        let (known, found): (Vec<_>, Vec<_>) =
            verified.damaged.into_iter().partition(|page| self.is_dealt_with(page));
        let damaged_pages = found.len() as u64;
        if !found.is_empty() {
            self.replace_damaged(pool, &maps(), found);
        }
        let mut lane = pool.store.lane();
        known.into_iter().for_each(|page| lane.give_back(page));
        Scrubbed { bytes: verified.bytes, damaged_pages, is_round: !verified.has_more }
    }

    /// Blocks found damaged since this was called last, the oldest first; of very many the latest.
    pub(crate) fn take_reports(&self) -> Vec<DamageReport> {
        self.reports.lock().expect("nothing panics with the reports locked").drain(..).collect()
    }

    /// Bytes of memory that are not used any more since they were found damaged.
    pub(crate) fn withheld_bytes(&self) -> u64 {
        self.withheld().len() as u64 * BLOCK_BYTES as u64
    }

    /// Gives withheld memory back.
    pub(crate) fn release_withheld(&self, pool: &Pool) {
        let withheld = std::mem::take(&mut *self.withheld());
        let mut lane = pool.store.lane();
        withheld.into_values().for_each(|withheld| lane.give_back(withheld.page));
    }

    /// The page of a block was found damaged by a reader of it: mends it, or says that it is lost.
    /// Not to be called while pinned or with a lane.
    pub(crate) fn mend_block(&self, map: &VolumeMap, block: u64) {
        let store = &map.pool.store;
        let page = {
            let pinned = store.pin();
            store.hold_to_mend(&pinned, map.entry(&pinned, block))
        };
        let Some(page) = page else { return };
        let is_intact = store.is_intact(&page, &mut [0; BLOCK_BYTES]);
        if !is_intact {
            self.mend(map, block, &page);
        }
        let unused = if is_intact { Some(page) } else { self.withhold(page, false) };
        if let Some(page) = unused {
            store.lane().give_back(page);
        }
    }

    /// Takes damaged pages out of all maps.
    fn replace_damaged(&self, pool: &Pool, maps: &[Arc<VolumeMap>], damaged: Vec<OwnedPageRef>) {
        let pages: HashMap<PageRef, OwnedPageRef> =
            damaged.into_iter().map(|page| (page.page_ref().name(), page)).collect();
        let for_each = |deal_with: &dyn Fn(&VolumeMap, u64, &OwnedPageRef)| {
            for map in maps {
                let mut from = 0;
                while let Some(leaf) = map.next_leaf(from) {
                    for (block, page) in blocks_of(map, leaf, &pages) {
                        deal_with(map, block, page);
                    }
                    from = leaf + 1;
                }
            }
        };
        // Maps that share a leaf may have copies that others lack: what none can mend is lost.
        for_each(&|map, block, page| {
            self.heal(map, block, page);
        });
        for_each(&|map, block, page| {
            if map.lose_if(block, |entry| entry.name() == page.page_ref().name()) {
                self.report(DamageReport { volume: map.name(), block, healed_from: None });
            }
        });
        let mut lane = pool.store.lane();
        for page in pages.into_values() {
            if let Some(page) = self.withhold(page, true) {
                lane.give_back(page);
            }
        }
    }

    /// Gives a block that names a damaged page the right contents, or says that they are lost to
    /// this volume.
    fn mend(&self, map: &VolumeMap, block: u64, page: &OwnedPageRef) {
        let names_page = |entry: PageRef| entry.name() == page.page_ref().name();
        // Without memory to say so the page stays, and reads of it fail as well.
        if !self.heal(map, block, page) && map.lose_own_if(block, names_page).unwrap_or(false) {
            self.report(DamageReport { volume: map.name(), block, healed_from: None });
        }
    }

    /// Gives a block that names a damaged page the right contents, and all that share its leaf.
    fn heal(&self, map: &VolumeMap, block: u64, page: &OwnedPageRef) -> bool {
        let copy = self.right_copy(map, block, page);
        let healed = copy.filter(|(_, contents)| self.heal_block(map, (block, page), contents));
        let healed_from = healed.map(|(place, _)| place);
        if healed_from.is_some() {
            self.report(DamageReport { volume: map.name(), block, healed_from });
        }
        healed_from.is_some()
    }

    /// The first copy of a block on stable storage that is what memory should have.
    fn right_copy(
        &self,
        map: &VolumeMap,
        block: u64,
        page: &OwnedPageRef,
    ) -> Option<(CopyPlace, Block)> {
        let (healer, store) = (self.healer.get()?, &map.pool.store);
        let damaged = DamagedBlock {
            volume_id: map.journaled_id(),
            image_base: map.image_base(),
            block,
            journaled_page: page.slot_number().filter(|_| store.is_journaled(page)),
        };
        CopyPlace::ALL.into_iter().find_map(|place| {
            let mut contents = [0; BLOCK_BYTES];
            let is_right =
                healer.copy_of(&damaged, place, &mut contents) && store.is_of_page(page, &contents);
            is_right.then_some((place, contents))
        })
    }

    /// Stores the right contents for a block that still names the page. Returns whether it does
    /// not any more. In a full pool it takes what no other purpose may take, then the memory of
    /// damaged pages: that a copy is lost is worse than that a damaged cell is used again.
    fn heal_block(&self, map: &VolumeMap, at: (u64, &OwnedPageRef), contents: &Block) -> bool {
        let heal = |purpose| heal_block_for(purpose, map, at, contents);
        let healed = heal(Purpose::Overwrite).or_else(|_| heal(Purpose::Removal)).or_else(|_| {
            self.release_withheld(&map.pool);
            map.pool.store.reclaim();
            heal(Purpose::Removal)
        });
        healed.unwrap_or(false)
    }

    fn report(&self, report: DamageReport) {
        let mut reports = self.reports.lock().expect("nothing panics with the reports locked");
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
        self.withheld.lock().expect("nothing panics with the pages locked")
    }

    fn turn(&self) -> MutexGuard<'_, u32> {
        self.next_slab.lock().expect("a panic in the walk ends the process")
    }
}

/// The blocks of a leaf that name one of these pages.
fn blocks_of<'pages>(
    map: &VolumeMap,
    leaf: u64,
    pages: &'pages HashMap<PageRef, OwnedPageRef>,
) -> Vec<(u64, &'pages OwnedPageRef)> {
    let store = &map.pool.store;
    let pinned = store.pin();
    let Some(node) = map.tree.find_leaf(store, &pinned, leaf) else { return Vec::new() };
    let named = |index: usize| {
        let page = pages.get(&store.entry(&pinned, node, index).name())?;
        Some((leaf * LEAF_BLOCKS + index as u64, page))
    };
    (0..NODE_ENTRY_COUNT).filter_map(named).collect()
}

fn heal_block_for(
    purpose: Purpose,
    map: &VolumeMap,
    (block, page): (u64, &OwnedPageRef),
    contents: &Block,
) -> Result<bool, NoSpace> {
    let store = &map.pool.store;
    let mut writer = store.writer();
    map.update_if(&mut writer, block, |writer, now| {
        if now.name() != page.page_ref().name() {
            return Ok(None);
        }
        let purpose = || map.purpose(purpose);
        let page = writer.lane.store_page(&writer.pinned, contents, map.policy(), purpose)?;
        Ok(Some(Update::Page(page)))
    })
}
