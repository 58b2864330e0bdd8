//! Compressing pages that were stored as they are, in the background.
//!
//! ```text
//!  store_page ─▶ untried ──┬─ shrinks ──────▶ a compressed page, which entries move to one by one
//!                          └─ does not ─────▶ tried: stays as it is
//! ```
//!
//! The page's slot says whether it is untried, and so does every entry that names it. A page is
//! tried without any lock, while a reference keeps it; then each entry that still names it is
//! changed by itself. A kill in between leaves entries with either page, and leaks at worst.

use std::ops::Range;

use codec::{Block, Encoder};
use sync::Pinned;

use crate::core::PageBytes;
use crate::dedup::Search;
use crate::error::NoSpace;
use crate::fingerprint::Description;
use crate::lane::Lane;
use crate::layout::{Class, Slot, packed_bytes_max};
use crate::page_ref::{NodeRef, OwnedPageRef, PageRef};
use crate::purpose::Purpose;
use crate::store::PageStore;

/// Tries pages, some at a time. References keep them until [`Lane::end_batch`] is called.
#[derive(Debug)]
pub struct Compressor {
    encoder: Encoder,
    scratch: Box<Block>,
    encodings: Vec<u8>,
    held: Vec<OwnedPageRef>,
}

/// Outcome of an attempt on an entry that names an untried page.
#[derive(Debug)]
#[must_use = "an attempt may hold a reference to be published"]
pub enum Attempt {
    /// It names no page that is there, or one that is damaged: the entry stays as it is.
    Damaged,
    /// The page stays as it is; the entry loses bit u.
    Keep,
    /// A compressed page takes its place.
    Shrink(Shrunk),
}

/// State of a page that was untried. Must go to [`Lane::store_shrunk`].
#[derive(Debug)]
pub struct Shrunk {
    raw: Slot,
    /// What the slot said of it, once tried.
    description: Description,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// A reference to a compressed page of the same contents.
    Stored(OwnedPageRef),
    /// Where the encoding lies among the compressor's.
    Encoded(Range<usize>),
}

impl Compressor {
    pub fn new() -> Self {
        Self {
            encoder: Encoder::new(),
            scratch: Box::new([0; codec::BLOCK_BYTES]),
            encodings: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Tries to compress the page of an entry that was read under this pin and is untried.
    pub fn attempt(&mut self, store: &PageStore, pinned: &Pinned<'_>, page: PageRef) -> Attempt {
        let core = &store.core;
        let (Ok(PageBytes::Raw(contents)), Some(at)) =
            (core.stored_page(pinned, page), page.slot())
        else {
            return Attempt::Damaged;
        };
        // A page of as many references as can be counted saves too little for the trouble.
        let Some(description) = core.memory.try_share(at, Description::is_untried) else {
            return Attempt::Keep;
        };
        self.held.push(OwnedPageRef(page));
        // The new page is described as this one: it must have the same contents.
        if store.verify(page, contents).is_err() {
            return Attempt::Damaged;
        }
        match self.form(store, pinned, contents, description) {
            Some(form) => Attempt::Shrink(Shrunk { raw: at, description, form }),
            None => {
                core.memory.redescribe(at, Description::as_tried);
                Attempt::Keep
            }
        }
    }

    fn form(
        &mut self,
        store: &PageStore,
        pinned: &Pinned<'_>,
        contents: &Block,
        description: Description,
    ) -> Option<Form> {
        if !codec::is_worth_encoding(contents) {
            return None;
        }
        if let Some(fingerprint) = description.hint() {
            let (scratch, others) = (&mut *self.scratch, &mut self.held);
            let search = Search { contents, fingerprint, scratch, others };
            // In slots of the raw class nearly all pages are as they are: not worth a look.
            let known = store.core.share_equal(pinned, search, |at| at.class != Class::RAW);
            if let Some(page) = known {
                return Some(Form::Stored(page));
            }
        }
        let encoded = self.encoder.encode_thoroughly(contents, packed_bytes_max())?;
        let start = self.encodings.len();
        self.encodings.extend_from_slice(encoded);
        Some(Form::Encoded(start..self.encodings.len()))
    }
}

impl Attempt {
    /// Returns whether it made an encoding that is not stored yet.
    pub fn is_new(&self) -> bool {
        matches!(self, Self::Shrink(Shrunk { form: Form::Encoded(_), .. }))
    }
}

impl Default for Compressor {
    fn default() -> Self {
        Self::new()
    }
}

impl Lane<'_> {
    /// Stores what an untried page has become. The caller owns the reference that is returned.
    /// Writers find the compressed page from now on.
    pub fn store_shrunk(
        &mut self,
        pinned: &Pinned<'_>,
        compressor: &Compressor,
        shrunk: Shrunk,
    ) -> Result<OwnedPageRef, NoSpace> {
        let Shrunk { raw, description, form } = shrunk;
        let range = match form {
            Form::Stored(page) => return Ok(page),
            Form::Encoded(range) => range,
        };
        let encoded = &compressor.encodings[range];
        // In a slot of a packed class: one of the raw class would win nothing.
        let is_packed = |class| class != Class::RAW;
        let encoding = description.with_length(encoded.len());
        let page = self.store_encoded(encoded, Purpose::Housekeeping, encoding, is_packed)?;
        self.lead_to(pinned, description, raw, &page);
        Ok(page)
    }

    /// Has the dedup index lead to a page in place of the slot from which its contents come.
    pub(crate) fn lead_to(
        &self,
        pinned: &Pinned<'_>,
        description: Description,
        from: Slot,
        page: &OwnedPageRef,
    ) {
        if let (Some(at), Some(fingerprint)) = (page.0.slot(), description.hint()) {
            self.core.index.remove(&self.core.memory, pinned, fingerprint, from);
            self.core.index.insert(&self.core.memory, pinned, fingerprint, at);
        }
    }

    /// Has the dedup index lead to a page too: other entries go on to name the one it led to.
    pub(crate) fn lead_also_to(
        &self,
        pinned: &Pinned<'_>,
        description: Description,
        page: &OwnedPageRef,
    ) {
        if let (Some(at), Some(fingerprint)) = (page.0.slot(), description.hint()) {
            self.core.index.insert(&self.core.memory, pinned, fingerprint, at);
        }
    }

    /// Lets go of the pages that were tried, and of their encodings.
    pub fn end_batch(&mut self, compressor: &mut Compressor) {
        compressor.encodings.clear();
        for page in compressor.held.drain(..) {
            self.give_back(page);
        }
    }

    /// Entry `index` of a leaf names a page that was tried: says so. Returns what the entry said
    /// before and after. The caller keeps other writers of the entry away.
    pub fn settle_tried(&mut self, leaf: NodeRef, index: usize) -> (PageRef, PageRef) {
        self.reword(leaf, index, PageRef::as_tried)
    }
}
