//! Access to the pool's memory: slots, slabs and map nodes, and the crate's unsafe code.

use std::sync::{Mutex, MutexGuard};

use region::Region;
use sync::atomic::{AtomicU64, Ordering};
use sync::{Grace, Pinned, Striped, counted};

use crate::claims::Claims;
use crate::dense_form::{self, DenseCounts, HEAD_BYTES};
use crate::fingerprint::Description;
use crate::layout::{CLASS_COUNT, Class, Layout, NODE_ENTRY_COUNT, Slot};
use crate::page_ref::{NodeRef, OwnedPageRef, PageRef, Parent};
use crate::slabs::SlabBook;
use crate::superblock::Superblock;
use crate::tables::Tables;
use crate::taking::Taking;

/// Number of threads that can pin without waiting for each other.
const PIN_PLACES: usize = 128;

/// The region, its layout, its readers, and the uses of its slabs.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) region: Region,
    pub(crate) layout: Layout,
    pub(crate) grace: Grace,
    pub(crate) book: SlabBook,
    /// Number of live slots by class, with a part for each lane.
    pub(crate) live: Box<[Striped]>,
    pub(crate) dense: DenseCounts,
    pub(crate) claims: Claims,
    pub(crate) taking: Taking,
    pub(crate) tables: Tables,
    superblock: Mutex<Superblock>,
}

/// Holders that keep a page's bytes unchanged: a pin under which the reference was read, or an
/// owned reference.
pub(crate) trait Keeps {}

impl Keeps for Pinned<'_> {}
impl Keeps for OwnedPageRef {}

impl Memory {
    pub(crate) fn new(
        region: Region,
        layout: Layout,
        superblock: Superblock,
        lane_count: usize,
    ) -> Self {
        Self {
            grace: Grace::new(PIN_PLACES),
            book: SlabBook::new(layout.slab_capacity, layout.pool_slabs()),
            live: (0..CLASS_COUNT).map(|_| Striped::new(lane_count)).collect(),
            dense: DenseCounts::new(lane_count),
            claims: Claims::new(lane_count),
            taking: Taking::new(layout.slab_count()),
            tables: Tables::default(),
            superblock: Mutex::new(superblock),
            region,
            layout,
        }
    }

    pub(crate) fn superblock(&self) -> MutexGuard<'_, Superblock> {
        self.superblock.lock().expect("no thread panics with it locked")
    }

    pub(crate) fn change_superblock(&self, change: impl FnOnce(&mut Superblock)) {
        let mut superblock = self.superblock();
        change(&mut superblock);
        superblock.save(&self.region, &self.layout);
    }

    /// Returns the slot of a page reference, if it is in this pool. References in a region are not
    /// trusted: this determines which of them are damaged.
    #[inline]
    pub(crate) fn slot_of(&self, page: PageRef) -> Option<Slot> {
        page.slot().filter(|&at| self.layout.has(at))
    }

    /// Returns the value of a slot's word: see `sync::counted`.
    #[inline]
    pub(crate) fn slot_word(&self, at: Slot, ordering: Ordering) -> u64 {
        self.region.word(self.layout.slot_word(at)).load(ordering)
    }

    /// Returns a slot's word for a store.
    #[inline]
    pub(crate) fn slot_word_to_store(&self, at: Slot) -> &AtomicU64 {
        self.region.word_to_store(self.layout.slot_word(at))
    }

    /// Returns the current number of references to a slot.
    #[inline]
    pub(crate) fn reference_count(&self, at: Slot) -> u64 {
        counted::count_of(self.slot_word(at, Ordering::Relaxed))
    }

    /// Returns the description in a slot's word, which is valid only if the slot is live.
    #[inline]
    pub(crate) fn description(&self, at: Slot) -> Description {
        Description::in_word(self.slot_word(at, Ordering::Relaxed))
    }

    /// Takes another reference to a live slot, unless its count is at the maximum or `wanted`
    /// rejects its description.
    #[inline]
    pub(crate) fn try_share(
        &self,
        at: Slot,
        wanted: impl Fn(Description) -> bool,
    ) -> Option<Description> {
        let wanted = |bits| wanted(Description::from_bits(bits));
        let shared = counted::try_share(self.slot_word_to_store(at), wanted);
        shared.map(Description::from_bits)
    }

    /// Changes the description of a slot to which the caller holds a reference.
    pub(crate) fn redescribe(&self, at: Slot, change: impl Fn(Description) -> Description) {
        let change = |bits| change(Description::from_bits(bits)).bits();
        counted::redescribe(self.slot_word_to_store(at), change);
    }

    /// Returns the first `length` bytes of a live slot. The caller has read the reference from a
    /// map under this pin, or owns a reference.
    pub(crate) fn slot_bytes<'seen>(
        &'seen self,
        _kept: &'seen impl Keeps,
        at: Slot,
        length: usize,
    ) -> &'seen [u8] {
        // SAFETY:
        // - exclusive: the slot's count was not zero when its name was read, so its bytes are
        //   complete and no lane stores to them before the count has been zero for a grace period,
        //   which a pin holds up and a reference keeps from beginning.
        unsafe { self.region.bytes(self.layout.slot(at), length) }
    }

    /// Returns the number of bytes that a page in the dense form saves. The caller owns a reference
    /// to it, or is filling the slot.
    #[cold]
    #[inline(never)]
    pub(crate) fn dense_saving(&self, at: Slot) -> i64 {
        let kept = OwnedPageRef(PageRef::page(at, 0));
        dense_form::saving(self.slot_bytes(&kept, at, HEAD_BYTES)[0], at)
    }

    /// Returns all bytes of a 4 KiB slot.
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

    /// Begins to store the bytes of such a slot. A fence must follow before the slot is published,
    /// and before the lane returns it.
    #[inline]
    pub(crate) fn stream_slot(&self, at: Slot, bytes: &[u8]) {
        // SAFETY:
        // - exclusive: the slot's count is zero and its grace period has passed; lanes take each
        //   free slot once (`SlabBook::debit`), and only the lane's holder calls this.
        unsafe { self.region.store_bytes(self.layout.slot(at), bytes) };
    }

    /// Zeroes a slot that the caller's lane has taken and not published, which makes it an empty
    /// node.
    pub(crate) fn zero_slot(&self, at: Slot) {
        let length = usize::try_from(at.class.shape().slot_bytes).expect("a slot fits memory");
        // SAFETY:
        // - exclusive: as in `fill_slot`.
        unsafe { self.region.zero_bytes(self.layout.slot(at), length) };
    }

    /// Zeroes the first `length` bytes of a slab that the caller took from the free ones.
    pub(crate) fn zero_free_slab(&self, slab: u32, length: usize) {
        // SAFETY:
        // - exclusive: a free slab is taken once, and the grace period of its last use has passed.
        unsafe { self.region.zero_bytes(self.layout.slab(slab), length) };
    }

    /// Returns whether the slab still has the class of the slot. Slabs change their class a grace
    /// period after the slab table was cleared, so the answer holds while pinned.
    pub(crate) fn is_named(&self, at: Slot) -> bool {
        let named = self.region.word(self.layout.table_word(at.slab)).load(Ordering::Acquire);
        named == u64::from(at.class.id()) + 1 && at.class.has_slots()
    }

    pub(crate) fn slab_class(&self, slab: u32) -> Option<Class> {
        let word = self.region.word(self.layout.table_word(slab)).load(Ordering::Acquire);
        word.checked_sub(1).and_then(Class::from_id)
    }

    /// Returns the offset of entry `index` of a node.
    #[inline]
    pub(crate) fn entry_offset(&self, node: NodeRef, index: usize) -> u64 {
        let (layout, at) = (&self.layout, node.0);
        let is_there = index < NODE_ENTRY_COUNT && layout.has_large(at.slab, at.slot);
        assert!(is_there, "the entry is in a node");
        layout.large_slot(at.slab, at.slot) + 8 * index as u64
    }

    /// Returns the offset of the parent word.
    pub(crate) fn parent_offset(&self, parent: Parent) -> u64 {
        match parent {
            Parent::Root(index) => self.layout.root_word(index),
            Parent::Node(node, index) => self.entry_offset(node, index),
        }
    }

    /// Returns the entries of a node.
    pub(crate) fn entries_of(&self, node: NodeRef) -> impl Iterator<Item = PageRef> {
        (0..NODE_ENTRY_COUNT).map(move |index| {
            let word = self.region.word(self.entry_offset(node, index));
            PageRef(word.load(Ordering::Acquire))
        })
    }
}
