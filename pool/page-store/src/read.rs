//! Looking at map entries, and at the pages that they name.

use codec::{Block, DecodeError};
use sync::atomic::Ordering;
use sync::{Pinned, counted};

use crate::core::PageBytes;
use crate::fingerprint::Description;
use crate::layout::Class;
use crate::memory::Keeps;
use crate::page_ref::{NodeRef, OwnedPageRef, PageRef, PageRefKind, Parent};
use crate::store::PageStore;

impl PageStore {
    /// Entry `index` of a leaf. The pin keeps what it names from being reused.
    #[inline]
    pub fn entry(&self, _pinned: &Pinned<'_>, leaf: NodeRef, index: usize) -> PageRef {
        let word = self.core.memory.region.word(self.core.memory.entry_offset(leaf, index));
        // PAIRS-WITH: Lane::replace, "the page that the entry names".
        PageRef(word.load(Ordering::Acquire))
    }

    /// The node that a parent names. Words that name no node of this pool are no child.
    #[inline]
    pub fn child(&self, _pinned: &Pinned<'_>, parent: Parent) -> Option<NodeRef> {
        let word = self.core.memory.region.word(self.core.memory.parent_offset(parent));
        // PAIRS-WITH: Lane::link, "the node that the parent names".
        let node = NodeRef::from_word(word.load(Ordering::Acquire))?;
        self.core.memory.layout.has(node.0).then_some(node)
    }

    /// Returns whether a parent names something that is no node of this pool.
    pub fn has_damaged_child(&self, pinned: &Pinned<'_>, parent: Parent) -> bool {
        let word = self.core.memory.region.word(self.core.memory.parent_offset(parent));
        word.load(Ordering::Acquire) != 0 && self.child(pinned, parent).is_none()
    }

    /// Brings an entry near that will be looked at soon.
    #[inline]
    pub fn prefetch_entry(&self, leaf: NodeRef, index: usize) {
        self.core.memory.region.prefetch(self.core.memory.entry_offset(leaf, index));
    }

    /// Brings the first lines of a page near that will be read soon.
    #[inline]
    pub fn prefetch_page(&self, page: PageRef) {
        if let Some(at) = self.core.memory.slot_of(page) {
            let offset = self.core.memory.layout.slot(at);
            for line in 0..4 {
                self.core.memory.region.prefetch(offset + 64 * line);
            }
        }
    }

    /// Contents that a reference names, where they are stored. The reference was read under this
    /// pin.
    #[inline]
    pub fn page<'seen>(
        &'seen self,
        pinned: &'seen Pinned<'_>,
        page: PageRef,
    ) -> Result<PageBytes<'seen>, DecodeError> {
        self.kept_page(pinned, page)
    }

    /// The bytes of a page that the caller holds a reference to.
    pub fn held_page<'seen>(
        &'seen self,
        page: &'seen OwnedPageRef,
    ) -> Result<PageBytes<'seen>, DecodeError> {
        self.kept_page(page, page.0)
    }

    #[inline]
    fn kept_page<'seen>(
        &'seen self,
        kept: &'seen impl Keeps,
        page: PageRef,
    ) -> Result<PageBytes<'seen>, DecodeError> {
        match page.kind() {
            PageRefKind::Hole => Ok(PageBytes::Fill(0)),
            PageRefKind::Fill(pattern) => Ok(PageBytes::Fill(pattern)),
            PageRefKind::Page => self.core.stored_page(kept, page),
            PageRefKind::Absent(_) | PageRefKind::Damaged => Err(DecodeError),
        }
    }

    /// Copies the contents that a reference names, which was read under this pin.
    #[inline]
    pub fn read_page(
        &self,
        pinned: &Pinned<'_>,
        page: PageRef,
        into: &mut Block,
    ) -> Result<(), DecodeError> {
        match self.page(pinned, page)? {
            PageBytes::Fill(pattern) => codec::write_fill(pattern, into),
            PageBytes::Raw(bytes) => into.copy_from_slice(bytes),
            PageBytes::Encoded(bytes) => codec::decode(bytes, into)?,
            PageBytes::Dense(bytes) => codec::decode_dense(bytes, into)?,
        }
        Ok(())
    }

    /// Takes a reference to the page that an entry names, read under this pin. `None` when it names
    /// none that is there, or when the page has as many references as can be counted.
    pub fn hold(&self, _pinned: &Pinned<'_>, page: PageRef) -> Option<OwnedPageRef> {
        let at = self.core.memory.slot_of(page)?;
        self.core.memory.try_share(at, |_| true).map(|_| OwnedPageRef(page.name()))
    }

    /// The same to find out whether the page is damaged: also for a page that is shared as often as
    /// it may be.
    pub fn hold_to_mend(&self, _pinned: &Pinned<'_>, page: PageRef) -> Option<OwnedPageRef> {
        let at = self.core.memory.slot_of(page)?;
        let word = self.core.memory.slot_word_to_store(at);
        counted::try_hold(word).map(|_| OwnedPageRef(page.name()))
    }

    /// Returns whether [`PageStore::note_journaled`] was called for the page that is in this slot
    /// now.
    pub fn is_journaled(&self, page: &OwnedPageRef) -> bool {
        page.0.slot().is_some_and(|at| self.core.memory.description(at).is_journaled())
    }

    /// The journal has the page. Forgotten when the page goes, or moves to another slot.
    pub fn note_journaled(&self, page: &OwnedPageRef) {
        if let Some(at) = page.0.slot() {
            self.core.memory.redescribe(at, Description::as_journaled);
        }
    }

    /// Returns whether the page is stored as it is, for this reference alone, and no other will
    /// share it.
    pub fn is_unshared_raw(&self, page: PageRef) -> bool {
        self.raw_references(page) == Some(1)
            && !page.is_untried()
            && page.slot().is_some_and(|at| self.core.memory.description(at).hint().is_none())
    }

    /// Returns whether the page is stored as it is, and only this reference names it now.
    pub fn is_raw_of_one(&self, page: PageRef) -> bool {
        self.raw_references(page).is_some_and(|count| count <= 1)
    }

    /// Returns whether more than one entry names the page.
    pub fn is_shared(&self, page: PageRef) -> bool {
        let slot = self.core.memory.slot_of(page);
        slot.is_some_and(|at| self.core.memory.reference_count(at) > 1)
    }

    /// References to a page that is stored as it is.
    fn raw_references(&self, page: PageRef) -> Option<u64> {
        let at = self.core.memory.slot_of(page).filter(|at| at.class == Class::RAW)?;
        (page.length_bytes() == 0).then(|| self.core.memory.reference_count(at))
    }
}
