//! What the volumes of one pool share.

use page_store::PageStore;

use crate::locks::BlockLocks;
use crate::sweep::Sweep;

/// The pool, the block locks, and the search for leaks while it runs.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: PageStore,
    pub(crate) locks: BlockLocks,
    pub(crate) sweep: Sweep,
}
