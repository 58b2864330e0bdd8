//! Maps that begin as copies of others, become what a copy is, and go.

use page_store::NoSpace;
use sync::Pinned;

use crate::map::volume_map::{Place, VolumeMap};

impl VolumeMap {
    /// Becomes a copy of another map: shares all of its nodes. A root with as many references as
    /// can be counted cannot be shared. The caller holds every block.
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
        // At this instant, like the map: an image that is being noted as the base clears
        // dirty bits only afterwards.
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

    /// Gives a volume the map of a snapshot. The caller holds every block, and has called
    /// [`VolumeMap::share_pages`].
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

    /// Has the map of another volume from now on. The caller holds every block.
    fn take_over(&self, source: &Self) {
        self.set_may_share(true);
        source.set_may_share(true);
        self.counts.become_equal_to(&source.counts);
        if self.counts.untried.sum() > 0 {
            self.untried_leaves.set_first(source.leaf_count());
        }
    }

    /// What a resize of the other volume had to leave past its end is in this one's map too, and
    /// goes before it grows.
    fn inherit_trimming(&self, source: &Self) {
        let store = &self.pool.store;
        if source.record().is_trimming(store) {
            self.record().begin_trimming(store);
        }
    }

    /// Frees the place of a volume that is not used any more, and gives its map back.
    pub(crate) fn retire(&self) {
        let store = &self.pool.store;
        let root = self.tree.root(store, &store.pin());
        match self.place {
            Place::Listed(record) => record.end_deleting(store),
            Place::Frozen(place) => store.set_root(place.root_word(), None),
        }
        if let Some(root) = root {
            store.retire_tree(root);
        }
    }
}
