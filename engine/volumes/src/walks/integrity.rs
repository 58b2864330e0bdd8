//! Damaged contents: detected by a scrub of the pool's memory or by a reader, and healed from
//! stable storage if it has a copy.
//!
//! ```text
//!  scrub ─▶ damaged pages ─▶ walk over all maps ─┬─▶ stable storage has a copy ─▶ a new page
//!                                                └─▶ no copy ─▶ the entry is marked as damaged
//! ```
//! The memory of a damaged page is withheld from use until the next opening of the pool.

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

/// Maximum number of reports kept for the owner. The oldest are dropped.
const REPORTS_MAX: usize = 256;

/// Maximum number of withheld pages. Beyond that, their memory is used again.
const WITHHELD_MAX: usize = 1024;

/// Number of slabs scanned in one step.
const SLABS_A_STEP: u32 = 4;

/// Kinds of stable storage that may have copies of damaged contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyPlace {
    /// The journal has the page.
    Journal,
    /// The image that is the volume's base has the block.
    Image,
}

impl CopyPlace {
    /// All places in search order: the contents in the journal are newer.
    pub const ALL: [Self; 2] = [Self::Journal, Self::Image];
}

/// A block whose page is damaged in memory.
#[derive(Clone, Copy, Debug)]
pub struct DamagedBlock {
    /// Id under which the journal stores the block: for a snapshot, the id of its volume.
    pub volume_id: u64,
    /// Image that contains all blocks that are not dirty towards images.
    pub image_base: Option<ImageBase>,
    pub block: u64,
    /// Position of the page in memory ([`CapturedPage::number`]), if the journal contains the
    /// current page.
    ///
    /// [`CapturedPage::number`]: crate::CapturedPage::number
    pub journaled_page: Option<u64>,
}

/// Source of copies of volumes' contents.
pub trait Healer: Debug + Send + Sync {
    /// Reads the contents that this place has for a block, and returns whether it has any. The
    /// caller compares them with the fingerprint in memory, so they may be damaged or obsolete. The
    /// caller holds no lock and no pin of the engine.
    fn copy_of(&self, damaged: &DamagedBlock, place: CopyPlace, into: &mut Block) -> bool;
}

/// A block whose contents in memory were damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamageReport {
    pub volume: String,
    pub block: u64,
    /// Place of the intact contents. `None`: they are lost.
    pub healed_from: Option<CopyPlace>,
}

/// Result of a step of the scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Number of bytes read.
    pub bytes: u64,
    /// Number of damaged pages.
    pub damaged_pages: u64,
    /// The scrub has reached the end of the memory, and begins again.
    pub is_round: bool,
}

/// State of the scrub and of damaged pages of one pool.
#[derive(Debug, Default)]
pub(crate) struct Integrity {
    healer: OnceLock<Arc<dyn Healer>>,
    /// Position of the scrub. Locked by the thread that scrubs.
    next_slab: Mutex<u32>,
    reports: Mutex<VecDeque<DamageReport>>,
    /// Withheld pages by reference. Each has one count that is never released.
    withheld: Mutex<HashMap<PageRef, Withheld>>,
}

/// A damaged page whose memory is withheld from use.
#[derive(Debug)]
struct Withheld {
    page: OwnedPageRef,
    /// It was removed from all maps. A reader removes it from one entry only.
    is_in_no_map: bool,
}

impl Integrity {
    /// Sets the source of copies. Must be called once.
    pub(crate) fn set_healer(&self, healer: Arc<dyn Healer>) {
        assert!(self.healer.set(healer).is_ok(), "one healer serves a pool");
    }

    /// Verifies a part of the pool's memory, and removes damaged pages from all maps.
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

    /// Returns the blocks found damaged since the last call, oldest first. If there are too many,
    /// only the latest are returned.
    pub(crate) fn take_reports(&self) -> Vec<DamageReport> {
        self.reports.lock().expect("nothing panics with the reports locked").drain(..).collect()
    }

    /// Bytes of memory withheld because they were found damaged.
    pub(crate) fn withheld_bytes(&self) -> u64 {
        self.withheld().len() as u64 * BLOCK_BYTES as u64
    }

    /// Releases withheld memory.
    pub(crate) fn release_withheld(&self, pool: &Pool) {
        let withheld = std::mem::take(&mut *self.withheld());
        let mut lane = pool.store.lane();
        withheld.into_values().for_each(|withheld| lane.give_back(withheld.page));
    }

    /// Heals a block whose page a reader found damaged, or marks it as lost. The caller must hold
    /// neither a pin nor a lane.
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

    /// Removes damaged pages from all maps.
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
        // Maps that share a leaf may have copies that others lack. A block is lost if none can heal
        // it.
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

    /// Heals a block that refers to a damaged page, or marks it as lost for this volume.
    fn mend(&self, map: &VolumeMap, block: u64, page: &OwnedPageRef) {
        let names_page = |entry: PageRef| entry.name() == page.page_ref().name();
        // If there is no memory to mark it, the page stays, and reads of it fail as well.
        if !self.heal(map, block, page) && map.lose_own_if(block, names_page).unwrap_or(false) {
            self.report(DamageReport { volume: map.name(), block, healed_from: None });
        }
    }

    /// Heals a block that refers to a damaged page, for all maps that share its leaf.
    fn heal(&self, map: &VolumeMap, block: u64, page: &OwnedPageRef) -> bool {
        let copy = self.right_copy(map, block, page);
        let healed = copy.filter(|(_, contents)| self.heal_block(map, (block, page), contents));
        let healed_from = healed.map(|(place, _)| place);
        if healed_from.is_some() {
            self.report(DamageReport { volume: map.name(), block, healed_from });
        }
        healed_from.is_some()
    }

    /// Returns the first copy of a block on stable storage that matches the fingerprint in memory.
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

    /// Stores the intact contents for a block that still refers to the page. Returns whether it no
    /// longer does. In a full pool it uses the memory reserved for removals, then the withheld
    /// memory, because the loss of a copy is worse than the reuse of a damaged cell.
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

    /// Withholds the page's memory from use. Returns the reference if it is not needed for that:
    /// the page is withheld already, or too many are.
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

    /// Returns whether nothing is left to do for the page.
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

/// Returns the blocks of a leaf that refer to one of these pages.
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
