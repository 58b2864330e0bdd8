//! Lanes: writers that do not wait for each other.
//!
//! A lane holds the slabs that its writers allocate from, the encoder and the references on their
//! way out. A thread takes a lane for one batch of requests; there are as many as threads that
//! shall write at once.

use codec::{Block, Encoder};
use sync::atomic::Ordering;
use sync::{Pinned, counted};

use crate::core::{Core, PageBytes};
use crate::error::{LinkError, NoSpace};
use crate::fingerprint::{
    Check, describe, describe_untried, described_as_copy, described_hint, described_length,
};
use crate::lane_cell::LaneGuard;
use crate::layout::{Class, Layout, Slot, packed_bytes_max};
use crate::node::Parent;
use crate::open_slab::OpenSlabs;
use crate::page_ref::{DirtyBits, NodeRef, OwnedPageRef, PageRef};
use crate::retire::Retired;

use crate::slabs::Free;

pub use crate::purpose::Purpose;

/// How many references ahead a slot's word is asked for, and then what it leads to.
const FAR_AHEAD: usize = 16;
const NEAR_AHEAD: usize = 8;

/// How contents are made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    pub shares_duplicates: bool,
    pub compression: Compression,
}

/// When contents are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    Never,
    /// They are stored as they are, and marked for whoever has time: see [`crate::Compressor`].
    Later,
    /// Before they are stored.
    Now,
}

/// What a lane keeps between batches.
#[derive(Debug)]
pub(crate) struct LaneState {
    pub(crate) index: usize,
    open: OpenSlabs,
    /// Taken out while its output is being stored.
    encoder: Option<Encoder>,
    scratch: Box<Block>,
    retired: Retired,
    /// The last contents were found in the pool: the next may be, too.
    expects_duplicates: bool,
}

impl LaneState {
    pub(crate) fn new(index: usize) -> Self {
        Self {
            index,
            open: OpenSlabs::new(),
            encoder: Some(Encoder::new()),
            scratch: Box::new([0; codec::BLOCK_BYTES]),
            retired: Retired::new(),
            expects_duplicates: false,
        }
    }
}

/// A lane while a thread holds it.
#[derive(Debug)]
pub struct Lane<'store> {
    pub(crate) core: &'store Core,
    pub(crate) state: LaneGuard<'store>,
}

impl<'store> Lane<'store> {
    pub(crate) fn new(core: &'store Core, state: LaneGuard<'store>) -> Self {
        Self { core, state }
    }

    /// Stores contents as the policy says and returns a reference to them. `purpose` is asked only
    /// if they need memory, after the work that needs none.
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
        if !policy.shares_duplicates {
            let check = Check::unindexed(self.core.fingerprinter.of(contents));
            return self.store_unshared(contents, policy.compression, purpose(), check);
        }
        let fingerprint = self.core.fingerprinter.of(contents);
        let check = Check::indexed(fingerprint);
        self.core.index.prefetch(&self.core.memory, fingerprint);
        // Between asking for the index's lines and looking at them.
        let ahead = match policy.compression {
            Compression::Later if !self.state.expects_duplicates => {
                self.stream_raw(contents, purpose())
            }
            _ => None,
        };
        let state = &mut *self.state;
        let room = (&mut *state.scratch, state.index);
        let equal = self.core.share_equal(pinned, contents, fingerprint, room);
        self.state.expects_duplicates = equal.is_some();
        if let Some(entry) = equal {
            ahead.into_iter().for_each(|at| self.put_streamed_back(at));
            return Ok(OwnedPageRef(entry));
        }
        let page = match ahead {
            Some(at) => self.publish_raw(at, describe_untried(check)),
            None => self.store_unshared(contents, policy.compression, purpose(), check)?,
        };
        if let Some(at) = page.0.slot() {
            self.core.index.insert(&self.core.memory, pinned, fingerprint, at);
        }
        Ok(page)
    }

    /// Publishes a page as what entry `index` of a leaf says, and retires what it said before.
    /// This is the commit of a block write. The caller keeps other writers of the entry away.
    pub fn replace(
        &mut self,
        leaf: NodeRef,
        index: usize,
        page: OwnedPageRef,
        marks: DirtyBits,
    ) -> PageRef {
        self.exchange(leaf, index, page.0.with(marks))
    }

    /// Makes entry `index` of a leaf name no page in memory: a hole, what is absent or damaged.
    /// Retires what it said before. Needs no memory.
    pub fn clear(&mut self, leaf: NodeRef, index: usize, to: PageRef) -> PageRef {
        debug_assert!(to.slot().is_none(), "an entry without a page");
        self.exchange(leaf, index, to)
    }

    /// The marks of entry `index` of a leaf. The caller keeps other writers of the entry away.
    pub fn dirty_bits(&self, leaf: NodeRef, index: usize) -> DirtyBits {
        let word = self.core.memory.region.word(self.core.node_word_offset(leaf, index));
        PageRef(word.load(Ordering::Relaxed)).dirty_bits()
    }

    /// Takes marks off entry `index` of a leaf. Returns what the entry said before and after. The
    /// caller keeps other writers of the entry away.
    pub fn clear_dirty(
        &mut self,
        leaf: NodeRef,
        index: usize,
        marks: DirtyBits,
    ) -> (PageRef, PageRef) {
        self.reword(leaf, index, |entry| entry.without(marks))
    }

    /// Says the same of a block in other words: it names the same contents before and after.
    pub(crate) fn reword(
        &mut self,
        leaf: NodeRef,
        index: usize,
        change: impl Fn(PageRef) -> PageRef,
    ) -> (PageRef, PageRef) {
        let word = self.core.memory.region.word_to_store(self.core.node_word_offset(leaf, index));
        let old = PageRef(word.load(Ordering::Relaxed));
        let new = change(old);
        // PAIRS-WITH: PageStore::entry, "the page that the entry names".
        word.store(new.0, Ordering::Release);
        (old, new)
    }

    /// Gives a page back that was not published.
    pub fn give_back(&mut self, page: OwnedPageRef) {
        if let Some(at) = page.0.slot() {
            self.core.release(at, self.state.index);
        }
    }

    /// Makes a node of holes the child of `parent`, unless it has one by now. Returns its child.
    pub fn link(&mut self, parent: Parent, purpose: Purpose) -> Result<NodeRef, LinkError> {
        let at = self.take_slot(Class::NODE, purpose)?;
        self.core.memory.zero_slot(at);
        self.publish(at, 0);
        let word = self.core.memory.region.word_to_store(self.core.parent_offset(parent));
        let node = NodeRef(at);
        // PAIRS-WITH: PageStore::child, "the node that the parent names".
        match word.compare_exchange(0, node.to_word(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(node),
            Err(other) => {
                self.core.release(at, self.state.index);
                let node =
                    NodeRef::from_word(other).filter(|node| self.core.memory.layout.has(node.0));
                node.ok_or(LinkError::Damaged)
            }
        }
    }

    /// Takes the child of `parent` out of the map and retires it. What the child names is the
    /// caller's to clear before. The caller keeps other writers below `parent` away.
    pub fn unlink(&mut self, parent: Parent) {
        let word = self.core.memory.region.word_to_store(self.core.parent_offset(parent));
        let node = NodeRef::from_word(word.swap(0, Ordering::AcqRel));
        if let Some(node) = node.filter(|node| self.core.memory.layout.has(node.0)) {
            self.state.retired.push(node.0);
        }
    }

    /// Copies a page of a victim slab to another slab. The caller owns the new reference. `None`
    /// when there is no room for it, or the entry is damaged: the page stays where it is.
    pub fn relocate(&mut self, pinned: &Pinned<'_>, entry: PageRef) -> Option<OwnedPageRef> {
        self.copy_page(pinned, entry, Purpose::Housekeeping)
    }

    /// Stores what a page holds once more, in the same form.
    pub(crate) fn copy_page(
        &mut self,
        pinned: &Pinned<'_>,
        entry: PageRef,
        purpose: Purpose,
    ) -> Option<OwnedPageRef> {
        let from = entry.slot()?;
        let bytes = match self.core.stored_page(pinned, entry).ok()? {
            PageBytes::Raw(block) => &block[..],
            PageBytes::Encoded(bytes) => bytes,
            PageBytes::Fill(_) => return None,
        };
        let to = self.take_slot(from.class, purpose).ok()?;
        let word = self
            .core
            .memory
            .region
            .word(self.core.memory.layout.slot_word(from))
            .load(Ordering::Relaxed);
        let description = described_as_copy(counted::description_of(word));
        // A damaged entry may say otherwise than the word: it stays where it is.
        if described_length(description) != entry.length_bytes() {
            self.put_slot_back(to);
            return None;
        }
        self.core.memory.fill_slot(to, bytes);
        self.publish(to, description);
        if let Some(fingerprint) = described_hint(description) {
            self.core.index.insert(&self.core.memory, pinned, fingerprint, to);
        }
        Some(OwnedPageRef(PageRef::described(to, description)))
    }

    /// Takes another reference to a page that the caller holds one of, if its count has room.
    pub fn share(&mut self, page: &OwnedPageRef) -> Option<OwnedPageRef> {
        let at = page.0.slot()?;
        let word = self.core.memory.region.word_to_store(self.core.memory.layout.slot_word(at));
        counted::try_share(word, |_| true).map(|_| OwnedPageRef(page.0))
    }

    /// A number below the pool's count of lanes, for statistics that lanes add to.
    pub fn index(&self) -> usize {
        self.state.index
    }

    /// Gives back all references whose readers are gone. Not to be called while pinned: the own
    /// pin would hold up what was retired last.
    pub fn drain(&mut self) {
        self.state.retired.stamp(&self.core.memory.grace);
        if self.state.retired.len() == 0 {
            return;
        }
        self.state.retired.advance(&self.core.memory.grace);
        self.release_passed(usize::MAX);
    }

    /// Gives back some references whose readers are gone: more than a batch of requests retires,
    /// few enough that no request waits long for the ones before.
    pub(crate) fn release_some(&mut self) {
        let count = self.state.retired.begin_turn(&self.core.memory.grace);
        self.release_passed(count);
    }

    fn release_passed(&mut self, count_max: usize) {
        // Pinned, so that the index's buckets that are asked for stay what they are.
        let _pinned = self.core.memory.grace.pin();
        for _ in 0..count_max {
            let Some(at) = self.state.retired.pop_passed() else { break };
            if let Some(far) = self.state.retired.ahead(FAR_AHEAD) {
                self.core.prefetch_word(far);
            }
            if let Some(near) = self.state.retired.ahead(NEAR_AHEAD) {
                self.core.prefetch_hint(near);
            }
            self.core.release(at, self.state.index);
        }
    }

    pub(crate) fn retired_count(&self) -> usize {
        self.state.retired.len()
    }

    /// Gives every open slab back, with the slots that were not used.
    pub(crate) fn close_slabs(&mut self) {
        for class in Class::all() {
            self.close_slab(class, Purpose::NewData);
            self.close_slab(class, Purpose::Claimed);
        }
    }

    fn exchange(&mut self, leaf: NodeRef, index: usize, new: PageRef) -> PageRef {
        let word = self.core.memory.region.word_to_store(self.core.node_word_offset(leaf, index));
        let old = PageRef(word.load(Ordering::Relaxed));
        // PAIRS-WITH: PageStore::entry, "the page that the entry names".
        word.store(new.0, Ordering::Release);
        if let Some(at) = old.slot().filter(|&at| self.core.memory.layout.has(at)) {
            self.retire(at);
        }
        old
    }

    /// Lowers a reference that was unpublished, once its readers are gone.
    pub(crate) fn retire(&mut self, at: Slot) {
        self.state.retired.push(at);
    }

    fn store_unshared(
        &mut self,
        contents: &Block,
        compression: Compression,
        purpose: Purpose,
        check: Check,
    ) -> Result<OwnedPageRef, NoSpace> {
        if compression == Compression::Now && codec::is_worth_encoding(contents) {
            let mut encoder = self.state.encoder.take().expect("it is put back below");
            let stored = encoder
                .encode(contents, packed_bytes_max())
                // When no slab can be had for the best class, a slot that is too large will do.
                .map(|encoded| self.store_encoded(encoded, purpose, check, |_| true));
            self.state.encoder = Some(encoder);
            if let Some(Ok(page)) = stored {
                return Ok(page);
            }
        }
        let at = self.stream_raw(contents, purpose).ok_or(NoSpace)?;
        Ok(self.publish_raw(
            at,
            match compression {
                Compression::Later => describe_untried(check),
                Compression::Now | Compression::Never => describe(0, check),
            },
        ))
    }

    /// Begins to store contents as they are in a slot of their own, which must go to
    /// [`Lane::publish_raw`] or [`Lane::put_streamed_back`].
    #[inline]
    fn stream_raw(&mut self, contents: &Block, purpose: Purpose) -> Option<Slot> {
        let at = self.take_slot(Class::RAW, purpose).ok()?;
        self.core.memory.stream_slot(at, contents);
        Some(at)
    }

    #[inline]
    fn publish_raw(&mut self, at: Slot, description: u64) -> OwnedPageRef {
        self.core.memory.region.store_fence();
        self.publish(at, description);
        OwnedPageRef(PageRef::described(at, description))
    }

    /// The slot's next owner may be another thread, whose stores must come after these.
    fn put_streamed_back(&mut self, at: Slot) {
        self.core.memory.region.store_fence();
        self.put_slot_back(at);
    }

    /// Stores an encoding in the best slot that can be had, of a class that will do.
    pub(crate) fn store_encoded(
        &mut self,
        encoded: &[u8],
        purpose: Purpose,
        check: Check,
        will_do: impl Fn(Class) -> bool,
    ) -> Result<OwnedPageRef, NoSpace> {
        let best = Class::packed_for(encoded.len()).expect("the encoder was given the limit");
        let at = std::iter::once(best)
            .chain(best.larger().filter(|&class| will_do(class)))
            .find_map(|class| self.take_slot(class, purpose).ok())
            .ok_or(NoSpace)?;
        self.core.memory.fill_slot(at, encoded);
        self.publish(at, describe(encoded.len(), check));
        Ok(OwnedPageRef(PageRef::page(at, encoded.len())))
    }

    pub(crate) fn publish(&mut self, at: Slot, description: u64) {
        self.core.live[at.class.index()].add(self.state.index, 1);
        let word = self.core.memory.region.word_to_store(self.core.memory.layout.slot_word(at));
        counted::publish(word, description);
    }

    pub(crate) fn take_slot(&mut self, class: Class, purpose: Purpose) -> Result<Slot, NoSpace> {
        loop {
            let core = self.core;
            let open = self.state.open.of(class, purpose);
            if purpose < open.opened_for {
                // The rest of a slab that was opened for others is not for all.
                if !core.may_open(purpose) {
                    core.memory.find_more(core.memory.layout.slab_count())?;
                    continue;
                }
                open.opened_for = purpose;
            }
            if let (Some(slab), Some(slot)) = (open.slab, open.free.pop()) {
                // Words of slots that were freed one by one lie apart.
                if let Some(&next) = open.free.last() {
                    self.core.prefetch_word(Slot { slab, slot: next, class });
                }
                return Ok(Slot { slab, slot, class });
            }
            self.close_slab(class, purpose);
            self.open_slab(class, purpose)?;
        }
    }

    /// Puts a slot back that was taken last and not published.
    pub(crate) fn put_slot_back(&mut self, at: Slot) {
        self.state.open.holding(at.slab, at.class).free.push(at.slot);
    }

    fn close_slab(&mut self, class: Class, purpose: Purpose) {
        let open = self.state.open.of(class, purpose);
        let unused = u32::try_from(open.free.len()).expect("slot counts fit eleven bits");
        open.free.clear();
        open.opened_for = Purpose::NewData;
        if let Some(slab) = open.slab.take() {
            self.core.memory.book.close(slab, class, unused, self.core.memory.book_context());
        }
    }

    /// Opens a slab with free slots, or a free slab. A slab may turn out to have none after all:
    /// the caller looks again.
    fn open_slab(&mut self, class: Class, purpose: Purpose) -> Result<(), NoSpace> {
        let core = self.core;
        let seen = core.memory.layout.slab_count();
        let may_open = core.may_open(purpose);
        // Only slots for pages as they are can be claimed.
        let may_open_listed = may_open || class != Class::RAW;
        let listed = may_open_listed.then(|| core.memory.book.take_listed(class)).flatten();
        let slab = match listed {
            Some(slab) => slab,
            None if !may_open => return core.memory.find_more(seen),
            None => match core.memory.book.take_free(purpose, core.memory.book_context()) {
                Free::Slab(slab) => {
                    let words_bytes = Layout::inner_words_bytes(class);
                    core.memory.zero_free_slab(slab, words_bytes);
                    core.memory.name_slab(slab, class);
                    core.memory.book.admit_open(slab, class);
                    slab
                }
                Free::Untaken if core.memory.find_more(seen).is_ok() => return Ok(()),
                // The caller looks again if single free slots were found.
                Free::Untaken | Free::None => {
                    return core.memory.book.list_rest(class).then_some(()).ok_or(NoSpace);
                }
            },
        };
        let promised = core.memory.book.promised(slab);
        let open = self.state.open.of(class, purpose);
        open.slab = Some(slab);
        // Only slots for pages as they are are reserved.
        open.opened_for = if class == Class::RAW { purpose } else { Purpose::NewData };
        for slot in (0..class.shape().slot_count).rev() {
            let word =
                core.memory.region.word(core.memory.layout.slot_word(Slot { slab, slot, class }));
            // PAIRS-WITH: drop_many, "earlier holders are done with the contents".
            if counted::count_of(word.load(Ordering::Acquire)) == 0 {
                open.free.push(slot);
            }
        }
        let taken = u32::try_from(open.free.len()).expect("slot counts fit eleven bits");
        core.memory.book.debit(slab, taken, promised);
        Ok(())
    }
}
