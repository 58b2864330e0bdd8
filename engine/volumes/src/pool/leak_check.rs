//! Leak check after an unclean end, while all volumes are served.
//!
//! At opening the pool counts all references ([`LeakCounts`]). Every node of that moment must be
//! visited exactly once, however many maps share it, together with its entries. Therefore each node
//! is visited before it is first changed or copied: by the walk of the maps from their roots, or by
//! the writer that precedes it. References that remain at the end are leaked.
//!
//! The blocks of a volume are counted by position, not by node: once for each leaf of its map.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

use page_store::{LeakCounts, NODE_ENTRY_COUNT, NodeRef, PageRef, PageStore, Parent};
use sync::Pinned;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// State of the leak check, if one is in progress.
#[derive(Debug)]
pub(crate) struct LeakCheck {
    /// True while maps are being visited.
    is_visiting: AtomicBool,
    search: Mutex<Option<Search>>,
    /// Number of entries that referred to missing pages.
    damaged: AtomicU64,
}

#[derive(Debug)]
struct Search {
    counts: LeakCounts,
    /// Volumes whose blocks are not completely counted, by id, with the leaves already counted.
    counted: HashMap<u64, HashSet<u64>>,
}

/// Position of a leaf in the map of a volume.
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

    /// Returns whether nodes must be visited before they are changed.
    #[inline]
    pub(crate) fn is_visiting(&self) -> bool {
        // Relaxed: it is set before volumes exist, and cleared when all nodes have been visited.
        self.is_visiting.load(Ordering::Relaxed)
    }

    /// Number of entries found so far that referred to missing pages. Any but zero is a defect.
    pub(crate) fn damaged(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Adds a map that existed when the pool was opened, before it is served.
    pub(crate) fn admit(&self, store: &PageStore, pinned: &Pinned<'_>, root_word: usize) {
        let root = Parent::Root(root_word);
        let is_damaged = store.has_damaged_child(pinned, root);
        self.note_damage(u64::from(is_damaged));
        if let (Some(search), Some(node)) = (&mut *self.lock(), store.child(pinned, root)) {
            self.note_damage(u64::from(search.counts.visit_root(node).is_err()));
        }
    }

    /// Starts to count the blocks of a volume.
    pub(crate) fn begin_counting(&self, volume_id: u64) {
        if let Some(search) = &mut *self.lock() {
            search.counted.insert(volume_id, HashSet::new());
        }
    }

    /// Ends the count of a volume's blocks, when the walk has reached the end of its map.
    pub(crate) fn end_counting(&self, volume_id: u64) {
        if let Some(search) = &mut *self.lock() {
            search.counted.remove(&volume_id);
        }
    }

    /// Visits a leaf once, and passes its entries to `count` if the volume's blocks are being
    /// counted. The caller excludes other writers of the entries, or is the walk.
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

    /// Visits an inner node once.
    pub(crate) fn visit_inner(&self, store: &PageStore, pinned: &Pinned<'_>, node: NodeRef) {
        if let Some(search) = &mut *self.lock()
            && search.counts.awaits_visit(node)
        {
            self.note_damage(store.visit_inner(&mut search.counts, pinned, node));
        }
    }

    /// Ends the visits and returns the remaining references, which are leaked. Returns `None` if
    /// any map is damaged.
    pub(crate) fn end_visiting(&self) -> Option<LeakCounts> {
        let search = self.lock().take();
        self.is_visiting.store(false, Ordering::Relaxed);
        // Nodes that cannot be read were not visited and are not leaked: rather keep too much.
        search.map(|search| search.counts).filter(|_| self.damaged() == 0)
    }

    /// Counts parts of maps that could not be read, and so not visited.
    pub(crate) fn note_damage(&self, count: u64) {
        self.damaged.fetch_add(count, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Search>> {
        self.search.lock().expect("nothing panics with the search locked")
    }
}
