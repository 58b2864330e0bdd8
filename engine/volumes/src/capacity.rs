//! Capacity classes: whether a volume may meet a full pool.
//!
//! A volume of class `guaranteed` has claimed a slot for each of its blocks, whatever it holds now,
//! and its map is made as a whole when it is created. It stores blocks as they are, for itself
//! alone: a page that others share would need memory to be overwritten that nobody has claimed.
//! Patterns take none, and keep their claim. Empty leaves stay.
//!
//! The pool knows how many of the claimed slots hold pages (`page_store::claims`): counted here,
//! as entries change. Pages that snapshots and clones share are not the volume's alone; whoever
//! makes such a copy claims them again ([`Volume::share_pages`]). Frozen copies claim nothing: they
//! give way to writers (`frozen`), and what the volume has in common with them counts as its own.
//! Copies of nodes leave slots behind that hold nodes alone, so as many as the map has are kept
//! besides, always.

use std::cell::Cell;

use page_store::{ClaimRefused, Lane, LinkError, NODE_ENTRY_COUNT, PageRef, PageRefKind, Purpose};

use block_device::{Action, BLOCK_BYTES, ByteRange, DeviceError, DeviceErrorKind};
use codec::Block;
use sync::Pinned;
use sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::engine::Engine;
use crate::error::{VolumeError, VolumeErrorKind};
use crate::map::{INNER_LEVELS, LEAF_BLOCKS, index_in_leaf, leaf_of};
use crate::own::refusal;
use crate::read::EntryCursor;
use crate::spec::CapacityClass;
use crate::table::{self, Shape};
use crate::volume::Volume;

/// Slots of nodes come in slabs: so many more may be wanted for the last of them.
const NODE_SLOTS_SPARE: u64 = 64;

const THIN: u8 = 0;
const GUARANTEED: u8 = 1;
/// Writes are those of class `guaranteed` already; what was written before is being stored anew.
const BECOMING: u8 = 2;

/// What a volume has claimed.
#[derive(Debug)]
pub(crate) struct Capacity {
    /// Changed with every block held.
    stage: AtomicU8,
    /// Pages of the volume that copies of its map have too, as far as is known.
    shared_pages: AtomicU64,
    /// Slots claimed for nodes: of a map that is being made, or copies that snapshots make needful.
    node_slots: AtomicU64,
    /// Slots kept for copies of nodes that frozen copies make needful.
    kept_slots: AtomicU64,
    /// Copies of the map may have brought absent pages into leaves that they share with the volume:
    /// `shared_pages` lacks these, which keeps more memory free than need be.
    is_unsure: AtomicBool,
}

impl Capacity {
    pub(crate) fn new(class: CapacityClass) -> Self {
        let stage = match class {
            CapacityClass::Thin => THIN,
            CapacityClass::Guaranteed => GUARANTEED,
        };
        Self {
            stage: AtomicU8::new(stage),
            shared_pages: AtomicU64::new(0),
            node_slots: AtomicU64::new(0),
            kept_slots: AtomicU64::new(0),
            is_unsure: AtomicBool::new(false),
        }
    }

    #[inline]
    fn stage(&self) -> u8 {
        self.stage.load(Ordering::Relaxed)
    }

    /// Whether blocks are stored as they are, in slots that were claimed.
    #[inline]
    pub(crate) fn is_claimed(&self) -> bool {
        self.stage() != THIN
    }
}

/// Slots that a map of so many bytes takes, made as a whole.
fn node_slots(size_bytes: u64) -> u64 {
    let mut level = size_bytes.div_ceil(LEAF_BLOCKS * BLOCK_BYTES as u64);
    let mut sum = level;
    for _ in 0..INNER_LEVELS {
        level = level.div_ceil(NODE_ENTRY_COUNT as u64);
        sum += level;
    }
    sum + NODE_SLOTS_SPARE
}

fn blocks(size_bytes: u64) -> u64 {
    size_bytes / BLOCK_BYTES as u64
}

fn is_page(entry: PageRef) -> bool {
    entry.kind() == PageRefKind::Page
}

impl Engine {
    /// Changes what happens to a volume when the pool is full. To `guaranteed`: refused unless its
    /// full size fits beside what is claimed already; what it holds is stored anew, as it is.
    pub fn set_capacity(&self, name: &str, class: CapacityClass) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let volume = self.changeable(name)?;
        if volume.capacity_class() == class {
            return Ok(());
        }
        // Blocks of the volume are counted from then on.
        self.end_leak_check();
        match class {
            CapacityClass::Thin => volume.become_thin(),
            CapacityClass::Guaranteed => volume.become_guaranteed()?,
        }
        self.note_table_change();
        Ok(())
    }

    /// Claims what a new volume may come to need. Refused when that does not fit.
    pub(crate) fn claim_for(&self, name: &str, size_bytes: u64) -> Result<(), VolumeError> {
        let slots = blocks(size_bytes) + 2 * node_slots(size_bytes);
        self.shared.claim(slots).map_err(|refused| no_space(name, refused))
    }

    /// Makes the whole map of a volume that was claimed for, if it is of class `guaranteed`.
    pub(crate) fn complete_map(&self, volume: &Volume) -> Result<(), VolumeError> {
        if volume.capacity.is_claimed() {
            volume.make_leaves(0, volume.size_bytes())?;
            volume.keep_for_nodes(node_slots(volume.size_bytes()));
            volume.release_nodes();
        }
        Ok(())
    }

    /// Claims what a volume needs to become larger, and makes the rest of its map.
    pub(crate) fn claim_growth(&self, volume: &Volume, to_bytes: u64) -> Result<(), VolumeError> {
        if !volume.capacity.is_claimed() {
            return Ok(());
        }
        let from_bytes = volume.size_bytes();
        let more_bytes = to_bytes - from_bytes;
        let store = &self.shared.store;
        let slots = blocks(more_bytes) + 2 * node_slots(more_bytes);
        self.shared.claim(slots).map_err(|refused| no_space(&volume.name(), refused))?;
        let made = volume.make_leaves(from_bytes, to_bytes);
        match made {
            Ok(()) => volume.keep_for_nodes(node_slots(to_bytes)),
            Err(_) => store.release_claim(blocks(more_bytes)),
        }
        store.release_claim(2 * node_slots(more_bytes));
        made
    }
}

impl Volume {
    /// What happens to the volume when the pool is full.
    pub fn capacity_class(&self) -> CapacityClass {
        match self.capacity.stage() {
            GUARANTEED => CapacityClass::Guaranteed,
            _ => CapacityClass::Thin,
        }
    }

    /// What a slot is wanted for by this volume.
    #[inline]
    pub(crate) fn purpose(&self, purpose: Purpose) -> Purpose {
        if self.capacity.is_claimed() { Purpose::Claimed } else { purpose }
    }

    /// Makes an attempt, and more if it finds no memory. Not to be called while pinned or with a
    /// lane.
    pub(crate) fn find_space(
        &self,
        attempt: impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        match self.capacity.is_claimed() {
            true => self.shared.find_claimed_space(attempt),
            false => self.shared.find_space(|| false, attempt),
        }
    }

    /// The same for an attempt to write, which says in `at` which block it has come to.
    pub(crate) fn find_space_to_write(
        &self,
        at: &Cell<u64>,
        attempt: impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        match self.capacity.is_claimed() {
            true => self.shared.find_claimed_space(attempt),
            false => self.shared.find_space(|| self.holds(at.get()), attempt),
        }
    }

    /// Whether a block holds something.
    fn holds(&self, block: u64) -> bool {
        let pinned = self.shared.store.pin();
        !self.is_gone() && !EntryCursor::new(self).entry(&pinned, block).is_hole()
    }

    /// Counts what an exchanged entry changes, whose reference is not given back yet.
    #[inline]
    pub(crate) fn note_change(&self, lane: &Lane<'_>, old: PageRef, new: PageRef) {
        self.counts.change(lane.index(), old, new);
        if self.capacity.stage() == GUARANTEED {
            self.note_pages(lane.index(), old, new);
        }
    }

    fn note_pages(&self, lane: usize, old: PageRef, new: PageRef) {
        let is_own = !is_page(old) || !self.was_shared(old);
        let change = i64::from(is_page(new)) - i64::from(is_page(old) && is_own);
        if change != 0 {
            self.shared.store.note_owned_in(lane, change);
        }
    }

    /// A page that was noted as the volume's own is in a leaf that copies of its map share.
    pub(crate) fn note_shared_page(&self, lane: &Lane<'_>) {
        if self.capacity.stage() == GUARANTEED {
            self.capacity.shared_pages.fetch_add(1, Ordering::Relaxed);
            self.shared.store.note_owned_in(lane.index(), -1);
        }
    }

    /// Finds out anew which pages the volume has alone. The caller holds every block.
    fn recount_pages(&self) {
        let store = &self.shared.store;
        let before = self.own_pages();
        let (own, _) = self.count_pages(|entry| store.is_unshared_raw(entry));
        let shared = &self.capacity.shared_pages;
        shared.store(0, Ordering::Relaxed);
        shared.store(self.own_pages().saturating_sub(own), Ordering::Relaxed);
        let signed = |pages: u64| i64::try_from(pages).expect("pages fit a pool");
        store.note_owned(signed(self.own_pages()) - signed(before));
        self.capacity.is_unsure.store(false, Ordering::Relaxed);
    }

    /// Nothing is absent any more: what copies of the map brought in is known now. The caller holds
    /// every block.
    pub(crate) fn end_absence(&self) {
        if self.capacity.stage() != GUARANTEED {
            return self.counts.forget_absent();
        }
        // With those counted that others have brought in, the count of its own stays right.
        let absent = self.counts.absent.sum();
        self.capacity.shared_pages.fetch_add(absent, Ordering::Relaxed);
        self.counts.forget_absent();
        if absent > 0 || self.capacity.is_unsure.load(Ordering::Relaxed) {
            self.recount_pages();
        }
    }

    /// Whether a page that the volume gives up was one of those that it shares.
    fn was_shared(&self, old: PageRef) -> bool {
        if !self.sharing.is_possible() || !self.shared.store.is_shared(old) {
            return false;
        }
        // A copy that is about to go may be all that has it too. Taken for the volume's own, it
        // stays claimed, which keeps more free than need be until the last copy is gone.
        if !self.shared.frozen.is_empty() || self.shared.store.deferred_count() > 0 {
            return false;
        }
        let one_less = |shared: u64| shared.checked_sub(1);
        let shared = &self.capacity.shared_pages;
        shared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    /// Whether a leaf stays when nothing is in it.
    pub(crate) fn keeps_leaf(&self, leaf: u64) -> bool {
        let start = leaf.saturating_mul(LEAF_BLOCKS * BLOCK_BYTES as u64);
        self.capacity.is_claimed() && start < self.size_bytes()
    }

    /// Makes the leaves of a range of bytes.
    pub(crate) fn make_leaves(&self, from_bytes: u64, to_bytes: u64) -> Result<(), VolumeError> {
        let leaf_bytes = LEAF_BLOCKS * BLOCK_BYTES as u64;
        for leaf in from_bytes / leaf_bytes..to_bytes.div_ceil(leaf_bytes) {
            let range = ByteRange::new(leaf * leaf_bytes, 0);
            let fail = |error| DeviceError::new(refusal(error), Action::Write, range);
            let made = self.find_space(|| self.make_one_leaf(leaf).map_err(fail));
            made.map_err(|error| self.failure(error))?;
        }
        Ok(())
    }

    fn make_one_leaf(&self, leaf: u64) -> Result<(), LinkError> {
        let mut lane = self.shared.store.lane();
        let pinned = self.shared.store.pin();
        let _held = self.hold_own_block(&mut lane, &pinned, leaf * LEAF_BLOCKS)?;
        self.make_leaf(&mut lane, &pinned, leaf).map(drop)
    }

    /// The volume is new, and was claimed for as a whole.
    pub(crate) fn note_claimed(&self) {
        let nodes = 2 * node_slots(self.size_bytes());
        self.capacity.node_slots.store(nodes, Ordering::Relaxed);
    }

    /// Keeps so many slots for copies of nodes, which were claimed until now.
    fn keep_for_nodes(&self, slots: u64) {
        let before = self.capacity.kept_slots.swap(slots, Ordering::Relaxed);
        let signed = |slots: u64| i64::try_from(slots).expect("nodes fit a pool");
        self.shared.store.keep_for_nodes(signed(slots) - signed(before));
    }

    /// Nothing more is needed for nodes.
    fn release_nodes(&self) {
        self.shared.store.release_claim(self.capacity.node_slots.swap(0, Ordering::Relaxed));
    }

    /// Claims what the volume was promised in an earlier run, before it is served.
    pub(crate) fn claim_again(&self) {
        if self.capacity.is_claimed() {
            let store = &self.shared.store;
            store.claim_again(blocks(self.size_bytes()));
            self.keep_for_nodes(node_slots(self.size_bytes()));
            let (own, shared) = self.count_pages(|entry| store.is_unshared_raw(entry));
            store.note_owned(i64::try_from(own).expect("pages fit a pool"));
            self.capacity.shared_pages.store(shared, Ordering::Relaxed);
            let may_change = shared > 0 || table::absent_image(store).is_some();
            self.capacity.is_unsure.store(may_change, Ordering::Relaxed);
        }
    }

    /// Gives the claim up. The volume is gone, and its blocks are counted.
    pub(crate) fn give_up_claim(&self) {
        if self.capacity.stage() == GUARANTEED {
            self.leave_guaranteed();
        }
    }

    /// Claims what further blocks may come to need. Not to be called while pinned or with a lane.
    pub(crate) fn claim_blocks(&self, more_bytes: u64) -> Result<(), VolumeError> {
        if !self.capacity.is_claimed() || more_bytes == 0 {
            return Ok(());
        }
        let nodes = node_slots(more_bytes);
        let claimed = self.shared.claim(blocks(more_bytes) + nodes);
        claimed.map_err(|refused| no_space(&self.name(), refused))?;
        self.keep_for_nodes(node_slots(self.size_bytes() + more_bytes));
        self.shared.store.release_claim(nodes);
        Ok(())
    }

    /// Gives up what was claimed for blocks that the volume has lost.
    pub(crate) fn release_blocks(&self, lost_bytes: u64) {
        if self.capacity.is_claimed() && lost_bytes > 0 {
            self.keep_for_nodes(node_slots(self.size_bytes()));
            self.shared.store.release_claim(blocks(lost_bytes));
        }
    }

    /// Claims the pages that the volume has alone once more, because a copy of its map is about to
    /// share them, and what copies of its nodes will need. The caller holds every block, and blocks
    /// are counted: no leak is being searched for. Refused when that does not fit.
    pub(crate) fn share_pages(&self) -> Result<(), ClaimRefused> {
        if self.capacity.stage() != GUARANTEED {
            return Ok(());
        }
        let store = &self.shared.store;
        let own = self.own_pages();
        let nodes = match self.capacity.node_slots.load(Ordering::Relaxed) {
            0 => node_slots(self.size_bytes()),
            _ => 0,
        };
        store.claim_now(own + nodes)?;
        self.capacity.node_slots.fetch_add(nodes, Ordering::Relaxed);
        self.capacity.shared_pages.fetch_add(own, Ordering::Relaxed);
        store.note_owned(-i64::try_from(own).expect("pages fit a pool"));
        store.release_claim(own);
        if self.counts.absent.sum() > 0 {
            self.capacity.is_unsure.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The volume has taken over the map of a copy, which has all of its pages and nodes too. The
    /// caller has called [`Volume::share_pages`] under the same blocks.
    pub(crate) fn note_all_shared(&self) {
        if self.capacity.stage() == GUARANTEED {
            self.capacity.shared_pages.store(0, Ordering::Relaxed);
            self.capacity.shared_pages.store(self.own_pages(), Ordering::Relaxed);
        }
    }

    /// No copy shares pages or nodes with the volume any more. The caller holds every block.
    pub(crate) fn unshare_pages(&self) {
        if self.capacity.stage() == GUARANTEED {
            match self.capacity.is_unsure.load(Ordering::Relaxed) {
                true => self.recount_pages(),
                false => {
                    let shared = self.capacity.shared_pages.swap(0, Ordering::Relaxed);
                    let shared = i64::try_from(shared).expect("pages fit a pool");
                    self.shared.store.note_owned(shared);
                }
            }
            self.release_nodes();
        }
    }

    /// Pages of the volume that no copy of its map has too. The caller holds every block, or the
    /// volume is gone.
    pub(crate) fn own_pages(&self) -> u64 {
        let shared = self.capacity.shared_pages.load(Ordering::Relaxed);
        self.counts.pages().saturating_sub(shared)
    }

    fn become_thin(&self) {
        self.record_class(CapacityClass::Thin);
        let _held = self.shared.locks.lock_all();
        self.leave_guaranteed();
    }

    fn leave_guaranteed(&self) {
        let store = &self.shared.store;
        let own = self.own_pages();
        self.capacity.stage.store(THIN, Ordering::Relaxed);
        self.capacity.shared_pages.store(0, Ordering::Relaxed);
        store.note_owned(-i64::try_from(own).expect("pages fit a pool"));
        store.release_claim(blocks(self.size_bytes()));
        self.release_nodes();
        self.keep_for_nodes(0);
    }

    fn become_guaranteed(&self) -> Result<(), VolumeError> {
        let store = &self.shared.store;
        let size_bytes = self.size_bytes();
        // Slots that the volume has already.
        let (there, _) = self.count_pages(|entry| store.is_raw_of_one(entry));
        let slots = blocks(size_bytes).saturating_sub(there) + 2 * node_slots(size_bytes);
        self.shared.claim(slots).map_err(|refused| no_space(&self.name(), refused))?;
        {
            let _held = self.shared.locks.lock_all();
            self.capacity.stage.store(BECOMING, Ordering::Relaxed);
        }
        let stored = self.make_leaves(0, size_bytes).and_then(|()| self.store_all_alone());
        if let Err(error) = stored {
            let _held = self.shared.locks.lock_all();
            self.capacity.stage.store(THIN, Ordering::Relaxed);
            store.release_claim(slots);
            return Err(error);
        }
        self.record_class(CapacityClass::Guaranteed);
        let _held = self.shared.locks.lock_all();
        store.note_owned(i64::try_from(self.own_pages()).expect("pages fit a pool"));
        store.claim_again(blocks(size_bytes));
        self.keep_for_nodes(node_slots(size_bytes));
        store.release_claim(slots);
        self.capacity.stage.store(GUARANTEED, Ordering::Relaxed);
        Ok(())
    }

    fn record_class(&self, capacity: CapacityClass) {
        let shape = Shape { capacity, ..self.shape() };
        self.record.set_shape(&self.shared.store, shape);
    }

    /// Stores every page of the volume as it is, in a slot that nobody shares.
    fn store_all_alone(&self) -> Result<(), VolumeError> {
        let store = &self.shared.store;
        let mut from = 0;
        loop {
            let (leaf, blocks) = {
                let pinned = store.pin();
                let Some((leaf, node)) = self.map.next_leaf(store, &pinned, from) else {
                    return Ok(());
                };
                let is_todo = |&index: &usize| {
                    let entry = store.entry(&pinned, node, index);
                    is_page(entry) && !store.is_unshared_raw(entry)
                };
                let todo = (0..NODE_ENTRY_COUNT).filter(is_todo);
                (leaf, todo.map(|index| leaf * LEAF_BLOCKS + index as u64).collect::<Vec<_>>())
            };
            for block in blocks {
                let range = ByteRange::new(block * BLOCK_BYTES as u64, BLOCK_BYTES as u64);
                let fail = |kind| DeviceError::new(kind, Action::Write, range);
                let stored = self.find_space(|| self.store_alone(block).map_err(fail));
                stored.map_err(|error| self.failure(error))?;
            }
            from = leaf + 1;
        }
    }

    fn store_alone(&self, block: u64) -> Result<(), DeviceErrorKind> {
        let store = &self.shared.store;
        let mut lane = store.lane();
        let pinned = store.pin();
        let _held = self.hold_own_block(&mut lane, &pinned, block).map_err(refusal)?;
        let Some(node) = self.find_leaf(&pinned, leaf_of(block)) else { return Ok(()) };
        let index = index_in_leaf(block);
        let entry = store.entry(&pinned, node, index);
        let mut contents: Block = [0; BLOCK_BYTES];
        // A page that cannot be read stays: reads of it fail, and an overwrite mends it.
        if !is_page(entry)
            || store.is_unshared_raw(entry)
            || store.read_verified(&pinned, entry, &mut contents).is_err()
        {
            return Ok(());
        }
        let page = lane.store_page(&pinned, &contents, self.policy(), || Purpose::Claimed);
        let page = page.map_err(|_| DeviceErrorKind::NoSpace)?;
        self.shared.leak_check.before_change(self, &pinned, leaf_of(block), node);
        self.move_to(&mut lane, (node, index), page);
        Ok(())
    }

    /// Counts pages, in leaves of the volume's own, of which `is_counted` says yes, and all others.
    fn count_pages(&self, is_counted: impl Fn(PageRef) -> bool) -> (u64, u64) {
        let store = &self.shared.store;
        let (mut counted, mut others, mut from) = (0, 0, 0);
        loop {
            let pinned = store.pin();
            let next = self.map.next_leaf(store, &pinned, from);
            let Some((leaf, node)) = next else { return (counted, others) };
            let is_own = self.has_leaf_alone(&pinned, leaf);
            for index in 0..NODE_ENTRY_COUNT {
                let entry = store.entry(&pinned, node, index);
                if is_page(entry) {
                    let count =
                        if is_own && is_counted(entry) { &mut counted } else { &mut others };
                    *count += 1;
                }
            }
            from = leaf + 1;
        }
    }

    fn failure(&self, error: DeviceError) -> VolumeError {
        let kind = match error.kind {
            DeviceErrorKind::NoSpace => VolumeErrorKind::NoSpace,
            _ => VolumeErrorKind::Damaged,
        };
        VolumeError { source: Some(error.into()), ..VolumeError::new(kind, self.name()) }
    }
}

/// A claim that is refused, with the figures.
pub(crate) fn no_space(name: &str, refused: ClaimRefused) -> VolumeError {
    VolumeError { source: Some(refused.into()), ..VolumeError::new(VolumeErrorKind::NoSpace, name) }
}

impl Volume {
    /// Whether no copy of the map has the leaf too. The caller holds a block of it.
    pub(crate) fn has_leaf_alone(&self, pinned: &Pinned<'_>, leaf: u64) -> bool {
        !self.sharing.is_possible() || self.has_own_leaf(pinned, leaf)
    }
}
