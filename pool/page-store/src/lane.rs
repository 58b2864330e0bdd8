//! Lanes: allocator states of writers that do not wait for each other.
//!
//! A lane holds the slabs from which its writers allocate, the encoder, and the retired references.
//! A thread takes a lane for one batch of requests. The number of lanes is the number of threads
//! that can write concurrently.

use codec::{Block, Encoder};
use sync::atomic::Ordering;
use sync::{Pinned, counted};

use crate::core::{Core, PageBytes};
use crate::dedup::Search;
use crate::error::{LinkError, NoSpace};
use crate::fingerprint::Description;
use crate::lane_cell::LaneGuard;
use crate::layout::{Class, Layout, Slot, packed_bytes_max};
use crate::memory::Memory;
use crate::open_slab::OpenSlabs;
use crate::page_ref::{DirtyBits, NodeRef, OwnedPageRef, PageRef, Parent};
use crate::purpose::Purpose;
use crate::retire::Retired;

/// Reductions that apply to contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    pub shares_duplicates: bool,
    pub compression: Compression,
}

/// Time at which contents are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    Never,
    /// They are stored uncompressed, and compressed in the background: see [`crate::Compressor`].
    Later,
    /// Before they are stored.
    Now,
}

/// State that a lane keeps between batches.
#[derive(Debug)]
pub(crate) struct LaneState {
    pub(crate) index: usize,
    open: OpenSlabs,
    /// Taken out while its output is being stored.
    encoder: Option<Encoder>,
    scratch: Box<Block>,
    /// Pages that a search compared and that have other contents.
    others: Vec<OwnedPageRef>,
    retired: Retired,
    /// The last contents were a duplicate, so the next may be too.
    expects_duplicates: bool,
}

impl LaneState {
    pub(crate) fn new(index: usize) -> Self {
        Self {
            index,
            open: OpenSlabs::new(),
            encoder: Some(Encoder::new()),
            scratch: Box::new([0; codec::BLOCK_BYTES]),
            others: Vec::new(),
            retired: Retired::new(),
            expects_duplicates: false,
        }
    }
}

/// A lane while a thread holds it.
#[derive(Debug)]
pub struct Lane<'store> {
    pub(crate) core: &'store Core,
    pub(crate) state: LaneGuard<'store, LaneState>,
}

impl<'store> Lane<'store> {
    pub(crate) fn new(core: &'store Core, state: LaneGuard<'store, LaneState>) -> Self {
        Self { core, state }
    }

    #[inline]
    fn memory(&self) -> &'store Memory {
        &self.core.memory
    }

    /// Stores contents according to the policy and returns a reference to them. `purpose` is called
    /// only if memory is needed, after all work that needs none.
    #[inline(always)]
    pub fn store_page(
        &mut self,
        pinned: &Pinned<'_>,
        contents: &Block,
        policy: Policy,
        mut purpose: impl FnMut() -> Purpose,
    ) -> Result<OwnedPageRef, NoSpace> {
        if let Some(pattern) = codec::fill_pattern(contents) {
            return Ok(OwnedPageRef::fill(pattern));
        }
        let fingerprint = self.core.fingerprinter.of(contents);
        if !policy.shares_duplicates {
            let description = Description::unindexed(fingerprint);
            return self.store_unshared(contents, policy.compression, purpose(), description);
        }
        let description = Description::indexed(fingerprint);
        self.core.index.prefetch(self.memory(), fingerprint);
        // Streamed between the prefetch of the index's lines and their use.
        let ahead = match policy.compression {
            Compression::Later if !self.state.expects_duplicates => {
                self.stream_raw(contents, purpose())
            }
            _ => None,
        };
        let LaneState { scratch, others, .. } = &mut *self.state;
        let search = Search { contents, fingerprint, scratch, others };
        let equal = self.core.share_equal(pinned, search, |_| true);
        while let Some(other) = self.state.others.pop() {
            self.give_back(other);
        }
        self.state.expects_duplicates = equal.is_some();
        if let Some(page) = equal {
            ahead.into_iter().for_each(|at| self.put_streamed_back(at));
            return Ok(page);
        }
        let page = match ahead {
            Some(at) => self.publish_raw(at, description.as_untried()),
            None => self.store_unshared(contents, policy.compression, purpose(), description)?,
        };
        if let Some(at) = page.0.slot() {
            self.core.index.insert(self.memory(), pinned, fingerprint, at);
        }
        Ok(page)
    }

    /// Publishes a page in entry `index` of a leaf, and retires the old entry. This is the commit
    /// of a block write. The caller excludes other writers of the entry.
    pub fn replace(
        &mut self,
        leaf: NodeRef,
        index: usize,
        page: OwnedPageRef,
        dirty: DirtyBits,
    ) -> PageRef {
        self.exchange(leaf, index, page.0.with(dirty))
    }

    /// Sets entry `index` of a leaf to a value that refers to no page in memory: a hole, or an
    /// absent or damaged block. Retires the old entry. Needs no memory.
    pub fn clear(&mut self, leaf: NodeRef, index: usize, to: PageRef) -> PageRef {
        debug_assert!(to.slot().is_none(), "an entry without a page");
        self.exchange(leaf, index, to)
    }

    /// Returns the dirty bits of entry `index` of a leaf. The caller excludes other writers of the
    /// entry.
    pub fn dirty_bits(&self, leaf: NodeRef, index: usize) -> DirtyBits {
        let word = self.memory().region.word(self.memory().entry_offset(leaf, index));
        PageRef(word.load(Ordering::Relaxed)).dirty_bits()
    }

    /// Clears dirty bits of entry `index` of a leaf. Returns the old and the new entry. The caller
    /// excludes other writers of the entry.
    pub fn clear_dirty(
        &mut self,
        leaf: NodeRef,
        index: usize,
        dirty: DirtyBits,
    ) -> (PageRef, PageRef) {
        self.reword(leaf, index, |page| page.without(dirty))
    }

    /// Changes the form of an entry, which refers to the same contents before and after.
    pub(crate) fn reword(
        &mut self,
        leaf: NodeRef,
        index: usize,
        change: impl Fn(PageRef) -> PageRef,
    ) -> (PageRef, PageRef) {
        let word = self.memory().region.word_to_store(self.memory().entry_offset(leaf, index));
        let old = PageRef(word.load(Ordering::Relaxed));
        let new = change(old);
        // PAIRS-WITH: PageStore::entry, "the page that the entry names".
        word.store(new.0, Ordering::Release);
        (old, new)
    }

    /// Releases a page that was not published.
    pub fn give_back(&mut self, page: OwnedPageRef) {
        if let Some(at) = page.0.slot() {
            self.core.release(at, self.state.index);
        }
    }

    /// Makes an empty node the child of `parent`, unless it has one already. Returns its child.
    pub fn link(&mut self, parent: Parent, purpose: Purpose) -> Result<NodeRef, LinkError> {
        let at = self.take_slot(Class::NODE, purpose)?;
        self.memory().zero_slot(at);
        self.publish(at, Description::NONE);
        let word = self.memory().region.word_to_store(self.memory().parent_offset(parent));
        let node = NodeRef(at);
        // PAIRS-WITH: PageStore::child, "the node that the parent names".
        match word.compare_exchange(0, node.to_word(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(node),
            Err(other) => {
                self.core.release(at, self.state.index);
                let node =
                    NodeRef::from_word(other).filter(|node| self.memory().layout.has(node.0));
                node.ok_or(LinkError::Damaged)
            }
        }
    }

    /// Unlinks the child of `parent` from the map and retires it. The caller clears the child's
    /// entries before, and excludes other writers below `parent`.
    pub fn unlink(&mut self, parent: Parent) {
        let word = self.memory().region.word_to_store(self.memory().parent_offset(parent));
        let node = NodeRef::from_word(word.swap(0, Ordering::AcqRel));
        if let Some(node) = node.filter(|node| self.memory().layout.has(node.0)) {
            self.state.retired.push(node.0);
        }
    }

    /// Copies a page of a victim slab to another slab. The caller owns the new reference. Returns
    /// `None` if there is no room for it, or the reference is damaged: the page then stays.
    pub fn relocate(&mut self, pinned: &Pinned<'_>, page: PageRef) -> Option<OwnedPageRef> {
        self.copy_page(pinned, page, Purpose::Housekeeping)
    }

    /// Stores the contents of a page once more, in the same form.
    pub(crate) fn copy_page(
        &mut self,
        pinned: &Pinned<'_>,
        page: PageRef,
        purpose: Purpose,
    ) -> Option<OwnedPageRef> {
        let from = page.slot()?;
        let bytes = match self.core.stored_page(pinned, page).ok()? {
            PageBytes::Raw(block) => &block[..],
            PageBytes::Encoded(bytes) => bytes,
            // Includes the byte before the encoding.
            PageBytes::Dense(_) => self.memory().slot_bytes(pinned, from, page.length_bytes()),
            PageBytes::Fill(_) => return None,
        };
        let to = self.take_slot(from.class, purpose).ok()?;
        let description = self.memory().description(from).as_copy();
        // A damaged reference may contradict the slot's word: the page then stays.
        if description.length_bytes() != page.length_bytes()
            || description.is_dense() != page.is_dense()
        {
            self.put_slot_back(to);
            return None;
        }
        self.memory().fill_slot(to, bytes);
        if description.is_dense() {
            self.count_dense(to);
        }
        self.publish(to, description);
        if let Some(fingerprint) = description.hint() {
            self.core.index.insert(self.memory(), pinned, fingerprint, to);
        }
        Some(OwnedPageRef(PageRef::described(to, description)))
    }

    /// Takes another reference to a page of which the caller holds one, unless its count is at the
    /// maximum.
    pub fn share(&mut self, page: &OwnedPageRef) -> Option<OwnedPageRef> {
        let at = page.0.slot()?;
        self.memory().try_share(at, |_| true).map(|_| OwnedPageRef(page.0))
    }

    /// Index of the lane, below the pool's number of lanes, for statistics with a part for each
    /// lane.
    pub fn index(&self) -> usize {
        self.state.index
    }

    /// Releases all references whose readers are gone. Must not be called while pinned, because the
    /// thread's own pin would delay the latest ones.
    pub fn drain(&mut self) {
        self.state.retired.stamp(&self.core.memory.grace);
        if self.state.retired.len() == 0 {
            return;
        }
        self.state.retired.advance(&self.core.memory.grace);
        self.release_passed(usize::MAX);
    }

    /// Releases some references whose readers are gone: more than a batch of requests retires, but
    /// few enough that no request waits long for those of earlier ones.
    pub(crate) fn release_some(&mut self) {
        let count = self.state.retired.begin_turn(&self.core.memory.grace);
        self.release_passed(count);
    }

    fn release_passed(&mut self, count_max: usize) {
        // Pinned, so that prefetched buckets of the index stay valid.
        let _pinned = self.memory().grace.pin();
        for _ in 0..count_max {
            let Some(at) = self.state.retired.pop_passed() else { break };
            self.core.prefetch_release(|distance| self.state.retired.ahead(distance));
            self.core.release(at, self.state.index);
        }
    }

    pub(crate) fn retired_count(&self) -> usize {
        self.state.retired.len()
    }

    /// Releases retired references like [`Lane::drain`], and returns every open slab with its
    /// unused slots.
    pub(crate) fn empty(&mut self) {
        self.drain();
        for class in Class::all() {
            self.close_slab(class, Purpose::NewData);
            self.close_slab(class, Purpose::Claimed);
        }
    }

    fn exchange(&mut self, leaf: NodeRef, index: usize, new: PageRef) -> PageRef {
        let word = self.memory().region.word_to_store(self.memory().entry_offset(leaf, index));
        let old = PageRef(word.load(Ordering::Relaxed));
        // PAIRS-WITH: PageStore::entry, "the page that the entry names".
        word.store(new.0, Ordering::Release);
        if let Some(at) = self.memory().slot_of(old) {
            self.retire(at);
        }
        old
    }

    /// Retires a reference that was unpublished: it is released once its readers are gone.
    pub(crate) fn retire(&mut self, at: Slot) {
        self.state.retired.push(at);
    }

    fn store_unshared(
        &mut self,
        contents: &Block,
        compression: Compression,
        purpose: Purpose,
        raw: Description,
    ) -> Result<OwnedPageRef, NoSpace> {
        if compression == Compression::Now
            && codec::is_worth_encoding(contents)
            && let Some(page) = self.store_compressed(contents, purpose, raw)
        {
            return Ok(page);
        }
        let at = self.stream_raw(contents, purpose).ok_or(NoSpace)?;
        let is_later = compression == Compression::Later;
        Ok(self.publish_raw(at, if is_later { raw.as_untried() } else { raw }))
    }

    /// Stores contents in LZ4, if that makes them smaller and there is memory. If no slab of the
    /// best class is available, a larger slot is used.
    #[inline(never)]
    fn store_compressed(
        &mut self,
        contents: &Block,
        purpose: Purpose,
        raw: Description,
    ) -> Option<OwnedPageRef> {
        let mut encoder = self.state.encoder.take().expect("it is put back below");
        let stored = encoder.encode(contents, packed_bytes_max()).map(|encoded| {
            let description = raw.with_length(encoded.len());
            self.store_encoded(encoded, purpose, description, |_| true)
        });
        self.state.encoder = Some(encoder);
        stored.and_then(Result::ok)
    }

    /// Begins to store uncompressed contents in an unshared slot, which must be passed to
    /// [`Lane::publish_raw`] or [`Lane::put_streamed_back`].
    #[inline]
    pub(crate) fn stream_raw(&mut self, contents: &Block, purpose: Purpose) -> Option<Slot> {
        let at = self.take_slot(Class::RAW, purpose).ok()?;
        self.memory().stream_slot(at, contents);
        Some(at)
    }

    #[inline]
    pub(crate) fn publish_raw(&mut self, at: Slot, description: Description) -> OwnedPageRef {
        self.memory().region.store_fence();
        self.publish(at, description);
        OwnedPageRef(PageRef::described(at, description))
    }

    /// Returns a streamed slot. Its next owner may be another thread, whose stores must follow
    /// these.
    fn put_streamed_back(&mut self, at: Slot) {
        self.memory().region.store_fence();
        self.put_slot_back(at);
    }

    /// Stores an encoding in the best available slot, of a class that `will_do` accepts.
    pub(crate) fn store_encoded(
        &mut self,
        encoded: &[u8],
        purpose: Purpose,
        description: Description,
        will_do: impl Fn(Class) -> bool,
    ) -> Result<OwnedPageRef, NoSpace> {
        let best = Class::packed_for(encoded.len()).expect("the encoder was given the limit");
        let at = std::iter::once(best)
            .chain(best.larger().filter(|&class| will_do(class)))
            .find_map(|class| self.take_slot(class, purpose).ok())
            .ok_or(NoSpace)?;
        self.memory().fill_slot(at, encoded);
        if description.is_dense() {
            self.count_dense(at);
        }
        self.publish(at, description);
        Ok(OwnedPageRef(PageRef::described(at, description)))
    }

    pub(crate) fn publish(&mut self, at: Slot, description: Description) {
        self.memory().live[at.class.index()].add(self.state.index, 1);
        counted::publish(self.memory().slot_word_to_store(at), description.bits());
    }

    /// Counts a page in the dense form that is about to be published.
    fn count_dense(&self, at: Slot) {
        self.memory().dense.add(self.state.index, 1, self.memory().dense_saving(at));
    }

    pub(crate) fn take_slot(&mut self, class: Class, purpose: Purpose) -> Result<Slot, NoSpace> {
        loop {
            let memory = self.memory();
            let open = self.state.open.of(class, purpose);
            if purpose < open.opened_for {
                // The rest of a slab that was opened for another purpose is not available to all.
                if !memory.may_open(purpose) {
                    memory.find_more(memory.layout.slab_count())?;
                    continue;
                }
                open.opened_for = purpose;
            }
            if let (Some(slab), Some(slot)) = (open.slab, open.free.pop()) {
                // Words of slots that were freed individually are not adjacent.
                if let Some(&next) = open.free.last() {
                    self.core.prefetch_word(Slot { slab, slot: next, class });
                }
                return Ok(Slot { slab, slot, class });
            }
            self.close_slab(class, purpose);
            self.open_slab(class, purpose)?;
        }
    }

    /// Returns the slot that was taken last and not published.
    pub(crate) fn put_slot_back(&mut self, at: Slot) {
        self.state.open.holding(at.slab, at.class).free.push(at.slot);
    }

    fn close_slab(&mut self, class: Class, purpose: Purpose) {
        let open = self.state.open.of(class, purpose);
        let unused = u32::try_from(open.free.len()).expect("slot counts fit eleven bits");
        open.free.clear();
        open.opened_for = Purpose::NewData;
        if let Some(slab) = open.slab.take() {
            self.memory().close_slab(slab, class, unused);
        }
    }

    /// Opens a slab with free slots, or a free slab. A slab may turn out to have none after all, so
    /// the caller checks again.
    fn open_slab(&mut self, class: Class, purpose: Purpose) -> Result<(), NoSpace> {
        let memory = self.memory();
        let seen = memory.layout.slab_count();
        let may_open = memory.may_open(purpose);
        // Only slots for uncompressed pages can be claimed.
        let may_open_listed = may_open || class != Class::RAW;
        let listed = may_open_listed.then(|| memory.book.take_listed(class)).flatten();
        let slab = match listed {
            Some(slab) => slab,
            None if !may_open => return memory.find_more(seen),
            None => {
                let Some(slab) = memory.take_free_slab(purpose) else {
                    // The caller checks again if single free slots were found.
                    return memory.book.list_rest(class).then_some(()).ok_or(NoSpace);
                };
                memory.zero_free_slab(slab, Layout::inner_words_bytes(class));
                memory.name_slab(slab, class);
                memory.book.admit_open(slab, class);
                slab
            }
        };
        let promised = memory.book.promised(slab);
        let open = self.state.open.of(class, purpose);
        open.slab = Some(slab);
        // Only slots for uncompressed pages are reserved.
        open.opened_for = if class == Class::RAW { purpose } else { Purpose::NewData };
        for slot in (0..class.shape().slot_count).rev() {
            // PAIRS-WITH: drop_many, "earlier holders are done with the contents".
            let word = memory.slot_word(Slot { slab, slot, class }, Ordering::Acquire);
            if counted::count_of(word) == 0 {
                open.free.push(slot);
            }
        }
        let taken = u32::try_from(open.free.len()).expect("slot counts fit eleven bits");
        memory.book.debit(slab, taken, promised);
        Ok(())
    }
}
