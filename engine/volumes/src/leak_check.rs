//! The leak check after an unclean end, while everything is served.
//!
//! The pool counts all references that it held when it was opened ([`LeakCounts`]). Every node of
//! that moment must be visited once, however many maps share it, and with it all that it names. So
//! each node is visited before it is first changed or copied: by the walk of the maps from their
//! roots, or by the writer that comes before it. What is left over in the end is leaked.
//!
//! What a volume's blocks hold is counted by place, not by node: once for each leaf of its map.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

use page_store::{LeakCounts, NODE_ENTRY_COUNT, NodeRef, PageStore, Parent};
use sync::Pinned;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::volume::Volume;

/// The leak check, or that there is none.
#[derive(Debug)]
pub(crate) struct LeakCheck {
    /// Maps are still being visited.
    is_visiting: AtomicBool,
    search: Mutex<Option<Search>>,
    /// Entries that named pages which were not there.
    damaged: AtomicU64,
}

#[derive(Debug)]
struct Search {
    leak_counts: LeakCounts,
    /// Volumes whose blocks have not all been counted, by id, with the leaves that have been.
    counted: HashMap<u64, HashSet<u64>>,
}

impl LeakCheck {
    pub(crate) fn new(leak_counts: Option<LeakCounts>) -> Self {
        Self {
            is_visiting: AtomicBool::new(leak_counts.is_some()),
            search: Mutex::new(
                leak_counts.map(|leak_counts| Search { leak_counts, counted: HashMap::new() }),
            ),
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
            self.note_damage(u64::from(search.leak_counts.visit_root(node).is_err()));
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

    /// Visits a leaf that is about to be changed, or left for a copy, unless it was. The caller
    /// keeps other writers of the entry away.
    #[inline]
    pub(crate) fn before_change(
        &self,
        volume: &Volume,
        pinned: &Pinned<'_>,
        leaf: u64,
        node: NodeRef,
    ) {
        // Relaxed: it was set before the volumes were there, and ends after all visits.
        if self.is_visiting.load(Ordering::Relaxed) {
            self.visit_leaf(volume, pinned, leaf, node);
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
            && self.is_visiting.load(Ordering::Relaxed)
        {
            self.visit_inner(store, pinned, node);
        }
    }

    /// Visits what is in a leaf's place, once, and counts it among what its volume holds.
    pub(crate) fn visit_leaf(
        &self,
        volume: &Volume,
        pinned: &Pinned<'_>,
        leaf: u64,
        node: NodeRef,
    ) {
        let store = &volume.shared.store;
        let mut guard = self.lock();
        let counted = guard.as_mut().and_then(|search| search.counted.get_mut(&volume.id()));
        if counted.is_some_and(|counted| counted.insert(leaf)) {
            for index in 0..NODE_ENTRY_COUNT {
                volume.counts.note_found(store.entry(pinned, node, index));
            }
        }
        self.visit_pages(&mut guard, store, pinned, node);
    }

    /// Visits an inner node, once.
    pub(crate) fn visit_inner(&self, store: &PageStore, pinned: &Pinned<'_>, node: NodeRef) {
        if let Some(search) = &mut *self.lock()
            && search.leak_counts.awaits_visit(node)
        {
            self.note_damage(store.visit_inner(&mut search.leak_counts, pinned, node));
        }
    }

    /// All maps were visited: hands over what is left, which is leaked. Nothing, if some of the
    /// maps are damaged.
    pub(crate) fn end_visits(&self) -> Option<LeakCounts> {
        let search = self.lock().take();
        self.is_visiting.store(false, Ordering::Relaxed);
        // What was not visited because it cannot be read is not leaked: keep too much.
        search.map(|search| search.leak_counts).filter(|_| self.damaged() == 0)
    }

    /// Something of the maps could not be read, so it could not be visited either.
    pub(crate) fn note_damage(&self, count: u64) {
        self.damaged.fetch_add(count, Ordering::Relaxed);
    }

    fn visit_pages(
        &self,
        search: &mut Option<Search>,
        store: &PageStore,
        pinned: &Pinned<'_>,
        node: NodeRef,
    ) {
        if let Some(search) = search
            && search.leak_counts.awaits_visit(node)
        {
            self.note_damage(store.visit_leaf(&mut search.leak_counts, pinned, node));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Search>> {
        self.search.lock().expect("nobody panics with the search locked")
    }
}
