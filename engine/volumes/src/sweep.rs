//! The search for leaks after an unclean end, while everything is served.
//!
//! The pool counts all references that it held when it was opened ([`Excess`]). Everything that a
//! node named at that moment must be shown to it, once, however many maps share the node. So each
//! node is shown before it is first changed or copied: by the sweep as it walks the maps from their
//! roots, or by the writer that comes before it. What is left over in the end is leaked.
//!
//! What a volume's blocks hold is counted by place, not by node: once for each leaf of its map.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

use page_store::{Excess, NODE_ENTRY_COUNT, NodeRef, PageStore, Parent};
use sync::Pinned;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::volume::Volume;

/// The search, or that there is none.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// Maps are still being shown.
    is_showing: AtomicBool,
    search: Mutex<Option<Search>>,
    /// Entries that named pages which were not there.
    damaged: AtomicU64,
}

#[derive(Debug)]
struct Search {
    excess: Excess,
    /// Volumes whose blocks have not all been counted, by id, with the leaves that have been.
    counted: HashMap<u64, HashSet<u64>>,
}

impl Sweep {
    pub(crate) fn new(excess: Option<Excess>) -> Self {
        Self {
            is_showing: AtomicBool::new(excess.is_some()),
            search: Mutex::new(excess.map(|excess| Search { excess, counted: HashMap::new() })),
            damaged: AtomicU64::new(0),
        }
    }

    /// Entries found so far that named pages which were not there. Not zero is a defect.
    pub(crate) fn damaged(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Tells of a map that was there when the pool was opened, before it is served.
    pub(crate) fn admit(&self, store: &PageStore, pinned: &Pinned<'_>, root_word: usize) {
        let root = Parent::Root(root_word);
        let is_damaged = store.has_damaged_child(pinned, root);
        self.note_damage(u64::from(is_damaged));
        if let (Some(search), Some(node)) = (&mut *self.lock(), store.child(pinned, root)) {
            self.note_damage(u64::from(search.excess.see_root(node).is_err()));
        }
    }

    /// The blocks of this volume are to be counted.
    pub(crate) fn begin_counting(&self, volume_id: u64) {
        if let Some(search) = &mut *self.lock() {
            search.counted.insert(volume_id, HashSet::new());
        }
    }

    /// The walk has come to the end of a volume's map.
    pub(crate) fn end_counting(&self, volume_id: u64) {
        if let Some(search) = &mut *self.lock() {
            search.counted.remove(&volume_id);
        }
    }

    /// Shows a leaf that is about to be changed, or left for a copy, unless it has been. The caller
    /// keeps other writers of the entry away.
    #[inline]
    pub(crate) fn before_change(
        &self,
        volume: &Volume,
        pinned: &Pinned<'_>,
        leaf: u64,
        node: NodeRef,
    ) {
        // Relaxed: it was set before the volumes were there, and ends when all has been shown.
        if self.is_showing.load(Ordering::Relaxed) {
            self.show_leaf(volume, pinned, leaf, node);
        }
    }

    /// The same for an inner node.
    #[inline]
    pub(crate) fn before_inner_change(
        &self,
        store: &PageStore,
        pinned: &Pinned<'_>,
        parent: Parent,
    ) {
        if let Parent::Node(node, _) = parent
            && self.is_showing.load(Ordering::Relaxed)
        {
            self.show_inner(store, pinned, node);
        }
    }

    /// Shows what is in a leaf's place, once, and counts it among what its volume holds.
    pub(crate) fn show_leaf(&self, volume: &Volume, pinned: &Pinned<'_>, leaf: u64, node: NodeRef) {
        let store = &volume.shared.store;
        let mut guard = self.lock();
        let counted = guard.as_mut().and_then(|search| search.counted.get_mut(&volume.id()));
        if counted.is_some_and(|counted| counted.insert(leaf)) {
            for index in 0..NODE_ENTRY_COUNT {
                volume.counts.note_found(store.entry(pinned, node, index));
            }
        }
        self.show_pages(&mut guard, store, pinned, node);
    }

    /// Shows an inner node, once.
    pub(crate) fn show_inner(&self, store: &PageStore, pinned: &Pinned<'_>, node: NodeRef) {
        if let Some(search) = &mut *self.lock()
            && search.excess.awaits(node)
        {
            self.note_damage(search.excess.show_inner(store, pinned, node));
        }
    }

    /// All maps have been shown: hands over what is left, which is leaked. Nothing, if some of the
    /// maps are damaged.
    pub(crate) fn end_showing(&self) -> Option<Excess> {
        let search = self.lock().take();
        self.is_showing.store(false, Ordering::Relaxed);
        // What was not shown because it cannot be read is not leaked: better to keep too much.
        search.map(|search| search.excess).filter(|_| self.damaged() == 0)
    }

    /// Something of the maps could not be read, so it could not be shown either.
    pub(crate) fn note_damage(&self, count: u64) {
        self.damaged.fetch_add(count, Ordering::Relaxed);
    }

    fn show_pages(
        &self,
        search: &mut Option<Search>,
        store: &PageStore,
        pinned: &Pinned<'_>,
        node: NodeRef,
    ) {
        if let Some(search) = search
            && search.excess.awaits(node)
        {
            self.note_damage(search.excess.show_leaf(store, pinned, node));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Search>> {
        self.search.lock().expect("nobody panics with the search locked")
    }
}
