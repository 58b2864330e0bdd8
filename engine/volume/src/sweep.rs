//! The search for leaks after an unclean end, while everything is served.
//!
//! The pool counts all references that it held when it was opened ([`Excess`]). Every entry that
//! a map held at that moment must be shown to it, once. So each leaf is shown before it is first
//! changed: by the sweep as it walks the maps, or by the writer that comes before it. What is left
//! over in the end is leaked.

use std::sync::{Mutex, MutexGuard};

use page_store::{Excess, NODE_ENTRY_COUNT, NodeRef, PageStore};
use sync::Pinned;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::counts::Counts;

/// The search, or that there is none.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// Maps are still being shown.
    is_showing: AtomicBool,
    excess: Mutex<Option<Excess>>,
    /// Entries that named pages which were not there.
    damaged: AtomicU64,
}

impl Sweep {
    pub(crate) fn new(excess: Option<Excess>) -> Self {
        Self {
            is_showing: AtomicBool::new(excess.is_some()),
            excess: Mutex::new(excess),
            damaged: AtomicU64::new(0),
        }
    }

    /// Entries found so far that named pages which were not there. Not zero is a defect.
    pub(crate) fn damaged(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Shows a leaf that is about to be changed, unless it has been. The caller keeps other
    /// writers of the entry away.
    #[inline]
    pub(crate) fn before_change(
        &self,
        store: &PageStore,
        counts: &Counts,
        pinned: &Pinned<'_>,
        leaf: NodeRef,
    ) {
        // Relaxed: it was set before the volumes were there, and ends when all has been shown.
        if self.is_showing.load(Ordering::Relaxed) {
            self.show_leaf(store, counts, pinned, leaf);
        }
    }

    /// Shows a leaf and what it names, once, and counts it among what its volume holds.
    pub(crate) fn show_leaf(
        &self,
        store: &PageStore,
        counts: &Counts,
        pinned: &Pinned<'_>,
        leaf: NodeRef,
    ) {
        let mut guard = self.lock();
        let Some(excess) = guard.as_mut().filter(|excess| excess.had_node(leaf)) else { return };
        self.note(excess.see_node(leaf).is_ok());
        for index in 0..NODE_ENTRY_COUNT {
            let entry = store.entry(pinned, leaf, index);
            self.note(excess.see_entry(entry).is_ok());
            counts.note_found(entry);
        }
        excess.forget_node(leaf);
    }

    /// Shows an inner node, once.
    pub(crate) fn show_inner(&self, node: NodeRef) {
        let mut guard = self.lock();
        if let Some(excess) = guard.as_mut().filter(|excess| excess.had_node(node)) {
            self.note(excess.see_node(node).is_ok());
            excess.forget_node(node);
        }
    }

    /// All maps have been shown: hands over what is left, which is leaked. Nothing, if some of the
    /// maps are damaged.
    pub(crate) fn end_showing(&self) -> Option<Excess> {
        let excess = self.lock().take();
        self.is_showing.store(false, Ordering::Relaxed);
        // What was not shown because it cannot be read is not leaked: better to keep too much.
        excess.filter(|_| self.damaged() == 0)
    }

    /// Something of the maps could not be read, so it could not be shown either.
    pub(crate) fn note_damage(&self, count: u64) {
        self.damaged.fetch_add(count, Ordering::Relaxed);
    }

    fn note(&self, is_sound: bool) {
        if !is_sound {
            self.damaged.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Excess>> {
        self.excess.lock().expect("nobody panics with the excess locked")
    }
}
