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

use page_store::{LeakCounts, NODE_ENTRY_COUNT, NodeRef, PageRef, PageStore, Parent};
use sync::Pinned;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The search, or that there is none.
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
    counts: LeakCounts,
    /// Volumes whose blocks have not all been counted, by id, with the leaves that have been.
    counted: HashMap<u64, HashSet<u64>>,
}

/// A leaf in its place in the map of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafPlace {
    pub(crate) volume_id: u64,
    pub(crate) leaf: u64,
    pub(crate) node: NodeRef,
}

impl LeakCheck {
    pub(crate) fn new(counts: Option<LeakCounts>) -> Self {
        Self {
            is_visiting: AtomicBool::new(counts.is_some()),
            search: Mutex::new(counts.map(|counts| Search { counts, counted: HashMap::new() })),
            damaged: AtomicU64::new(0),
        }
    }

    /// Returns whether nodes have to be visited before they are changed.
    #[inline]
    pub(crate) fn is_visiting(&self) -> bool {
        // Relaxed: it was set before the volumes were there, and ends when all has been visited.
        self.is_visiting.load(Ordering::Relaxed)
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
            self.note_damage(u64::from(search.counts.visit_root(node).is_err()));
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

    /// Visits what is in a leaf's place, once, and hands the entries to `count` if they are to be
    /// counted among what the volume holds. The caller keeps other writers of the entries away, or
    /// is the walk.
    pub(crate) fn visit_leaf(
        &self,
        store: &PageStore,
        pinned: &Pinned<'_>,
        place: LeafPlace,
        mut count: impl FnMut(PageRef),
    ) {
        let LeafPlace { volume_id, leaf, node } = place;
        let mut guard = self.lock();
        let Some(search) = &mut *guard else { return };
        let counted = search.counted.get_mut(&volume_id);
        if counted.is_some_and(|counted| counted.insert(leaf)) {
            (0..NODE_ENTRY_COUNT).for_each(|index| count(store.entry(pinned, node, index)));
        }
        if search.counts.awaits_visit(node) {
            self.note_damage(store.visit_leaf(&mut search.counts, pinned, node));
        }
    }

    /// Visits an inner node, once.
    pub(crate) fn visit_inner(&self, store: &PageStore, pinned: &Pinned<'_>, node: NodeRef) {
        if let Some(search) = &mut *self.lock()
            && search.counts.awaits_visit(node)
        {
            self.note_damage(store.visit_inner(&mut search.counts, pinned, node));
        }
    }

    /// All maps have been visited: hands over what is left, which is leaked. Nothing, if some of
    /// the maps are damaged.
    pub(crate) fn end_visiting(&self) -> Option<LeakCounts> {
        let search = self.lock().take();
        self.is_visiting.store(false, Ordering::Relaxed);
        // What was not visited because it cannot be read is not leaked: better to keep too much.
        search.map(|search| search.counts).filter(|_| self.damaged() == 0)
    }

    /// Something of the maps could not be read, so it could not be visited either.
    pub(crate) fn note_damage(&self, count: u64) {
        self.damaged.fetch_add(count, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Search>> {
        self.search.lock().expect("nothing panics with the search locked")
    }
}
