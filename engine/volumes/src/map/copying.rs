//! Copying, replacement and removal of whole maps.

use page_store::NoSpace;
use sync::Pinned;

use crate::map::volume_map::{Place, VolumeMap};

impl VolumeMap {
    /// Makes this map a copy of another map, which shares all of its nodes. Fails if the reference
    /// count of the root is at its maximum. The caller holds all block locks.
    pub(crate) fn become_copy_of(&self, source: &Self, pinned: &Pinned<'_>) -> Result<(), NoSpace> {
        let store = &self.pool.store;
        let root = source.tree.root(store, pinned);
        if let Some(root) = root {
            store.share_node(pinned, root)?;
        }
        store.set_root(self.tree.root_word, root);
        source.leaves.share_all();
        self.take_over(source);
        self.set_generation_of(source);
        // At the same instant as the map: an image that is being recorded as the base clears dirty
        // bits only afterwards.
        let base = source.image_base();
        match self.place {
            Place::Listed(record) => {
                record.set_base(store, base);
                self.inherit_trimming(source);
                record.set_counts(store, &self.counts);
            }
            Place::Frozen(_) => {
                self.frozen_base.set(base).expect("a copy is made once");
            }
        }
        Ok(())
    }

    /// Replaces the map of a volume by the map of a snapshot. The caller holds all block locks, and
    /// has called [`VolumeMap::share_pages`].
    pub(crate) fn revert_to(&self, snapshot: &Self, pinned: &Pinned<'_>) -> Result<(), NoSpace> {
        let store = &self.pool.store;
        if let Some(root) = snapshot.tree.root(store, pinned) {
            store.share_node(pinned, root)?;
        }
        let old = self.tree.root(store, pinned);
        self.inherit_trimming(snapshot);
        self.record().begin_reverting(store, snapshot.record());
        self.record().end_reverting(store);
        self.leaves.forget_all();
        self.take_over(snapshot);
        self.begin_generation();
        self.note_all_shared();
        self.set_anchored(false);
        self.dirty_leaves.set_first(snapshot.leaf_count());
        if let Some(old) = old {
            store.retire_tree(old);
        }
        Ok(())
    }

    /// Takes over the counts of another volume, whose map it shares now. The caller holds all block
    /// locks.
    fn take_over(&self, source: &Self) {
        self.set_may_share(true);
        source.set_may_share(true);
        self.counts.become_equal_to(&source.counts);
        if self.counts.untried.sum() > 0 {
            self.note_untried_first(source.leaf_count());
        }
    }

    /// Copies the trimming state of the source: blocks that a resize left past its end are in this
    /// map too, and are discarded before it grows.
    fn inherit_trimming(&self, source: &Self) {
        let store = &self.pool.store;
        if source.record().is_trimming(store) {
            self.record().begin_trimming(store);
        }
    }

    /// Frees the record of a deleted volume, and its map.
    pub(crate) fn retire(&self) {
        let store = &self.pool.store;
        let root = self.tree.root(store, &store.pin());
        self.counts.leave_totals();
        match self.place {
            Place::Listed(record) => {
                record.end_deleting(store);
                self.pool.lock_free_records().insert(record.number());
            }
            Place::Frozen(place) => store.set_root(place.root_word(), None),
        }
        if let Some(root) = root {
            store.retire_tree(root);
        }
    }
}
