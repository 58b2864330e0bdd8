//! Verification of pages in memory, by the fingerprints in their slots' words.

use codec::{Block, DecodeError};
use sync::atomic::Ordering;
use sync::{Pinned, counted};

use crate::core::PageBytes;
use crate::fingerprint::{Description, Fingerprint};
use crate::layout::{Class, Slot};
use crate::page_ref::{OwnedPageRef, PageRef, PageRefKind};
use crate::store::PageStore;

/// Result of the verification of some slabs.
#[derive(Debug, Default)]
pub struct Verified {
    /// Number of intact pages, and number of bytes read.
    pub page_count: u64,
    pub bytes: u64,
    /// Pages whose contents are damaged, with a reference each: to be released, or kept so that the
    /// memory is not used again.
    pub damaged: Vec<OwnedPageRef>,
    /// There are more slabs.
    pub has_more: bool,
}

impl PageStore {
    /// Verifies the pages in slabs `first..first + count`. The caller must hold neither a pin nor a
    /// lane.
    pub fn verify_slabs(&self, first: u32, count: u32) -> Verified {
        let slab_count = self.core.memory.layout.slab_count();
        let end = slab_count.min(first.saturating_add(count));
        let mut verified = Verified { has_more: end < slab_count, ..Verified::default() };
        for slab in first..end {
            let class = self.core.memory.slab_class(slab);
            if let Some(class) = class.filter(|class| class.has_pages()) {
                self.verify_slab(slab, class, &mut verified);
            }
        }
        verified
    }

    fn verify_slab(&self, slab: u32, class: Class, verified: &mut Verified) {
        let mut lane = self.lane();
        let mut scratch = [0; codec::BLOCK_BYTES];
        for slot in 0..class.shape().slot_count {
            let Some(page) = self.hold_slot(Slot { slab, slot, class }) else { continue };
            verified.bytes += class.shape().slot_bytes;
            if self.is_intact(&page, &mut scratch) {
                verified.page_count += 1;
                lane.give_back(page);
            } else {
                verified.damaged.push(page);
            }
        }
    }

    /// Takes a reference to the page in a slot. Returns `None` if there is none, or its count is at
    /// the maximum.
    fn hold_slot(&self, at: Slot) -> Option<OwnedPageRef> {
        let memory = &self.core.memory;
        // Slabs change their class a grace period after their word in the slab table was cleared.
        let _pinned = memory.grace.pin();
        if !memory.is_named(at) {
            return None;
        }
        let description = counted::try_hold(memory.slot_word_to_store(at))?;
        Some(OwnedPageRef(PageRef::described(at, Description::from_bits(description))))
    }

    /// Returns whether a page still has its stored contents. `scratch` is overwritten.
    pub fn is_intact(&self, page: &OwnedPageRef, scratch: &mut Block) -> bool {
        let bytes = self.held_page(page);
        bytes.is_ok_and(|bytes| self.verify_bytes(page.page_ref(), bytes, scratch).is_ok())
    }

    /// Returns whether these are the contents that were stored in the page. Always false for a page
    /// without a fingerprint, which cannot be compared.
    pub fn is_of_page(&self, page: &OwnedPageRef, contents: &Block) -> bool {
        let stored = self.stored_fingerprint(page.page_ref());
        stored.is_some_and(|stored| stored == self.core.fingerprinter.of(contents))
    }

    /// Reads like `read_page`, and verifies the result.
    pub fn read_verified(
        &self,
        pinned: &Pinned<'_>,
        page: PageRef,
        into: &mut Block,
    ) -> Result<(), DecodeError> {
        self.read_page(pinned, page, into)?;
        self.verify(page, into)
    }

    /// Verifies contents that were read through a reference, under a pin that is still held.
    pub fn verify(&self, page: PageRef, contents: &Block) -> Result<(), DecodeError> {
        let Some(at) = page.slot().filter(|_| page.kind() == PageRefKind::Page) else {
            return Ok(());
        };
        let word = self.core.memory.slot_word(at, Ordering::Relaxed);
        let is_intact = match Description::in_word(word).fingerprint() {
            Some(stored) => stored == self.core.fingerprinter.of(contents),
            // Pages of earlier releases may have none. Free slots that never held a page have none
            // either: only a damaged entry refers to one.
            None => counted::count_of(word) > 0,
        };
        if is_intact { Ok(()) } else { Err(DecodeError) }
    }

    /// Returns the contents of a reference, where they are stored, after verification. Encoded
    /// contents are decoded into `scratch`. The reference was read under this pin.
    pub fn verified_page<'seen>(
        &'seen self,
        pinned: &'seen Pinned<'_>,
        page: PageRef,
        scratch: &mut Block,
    ) -> Result<PageBytes<'seen>, DecodeError> {
        let bytes = self.page(pinned, page)?;
        self.verify_bytes(page, bytes, scratch)?;
        Ok(bytes)
    }

    fn verify_bytes(
        &self,
        page: PageRef,
        bytes: PageBytes<'_>,
        scratch: &mut Block,
    ) -> Result<(), DecodeError> {
        match bytes {
            PageBytes::Fill(_) => Ok(()),
            PageBytes::Raw(bytes) => self.verify(page, bytes),
            PageBytes::Encoded(bytes) => {
                codec::decode(bytes, scratch)?;
                self.verify(page, scratch)
            }
            PageBytes::Dense(bytes) => {
                codec::decode_dense(bytes, scratch)?;
                self.verify(page, scratch)
            }
        }
    }

    fn stored_fingerprint(&self, page: PageRef) -> Option<Fingerprint> {
        let at = page.slot().filter(|_| page.kind() == PageRefKind::Page)?;
        self.core.memory.description(at).fingerprint()
    }
}
