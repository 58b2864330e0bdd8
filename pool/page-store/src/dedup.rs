//! Search for contents that are already stored.

use codec::Block;
use sync::Pinned;

use crate::core::{Core, PageBytes};
use crate::fingerprint::{Description, Fingerprint};
use crate::layout::Slot;
use crate::page_ref::{OwnedPageRef, PageRef};

/// Maximum number of pages compared for one write, which bounds the cost of contents made to
/// collide.
const COMPARISONS_MAX: usize = 2;

/// Contents to search for, and buffers for the search.
pub(crate) struct Search<'search> {
    pub(crate) contents: &'search Block,
    pub(crate) fingerprint: Fingerprint,
    /// Buffer that is overwritten.
    pub(crate) scratch: &'search mut Block,
    /// Receives a reference to each page that was compared and has other contents.
    pub(crate) others: &'search mut Vec<OwnedPageRef>,
}

impl Core {
    /// Searches for a page with the same contents, in a slot that `will_do` accepts, and takes a
    /// reference to it.
    pub(crate) fn share_equal(
        &self,
        pinned: &Pinned<'_>,
        search: Search<'_>,
        will_do: impl Fn(Slot) -> bool,
    ) -> Option<OwnedPageRef> {
        let Search { contents, fingerprint, scratch, others } = search;
        let hints = self.index.hints(&self.memory, pinned, fingerprint);
        let pages =
            hints.filter(|&at| will_do(at)).filter_map(|at| self.share_hinted(at, fingerprint));
        for page in pages.take(COMPARISONS_MAX) {
            let is_equal = match self.stored_page(pinned, page) {
                Ok(PageBytes::Raw(bytes)) => bytes == contents,
                Ok(PageBytes::Encoded(bytes)) => {
                    codec::decode(bytes, scratch).is_ok() && scratch == contents
                }
                Ok(PageBytes::Dense(bytes)) => is_dense_form_of(bytes, contents, scratch),
                Ok(PageBytes::Fill(_)) | Err(_) => false,
            };
            if is_equal {
                return Some(OwnedPageRef(page));
            }
            others.push(OwnedPageRef(page));
        }
        None
    }

    /// Takes a reference to the page that a hint refers to, if it has the fingerprint.
    fn share_hinted(&self, at: Slot, fingerprint: Fingerprint) -> Option<PageRef> {
        if !self.memory.layout.has(at)
            || !self.memory.is_named(at)
            || self.memory.book.is_victim(at.slab, at.class)
        {
            return None;
        }
        let is_wanted = |description: Description| description.hint() == Some(fingerprint);
        let description = self.memory.try_share(at, is_wanted)?;
        Some(PageRef::described(at, description))
    }
}

#[cold]
#[inline(never)]
fn is_dense_form_of(bytes: &[u8], contents: &Block, scratch: &mut Block) -> bool {
    codec::decode_dense(bytes, scratch).is_ok() && scratch == contents
}
