//! Trees on their way out: nodes that nobody names any more, and what they name.
//!
//! A node whose last reference is given back owns references itself. A tree may have millions of
//! them, so nobody who gives a node back waits for them: the node comes here, and whoever has time
//! takes it apart, a piece at a time. All of this is private memory: a kill leaves references that
//! nobody holds, which the search for leaks finds.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use sync::atomic::{AtomicUsize, Ordering};
use sync::{Epoch, Grace};

use crate::core::Core;
use crate::layout::{NODE_ENTRY_COUNT, Slot};
use crate::page_ref::{NodeRef, PageRef};
use crate::store::PageStore;

/// How many references ahead a slot's word is asked for, and then what it leads to.
const FAR_AHEAD: usize = 16;
const NEAR_AHEAD: usize = 8;

/// What is to be taken apart.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    inner: Mutex<Inner>,
    /// How much there is, without the lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inner {
    /// References to roots that readers may still follow until an epoch has passed.
    waiting: VecDeque<(Epoch, Slot)>,
    /// Nodes whose last references are ours. Grows by the children of one node at a time, the last
    /// of which goes first: a tree adds three nodes' worth at most.
    dead: Vec<Slot>,
}

impl Deferred {
    pub(crate) fn push(&self, node: Slot) {
        self.lock().dead.push(node);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn wait(&self, root: Slot, grace: &Grace) {
        let epoch = grace.retire_epoch();
        self.lock().waiting.push_back((epoch, root));
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn take_dead(&self) -> Option<Slot> {
        let taken = self.lock().dead.pop()?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(taken)
    }

    /// A root that no reader can follow any more.
    fn take_passed(&self, grace: &Grace) -> Option<Slot> {
        let mut inner = self.lock();
        let &(epoch, root) = inner.waiting.front()?;
        if epoch > grace.advance() {
            return None;
        }
        inner.waiting.pop_front();
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(root)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nobody panics with the deferred nodes locked")
    }
}

impl PageStore {
    /// Gives a reference to a tree back that no map holds any more, once its readers are gone.
    /// Waits for nothing and needs no lane: [`PageStore::reclaim_deferred`] does the work.
    pub fn retire_tree(&self, root: NodeRef) {
        self.core.deferred.wait(root.0, &self.core.memory.grace);
    }

    /// Trees and nodes that wait to be taken apart.
    pub fn deferred_count(&self) -> usize {
        self.core.deferred.count()
    }

    /// Takes up to `node_count` nodes apart. Returns whether there are more. Not to be called while
    /// pinned or with a lane.
    pub fn reclaim_deferred(&self, node_count: usize) -> bool {
        for _ in 0..node_count {
            if self.core.deferred.count() == 0 {
                return false;
            }
            // A lane for each node: others may want it meanwhile. Taken first, so that who has all
            // lanes in turn knows that what was counted as dying before is gone.
            let lane = self.lane();
            if let Some(node) = self.core.deferred.take_dead() {
                self.core.drop_children(node, lane.index());
            } else if let Some(root) = self.core.deferred.take_passed(&self.core.memory.grace) {
                self.core.release(root, lane.index());
            } else {
                break;
            }
        }
        self.core.deferred.count() > 0
    }
}

impl Core {
    /// Whether a node that nobody else has names something.
    pub(crate) fn has_children(&self, node: Slot) -> bool {
        self.words_of(NodeRef(node)).any(|entry| entry.slot().is_some())
    }

    /// Gives back what a node names that nobody else has, and then the node. The caller holds the
    /// lane of this index.
    fn drop_children(&self, node: Slot, lane: usize) {
        let there = |at: &Slot| self.memory.layout.has(*at);
        let children: Vec<Slot> =
            self.words_of(NodeRef(node)).filter_map(PageRef::slot).filter(there).collect();
        {
            // Pinned, so that the index's buckets that are asked for stay what they are.
            let _pinned = self.memory.grace.pin();
            for (index, &child) in children.iter().enumerate() {
                if let Some(&far) = children.get(index + FAR_AHEAD) {
                    self.prefetch_word(far);
                }
                if let Some(&near) = children.get(index + NEAR_AHEAD) {
                    self.prefetch_hint(near);
                }
                self.release(child, lane);
            }
        }
        self.release_alone(node, 1, lane);
    }

    /// What the words of a node say, one by one.
    pub(crate) fn words_of(&self, node: NodeRef) -> impl Iterator<Item = PageRef> {
        (0..NODE_ENTRY_COUNT).map(move |index| {
            let word = self.memory.region.word(self.node_word_offset(node, index));
            PageRef(word.load(Ordering::Acquire))
        })
    }
}
