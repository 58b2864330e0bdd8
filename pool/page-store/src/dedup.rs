//! Finding contents that are stored already.

use codec::Block;
use sync::{Pinned, counted};

use crate::core::Core;
use crate::fingerprint::described_hint;
use crate::layout::{Class, Slot};
use crate::page_ref::{OwnedPageRef, PageRef};

/// Pages compared for one write at most: contents made to collide cost no more than that.
const COMPARISONS_MAX: usize = 2;

impl Core {
    /// Looks for a page of the same contents and takes a reference to it. `scratch` is
    /// overwritten. The caller holds the lane of this index.
    pub(crate) fn share_equal(
        &self,
        pinned: &Pinned<'_>,
        contents: &Block,
        fingerprint: u32,
        (scratch, lane): (&mut Block, usize),
    ) -> Option<PageRef> {
        let mut comparisons = 0;
        for at in self.index.hints(&self.memory, pinned, fingerprint) {
            let Some(entry) = self.share_hinted(at, fingerprint) else { continue };
            if self.is_equal(pinned, entry, contents, scratch) {
                return Some(entry);
            }
            self.release(at, lane);
            comparisons += 1;
            if comparisons == COMPARISONS_MAX {
                break;
            }
        }
        None
    }

    /// Takes a reference to the page that a hint leads to, if it has the fingerprint.
    fn share_hinted(&self, at: Slot, fingerprint: u32) -> Option<PageRef> {
        if !self.memory.layout.has(at)
            || !self.memory.is_named(at)
            || self.memory.book.is_victim(at.slab, at.class)
        {
            return None;
        }
        let word = self.memory.region.word_to_store(self.memory.layout.slot_word(at));
        let is_wanted = |description| described_hint(description) == Some(fingerprint);
        let description = counted::try_share(word, is_wanted)?;
        Some(PageRef::described(at, description))
    }

    /// Looks for a compressed page of the same contents and takes a reference to it. `scratch` is
    /// overwritten. References to other pages that were compared go to `others`.
    pub(crate) fn share_compressed(
        &self,
        pinned: &Pinned<'_>,
        contents: &Block,
        fingerprint: u32,
        (scratch, others): (&mut Block, &mut Vec<OwnedPageRef>),
    ) -> Option<PageRef> {
        let hints = self.index.hints(&self.memory, pinned, fingerprint);
        // In slots of the raw class nearly all pages are as they are: not worth a look.
        for at in hints.filter(|at| at.class != Class::RAW).take(COMPARISONS_MAX) {
            let Some(entry) = self.share_hinted(at, fingerprint) else { continue };
            if self.is_equal(pinned, entry, contents, scratch) {
                return Some(entry);
            }
            others.push(OwnedPageRef(entry));
        }
        None
    }

    /// Whether the page that the caller holds a reference to has these contents.
    fn is_equal(
        &self,
        pinned: &Pinned<'_>,
        entry: PageRef,
        contents: &Block,
        scratch: &mut Block,
    ) -> bool {
        let at = entry.slot().expect("the entry of a page");
        match entry.length_bytes() {
            0 => self.memory.slot_bytes(pinned, at, contents.len()) == contents,
            length => {
                let encoded = self.memory.slot_bytes(pinned, at, length);
                codec::decode(encoded, scratch).is_ok() && scratch == contents
            }
        }
    }
}
