//! Claims as copies of maps come and go, and maps grow: what is to be kept free for a volume.

use page_store::{ClaimRefused, LinkError, NODE_ENTRY_COUNT, PageRef};
use sync::atomic::Ordering;

use crate::blocks::LEAF_BLOCKS;
use crate::map::claims::{Stage, block_slots, is_page, node_slots, signed};
use crate::map::table;
use crate::map::volume_map::VolumeMap;

impl VolumeMap {
    /// Makes a leaf, if it is not there.
    pub(crate) fn make_one_leaf(&self, leaf: u64) -> Result<(), LinkError> {
        let store = &self.pool.store;
        let mut writer = store.writer();
        let _held = self.hold_own_block(&mut writer, leaf * LEAF_BLOCKS)?;
        self.make_leaf(&mut writer, leaf).map(drop)
    }

    /// The volume is new, and was claimed for as a whole.
    pub(crate) fn note_claimed(&self) {
        let nodes = 2 * node_slots(self.size_bytes());
        self.claims.node_slots.store(nodes, Ordering::Relaxed);
    }

    /// Keeps slots for copies of the nodes of a map of this size, which were claimed until now.
    pub(crate) fn keep_for_nodes(&self, size_bytes: u64) {
        self.keep_slots(node_slots(size_bytes));
    }

    fn keep_slots(&self, slots: u64) {
        let before = self.claims.kept_slots.swap(slots, Ordering::Relaxed);
        self.pool.store.keep_for_nodes(signed(slots) - signed(before));
    }

    /// Nothing more is needed for nodes.
    pub(crate) fn release_nodes(&self) {
        self.pool.store.release_claim(self.claims.node_slots.swap(0, Ordering::Relaxed));
    }

    /// Claims what the volume was promised in an earlier run, before it is served.
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

    /// Gives up what was claimed for blocks that the volume has lost.
    pub(crate) fn release_blocks(&self, lost_bytes: u64) {
        if self.claims.is_claimed() && lost_bytes > 0 {
            self.keep_for_nodes(self.size_bytes());
            self.pool.store.release_claim(block_slots(lost_bytes));
        }
    }

    /// The pages of the volume are its own from here on, and so many slots were claimed meanwhile.
    /// The caller holds every block.
    pub(crate) fn enter_guaranteed(&self, claimed_slots: u64) {
        let store = &self.pool.store;
        store.note_owned(signed(self.own_pages()));
        store.claim_again(block_slots(self.size_bytes()));
        self.keep_for_nodes(self.size_bytes());
        store.release_claim(claimed_slots);
        self.claims.set_stage(Stage::Guaranteed);
    }

    /// Gives the claim up. The caller holds every block, or the volume is gone, and its blocks are
    /// counted.
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

    /// Claims the pages that the volume has alone once more, because a copy of its map is about to
    /// share them, and what copies of its nodes will need. The caller holds every block, and blocks
    /// are counted: no leak is being searched for. Refused when that does not fit.
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

    /// The volume has taken over the map of a copy, which has all of its pages and nodes too. The
    /// caller has called [`VolumeMap::share_pages`] under the same blocks.
    pub(super) fn note_all_shared(&self) {
        if self.claims.is_guaranteed() {
            self.claims.shared_pages.store(0, Ordering::Relaxed);
            self.claims.shared_pages.store(self.own_pages(), Ordering::Relaxed);
            // The copy may have had pages made dense, which are none of the slots claimed.
            self.claims.is_unsure.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the sharing of pages and nodes, as no copy is left. The caller holds every block.
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

    /// Nothing is absent any more: what copies of the map brought in is known now. The caller holds
    /// every block.
    pub(crate) fn end_absence(&self) {
        if !self.claims.is_guaranteed() {
            return self.counts.forget_absent();
        }
        // With those counted that others have brought in, the count of its own stays right.
        let absent = self.counts.absent.sum();
        self.claims.shared_pages.fetch_add(absent, Ordering::Relaxed);
        self.counts.forget_absent();
        if absent > 0 || self.claims.is_unsure.load(Ordering::Relaxed) {
            self.recount_pages();
        }
    }

    /// Pages of the volume that no copy of its map has too. The caller holds every block, or the
    /// volume is gone.
    pub(crate) fn own_pages(&self) -> u64 {
        let shared = self.claims.shared_pages.load(Ordering::Relaxed);
        self.counts.pages().saturating_sub(shared)
    }

    /// Finds out anew which pages the volume has alone. The caller holds every block.
    fn recount_pages(&self) {
        let store = &self.pool.store;
        let before = self.own_pages();
        let (own, _) = self.count_pages(|entry| store.is_unshared_raw(entry));
        let shared = &self.claims.shared_pages;
        shared.store(0, Ordering::Relaxed);
        shared.store(self.own_pages().saturating_sub(own), Ordering::Relaxed);
        store.note_owned(signed(self.own_pages()) - signed(before));
        // What is shared still may be dense, or shared by copies alone.
        self.claims.is_unsure.store(self.may_share(), Ordering::Relaxed);
    }

    /// Counts pages, in leaves of the volume's own, of which `is_counted` says yes, and all others.
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
