//! Changes of claims as copies of maps come and go, and maps grow.

use page_store::{ClaimRefused, LinkError, NODE_ENTRY_COUNT, PageRef};
use sync::atomic::Ordering;

use crate::blocks::LEAF_BLOCKS;
use crate::map::claims::{Stage, block_slots, is_page, node_slots, signed};
use crate::map::table;
use crate::map::volume_map::VolumeMap;

impl VolumeMap {
    /// Creates a leaf if it is missing.
    pub(crate) fn make_one_leaf(&self, leaf: u64) -> Result<(), LinkError> {
        let store = &self.pool.store;
        let mut writer = store.writer();
        let _held = self.hold_own_block(&mut writer, leaf * LEAF_BLOCKS)?;
        self.make_leaf(&mut writer, leaf).map(drop)
    }

    /// Records the claims of a new volume, for which all memory is claimed already.
    pub(crate) fn note_claimed(&self) {
        let nodes = 2 * node_slots(self.size_bytes());
        self.claims.node_slots.store(nodes, Ordering::Relaxed);
    }

    /// Reserves slots for copies of the nodes of a map of this size, which were claimed until now.
    pub(crate) fn keep_for_nodes(&self, size_bytes: u64) {
        self.keep_slots(node_slots(size_bytes));
    }

    fn keep_slots(&self, slots: u64) {
        let before = self.claims.kept_slots.swap(slots, Ordering::Relaxed);
        self.pool.store.keep_for_nodes(signed(slots) - signed(before));
    }

    /// Releases the claim for nodes.
    pub(crate) fn release_nodes(&self) {
        self.pool.store.release_claim(self.claims.node_slots.swap(0, Ordering::Relaxed));
    }

    /// Restores the claims of a volume from an earlier run, before it is served.
    pub(crate) fn claim_again(&self) {
        if self.claims.is_claimed() {
            let store = &self.pool.store;
            store.claim_again(block_slots(self.size_bytes()));
            self.keep_for_nodes(self.size_bytes());
            let (own, shared) = self.count_pages(|entry| store.is_unshared_raw(entry));
            store.note_owned(signed(own));
            self.claims.shared_pages.store(shared, Ordering::Relaxed);
            let may_change = shared > 0 || table::absent_image(store).is_some();
            self.claims.is_unsure.store(may_change, Ordering::Relaxed);
        }
    }

    /// Releases the claims of blocks that the volume has lost.
    pub(crate) fn release_blocks(&self, lost_bytes: u64) {
        if self.claims.is_claimed() && lost_bytes > 0 {
            self.keep_for_nodes(self.size_bytes());
            self.pool.store.release_claim(block_slots(lost_bytes));
        }
    }

    /// Makes a volume guaranteed, whose pages are unshared from here on and which claimed this many
    /// slots meanwhile. The caller holds all block locks.
    pub(crate) fn enter_guaranteed(&self, claimed_slots: u64) {
        let store = &self.pool.store;
        store.note_owned(signed(self.own_pages()));
        store.claim_again(block_slots(self.size_bytes()));
        self.keep_for_nodes(self.size_bytes());
        store.release_claim(claimed_slots);
        self.claims.set_stage(Stage::Guaranteed);
    }

    /// Releases all claims. The caller holds all block locks, or the volume is deleted and its
    /// blocks are counted.
    pub(crate) fn leave_guaranteed(&self) {
        if !self.claims.is_guaranteed() {
            return;
        }
        let store = &self.pool.store;
        let own = self.own_pages();
        self.claims.set_stage(Stage::Thin);
        self.claims.shared_pages.store(0, Ordering::Relaxed);
        store.note_owned(-signed(own));
        store.release_claim(block_slots(self.size_bytes()));
        self.release_nodes();
        self.keep_slots(0);
    }

    /// Claims the unshared pages of the volume once more, because a copy of its map is about to
    /// share them, and memory for copies of its nodes. The caller holds all block locks, and the
    /// leak check has ended, so blocks are counted. Fails if the claims do not fit.
    pub(crate) fn share_pages(&self) -> Result<(), ClaimRefused> {
        if !self.claims.is_guaranteed() {
            return Ok(());
        }
        let store = &self.pool.store;
        let own = self.own_pages();
        let nodes = match self.claims.node_slots.load(Ordering::Relaxed) {
            0 => node_slots(self.size_bytes()),
            _ => 0,
        };
        store.claim_now(own + nodes)?;
        self.claims.node_slots.fetch_add(nodes, Ordering::Relaxed);
        self.claims.shared_pages.fetch_add(own, Ordering::Relaxed);
        store.note_owned(-signed(own));
        store.release_claim(own);
        if self.counts.absent.sum() > 0 {
            self.claims.is_unsure.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Records that all pages are shared after the volume has taken over the map of a copy. The
    /// caller has called [`VolumeMap::share_pages`] under the same locks.
    pub(super) fn note_all_shared(&self) {
        if self.claims.is_guaranteed() {
            self.claims.shared_pages.store(0, Ordering::Relaxed);
            self.claims.shared_pages.store(self.own_pages(), Ordering::Relaxed);
            // The copy may have pages in the dense form, which do not occupy claimed slots.
            self.claims.is_unsure.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the sharing of pages and nodes, as no copy is left. The caller holds all block locks.
    pub(crate) fn end_sharing(&self) {
        self.set_may_share(false);
        if self.claims.is_guaranteed() {
            match self.claims.is_unsure.load(Ordering::Relaxed) {
                true => self.recount_pages(),
                false => {
                    let shared = self.claims.shared_pages.swap(0, Ordering::Relaxed);
                    self.pool.store.note_owned(signed(shared));
                }
            }
            self.release_nodes();
        }
    }

    /// Clears the count of absent blocks, as none is left, and counts the pages that copies of the
    /// map have fetched. The caller holds all block locks.
    pub(crate) fn end_absence(&self) {
        if !self.claims.is_guaranteed() {
            return self.counts.forget_absent();
        }
        // Counts blocks fetched by others as shared, so that the number of unshared pages stays
        // correct.
        let absent = self.counts.absent.sum();
        self.claims.shared_pages.fetch_add(absent, Ordering::Relaxed);
        self.counts.forget_absent();
        if absent > 0 || self.claims.is_unsure.load(Ordering::Relaxed) {
            self.recount_pages();
        }
    }

    /// Returns the number of pages that no copy of the map shares. The caller holds all block
    /// locks, or the volume is deleted.
    pub(crate) fn own_pages(&self) -> u64 {
        let shared = self.claims.shared_pages.load(Ordering::Relaxed);
        self.counts.pages().saturating_sub(shared)
    }

    /// Counts the unshared pages again. The caller holds all block locks.
    fn recount_pages(&self) {
        let store = &self.pool.store;
        let before = self.own_pages();
        let (own, _) = self.count_pages(|entry| store.is_unshared_raw(entry));
        let shared = &self.claims.shared_pages;
        shared.store(0, Ordering::Relaxed);
        shared.store(self.own_pages().saturating_sub(own), Ordering::Relaxed);
        store.note_owned(signed(self.own_pages()) - signed(before));
        // Pages still counted as shared may be dense, or shared only between copies.
        self.claims.is_unsure.store(self.may_share(), Ordering::Relaxed);
    }

    /// Counts the pages in unshared leaves for which `is_counted` returns true, and all other
    /// pages.
    pub(crate) fn count_pages(&self, is_counted: impl Fn(PageRef) -> bool) -> (u64, u64) {
        let store = &self.pool.store;
        let (mut counted, mut others, mut from) = (0, 0, 0);
        loop {
            let pinned = store.pin();
            let next = self.tree.next_leaf(store, &pinned, from);
            let Some((leaf, node)) = next else { return (counted, others) };
            let is_own = self.has_leaf_alone(&pinned, leaf);
            for index in 0..NODE_ENTRY_COUNT {
                let entry = store.entry(&pinned, node, index);
                if is_page(entry) {
                    let is_counted = is_own && is_counted(entry);
                    *(if is_counted { &mut counted } else { &mut others }) += 1;
                }
            }
            from = leaf + 1;
        }
    }
}
