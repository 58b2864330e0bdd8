//! Reads of map entries, and of their pages.

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
    /// Returns entry `index` of a leaf. The pin prevents reuse of the page that it refers to.
    #[inline]
    pub fn entry(&self, _pinned: &Pinned<'_>, leaf: NodeRef, index: usize) -> PageRef {
        let word = self.core.memory.region.word(self.core.memory.entry_offset(leaf, index));
        // PAIRS-WITH: Lane::replace, "the page that the entry names".
        PageRef(word.load(Ordering::Acquire))
    }

    /// Returns the child of a parent. Words that refer to no node of this pool are ignored.
    #[inline]
    pub fn child(&self, _pinned: &Pinned<'_>, parent: Parent) -> Option<NodeRef> {
        let word = self.core.memory.region.word(self.core.memory.parent_offset(parent));
        // PAIRS-WITH: Lane::link, "the node that the parent names".
        let node = NodeRef::from_word(word.load(Ordering::Acquire))?;
        self.core.memory.layout.has(node.0).then_some(node)
    }

    /// Returns whether a parent's word is not zero and refers to no node of this pool.
    pub fn has_damaged_child(&self, pinned: &Pinned<'_>, parent: Parent) -> bool {
        let word = self.core.memory.region.word(self.core.memory.parent_offset(parent));
        word.load(Ordering::Acquire) != 0 && self.child(pinned, parent).is_none()
    }

    /// Prefetches an entry that will be read soon.
    #[inline]
    pub fn prefetch_entry(&self, leaf: NodeRef, index: usize) {
        self.core.memory.region.prefetch(self.core.memory.entry_offset(leaf, index));
    }

    /// Prefetches the first lines of a page that will be read soon.
    #[inline]
    pub fn prefetch_page(&self, page: PageRef) {
        if let Some(at) = self.core.memory.slot_of(page) {
            let offset = self.core.memory.layout.slot(at);
            for line in 0..4 {
                self.core.memory.region.prefetch(offset + 64 * line);
            }
        }
    }

    /// Returns the contents of a reference, where they are stored. The reference was read under
    /// this pin.
    #[inline]
    pub fn page<'seen>(
        &'seen self,
        pinned: &'seen Pinned<'_>,
        page: PageRef,
    ) -> Result<PageBytes<'seen>, DecodeError> {
        self.kept_page(pinned, page)
    }

    /// Returns the bytes of a page to which the caller owns a reference.
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

    /// Copies the contents of a reference that was read under this pin.
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

    /// Takes a reference to the page of an entry that was read under this pin. Returns `None` if
    /// the page does not exist, or its count is at the maximum.
    pub fn hold(&self, _pinned: &Pinned<'_>, page: PageRef) -> Option<OwnedPageRef> {
        let at = self.core.memory.slot_of(page)?;
        self.core.memory.try_share(at, |_| true).map(|_| OwnedPageRef(page.name()))
    }

    /// Takes a reference to a page that may be damaged, to verify it. Succeeds also for a page
    /// whose count is at the maximum.
    pub fn hold_to_mend(&self, _pinned: &Pinned<'_>, page: PageRef) -> Option<OwnedPageRef> {
        let at = self.core.memory.slot_of(page)?;
        let word = self.core.memory.slot_word_to_store(at);
        counted::try_hold(word).map(|_| OwnedPageRef(page.name()))
    }

    /// Returns whether [`PageStore::note_journaled`] was called for the page that is now in this
    /// slot.
    pub fn is_journaled(&self, page: &OwnedPageRef) -> bool {
        page.0.slot().is_some_and(|at| self.core.memory.description(at).is_journaled())
    }

    /// Records that the journal has the page. Lost when the page is freed or moved to another slot.
    pub fn note_journaled(&self, page: &OwnedPageRef) {
        if let Some(at) = page.0.slot() {
            self.core.memory.redescribe(at, Description::as_journaled);
        }
    }

    /// Returns whether the page is uncompressed, has only this reference, and cannot be shared by
    /// others.
    pub fn is_unshared_raw(&self, page: PageRef) -> bool {
        self.raw_references(page) == Some(1)
            && !page.is_untried()
            && page.slot().is_some_and(|at| self.core.memory.description(at).hint().is_none())
    }

    /// Returns whether the page is uncompressed and has only this reference now.
    pub fn is_raw_of_one(&self, page: PageRef) -> bool {
        self.raw_references(page).is_some_and(|count| count <= 1)
    }

    /// Returns whether the page has more than one reference.
    pub fn is_shared(&self, page: PageRef) -> bool {
        let slot = self.core.memory.slot_of(page);
        slot.is_some_and(|at| self.core.memory.reference_count(at) > 1)
    }

    /// Returns the number of references to an uncompressed page.
    fn raw_references(&self, page: PageRef) -> Option<u64> {
        let at = self.core.memory.slot_of(page).filter(|at| at.class == Class::RAW)?;
        (page.length_bytes() == 0).then(|| self.core.memory.reference_count(at))
    }
}
