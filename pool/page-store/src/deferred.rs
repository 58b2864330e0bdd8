//! Deferred reclamation of nodes that no map refers to any more, and of their children.
//!
//! A node whose last reference is released holds references itself, up to millions in a tree. The
//! thread that releases a node does not wait for them: the node is queued here, and freed in the
//! background in steps (`PageStore::reclaim_deferred`). The queue is private memory: a kill leaves
//! references without a holder, which the leak check finds.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use sync::atomic::{AtomicUsize, Ordering};
use sync::{Epoch, Grace};

use crate::layout::Slot;

/// Queue of trees and nodes to be freed.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    queues: Mutex<Queues>,
    /// Number of queued items, readable without the lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queues {
    /// References to roots that readers may still use until an epoch has passed.
    roots: VecDeque<(Epoch, Slot)>,
    /// Nodes whose last references the queue holds. It grows by the children of one node at a time,
    /// the last of which is freed first: a tree adds three nodes' worth at most.
    nodes: Vec<Slot>,
}

impl Deferred {
    /// Queues the last reference to a node that has children.
    pub(crate) fn push_node(&self, node: Slot) {
        self.lock().nodes.push(node);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Queues a reference to a tree that was unpublished.
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

    /// Takes a root that no reader can use any more.
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
