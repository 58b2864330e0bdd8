//! The bytes of pages and nodes: the crate's unsafe code.

use region::Region;
use sync::Pinned;

use crate::layout::Slot;
use crate::store::Core;

/// A page's contents where they are stored.
#[derive(Clone, Copy, Debug)]
pub enum PageBytes<'seen> {
    /// One pattern, over and over.
    Fill(u32),
    /// The block itself.
    Raw(&'seen codec::Block),
    /// The block in LZ4's block format.
    Encoded(&'seen [u8]),
}

impl Core {
    /// The first `length` bytes of a live slot. Whoever pins has read the slot's name from a map
    /// under this pin, or holds a reference.
    pub(crate) fn slot_bytes<'seen>(
        &'seen self,
        _pinned: &'seen Pinned<'_>,
        at: Slot,
        length: usize,
    ) -> &'seen [u8] {
        // SAFETY:
        // - exclusive: the slot's count was not zero when its name was read, so its bytes are
        //   complete and nobody stores to them before the count has been zero for a grace period,
        //   which the pin holds up.
        unsafe { self.region.bytes(self.layout.slot(at), length) }
    }

    /// Stores the bytes of a slot that the caller's lane has taken and not published.
    pub(crate) fn fill_slot(&self, at: Slot, bytes: &[u8]) {
        // SAFETY:
        // - exclusive: the slot's count is zero and its grace period has passed; lanes take each
        //   free slot once (`SlabBook::debit`), and only the lane's holder calls this.
        unsafe { self.region.store_bytes(self.layout.slot(at), bytes) };
        self.region.store_fence();
    }

    /// Makes a node of holes of a slot that the caller's lane has taken and not published.
    pub(crate) fn zero_slot(&self, at: Slot) {
        let length = usize::try_from(at.class.shape().slot_bytes).expect("a slot fits memory");
        // SAFETY:
        // - exclusive: as in `fill_slot`.
        unsafe { self.region.zero_bytes(self.layout.slot(at), length) };
    }
}

/// Sets the first `length` bytes of a slab that the caller took from the free ones to zero.
pub(crate) fn zero_free_slab(region: &Region, slab_offset: u64, length: usize) {
    // SAFETY:
    // - exclusive: a free slab is taken once, and the grace period of its last use has passed.
    unsafe { region.zero_bytes(slab_offset, length) };
}
