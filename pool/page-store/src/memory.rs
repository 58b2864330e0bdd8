//! The pool's memory: slots and slabs by name, and the crate's unsafe code.

use std::sync::Mutex;

use region::Region;
use sync::atomic::Ordering;
use sync::{Grace, Pinned, counted};

use crate::claims::Claims;
use crate::fingerprint::described_hint;
use crate::layout::{Class, Layout, Slot};
use crate::page_ref::OwnedPageRef;
use crate::slabs::{BookContext, SlabBook};
use crate::superblock::Superblock;
use crate::taking::Taking;

/// The region, where things lie in it, who looks at it, and what its slabs are used for.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) region: Region,
    pub(crate) layout: Layout,
    pub(crate) grace: Grace,
    pub(crate) book: SlabBook,
    pub(crate) claims: Claims,
    pub(crate) taking: Taking,
    pub(crate) superblock: Mutex<Superblock>,
}

/// What keeps a page's bytes as they are: a pin under which its name was read, or a reference.
pub(crate) trait Keeps {}

impl Keeps for Pinned<'_> {}
impl Keeps for OwnedPageRef {}

impl Memory {
    pub(crate) fn change_superblock(&self, change: impl FnOnce(&mut Superblock)) {
        let mut superblock = self.superblock.lock().expect("nobody panics with it locked");
        change(&mut superblock);
        superblock.save(&self.region, &self.layout);
    }

    /// The first `length` bytes of a live slot. Whoever pins has read the slot's name from a map
    /// under this pin, or holds a reference.
    pub(crate) fn slot_bytes<'seen>(
        &'seen self,
        _kept: &'seen impl Keeps,
        at: Slot,
        length: usize,
    ) -> &'seen [u8] {
        // SAFETY:
        // - exclusive: the slot's count was not zero when its name was read, so its bytes are
        //   complete and nobody stores to them before the count has been zero for a grace period,
        //   which a pin holds up and a reference keeps from beginning.
        unsafe { self.region.bytes(self.layout.slot(at), length) }
    }

    /// As `slot_bytes`, all of a slot of 4 KiB.
    #[inline]
    pub(crate) fn large_slot_bytes<'seen>(
        &'seen self,
        _kept: &'seen impl Keeps,
        at: Slot,
    ) -> &'seen codec::Block {
        let offset = self.layout.large_slot(at.slab, at.slot);
        // SAFETY:
        // - exclusive: as in `slot_bytes`.
        let bytes = unsafe { self.region.bytes(offset, codec::BLOCK_BYTES) };
        bytes.try_into().expect("a block was asked for")
    }

    /// Stores the bytes of a slot that the caller's lane has taken and not published.
    pub(crate) fn fill_slot(&self, at: Slot, bytes: &[u8]) {
        self.stream_slot(at, bytes);
        self.region.store_fence();
    }

    /// Begins to store the bytes of such a slot. A fence must follow before anybody is told of it,
    /// and before the lane gives the slot back.
    #[inline]
    pub(crate) fn stream_slot(&self, at: Slot, bytes: &[u8]) {
        // SAFETY:
        // - exclusive: the slot's count is zero and its grace period has passed; lanes take each
        //   free slot once (`SlabBook::debit`), and only the lane's holder calls this.
        unsafe { self.region.store_bytes(self.layout.slot(at), bytes) };
    }

    /// Makes a node of holes of a slot that the caller's lane has taken and not published.
    pub(crate) fn zero_slot(&self, at: Slot) {
        let length = usize::try_from(at.class.shape().slot_bytes).expect("a slot fits memory");
        // SAFETY:
        // - exclusive: as in `fill_slot`.
        unsafe { self.region.zero_bytes(self.layout.slot(at), length) };
    }

    /// Sets the first `length` bytes of a slab that the caller took from the free ones to zero.
    pub(crate) fn zero_free_slab(&self, slab: u32, length: usize) {
        // SAFETY:
        // - exclusive: a free slab is taken once, and the grace period of its last use has passed.
        unsafe { self.region.zero_bytes(self.layout.slab(slab), length) };
    }

    pub(crate) fn book_context(&self) -> BookContext<'_> {
        BookContext { region: &self.region, layout: &self.layout, grace: &self.grace }
    }

    /// Whether a slot's page can be shared and its fingerprint has this tag.
    pub(crate) fn can_share_tag(&self, at: Slot, wanted: u64, tag: impl Fn(u32) -> u64) -> bool {
        if !self.layout.has(at) || !self.is_named(at) {
            return false;
        }
        let word = self.region.word(self.layout.slot_word(at)).load(Ordering::Relaxed);
        let hint = described_hint(counted::description_of(word));
        (1..counted::SHARED_MAX).contains(&counted::count_of(word))
            && hint.is_some_and(|fingerprint| tag(fingerprint) == wanted)
    }

    /// Whether the slab still has the class that a hint says. Slabs change their class a grace
    /// period after the table stops naming the old one, so the answer holds while pinned.
    pub(crate) fn is_named(&self, at: Slot) -> bool {
        let named = self.region.word(self.layout.table_word(at.slab)).load(Ordering::Acquire);
        named == u64::from(at.class.id()) + 1 && at.class.has_slots()
    }

    pub(crate) fn slab_class(&self, slab: u32) -> Option<Class> {
        let word = self.region.word(self.layout.table_word(slab)).load(Ordering::Acquire);
        word.checked_sub(1).and_then(Class::from_id)
    }
}
