//! Deferred reclaim: nodes that no map names any more, and what they name.
//!
//! A node whose last reference is given back owns references itself. A tree may have millions of
//! them, so the thread that gives a node back does not wait for them: the node comes here, and is
//! taken apart in the background, a piece at a time (`PageStore::reclaim_deferred`). All of this is
//! private memory: a kill leaves references that have no holder, which the leak check finds.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use sync::atomic::{AtomicUsize, Ordering};
use sync::{Epoch, Grace};

use crate::layout::Slot;

/// Maps that are to be taken apart.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    queues: Mutex<Queues>,
    /// How much there is, without the lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queues {
    /// References to roots that readers may still follow until an epoch has passed.
    roots: VecDeque<(Epoch, Slot)>,
    /// Nodes whose last references are ours. Grows by the children of one node at a time, the last
    /// of which goes first: a tree adds three nodes' worth at most.
    nodes: Vec<Slot>,
}

impl Deferred {
    /// The last reference to a node, which names something.
    pub(crate) fn push_node(&self, node: Slot) {
        self.lock().nodes.push(node);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// A reference to a tree that was unpublished.
    pub(crate) fn push_root(&self, root: Slot, grace: &Grace) {
        let epoch = grace.retire_epoch();
        self.lock().roots.push_back((epoch, root));
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn take_node(&self) -> Option<Slot> {
        let taken = self.lock().nodes.pop()?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(taken)
    }

    /// A root that no reader can follow any more.
    pub(crate) fn take_root(&self, grace: &Grace) -> Option<Slot> {
        let mut queues = self.lock();
        let &(epoch, root) = queues.roots.front()?;
        if epoch > grace.advance() {
            return None;
        }
        queues.roots.pop_front();
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(root)
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().expect("no thread panics with the queues locked")
    }
}
