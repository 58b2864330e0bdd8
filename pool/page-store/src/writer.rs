//! State that a thread holds while it changes a map.

use sync::Pinned;

use crate::lane::Lane;
use crate::store::PageStore;

/// A lane and a pin. The pin is taken after the lane, and released before it.
#[derive(Debug)]
pub struct Writer<'store> {
    pub pinned: Pinned<'store>,
    pub lane: Lane<'store>,
}

impl PageStore {
    /// Takes a lane, like [`PageStore::lane`], and pins. Must not be called while pinned.
    #[inline(always)]
    pub fn writer(&self) -> Writer<'_> {
        let lane = self.lane();
        Writer { pinned: self.pin(), lane }
    }
}

impl<'store> Writer<'store> {
    /// Releases only the pin.
    pub fn unpin(self) -> Lane<'store> {
        self.lane
    }
}
