//! State that a thread holds while it changes a map.

use sync::Pinned;

use crate::lane::Lane;
use crate::store::PageStore;

/// A lane and a pin. The pin, which comes after the lane, goes before it.
#[derive(Debug)]
pub struct Writer<'store> {
    pub pinned: Pinned<'store>,
    pub lane: Lane<'store>,
}

impl PageStore {
    /// Takes a lane, as [`PageStore::lane`] does, and pins. Not to be called while pinned.
    #[inline(always)]
    pub fn writer(&self) -> Writer<'_> {
        let lane = self.lane();
        Writer { pinned: self.pin(), lane }
    }
}

impl<'store> Writer<'store> {
    /// Lets go of the pin alone.
    pub fn unpin(self) -> Lane<'store> {
        self.lane
    }
}
