//! Background compression of pages that were stored uncompressed.
//!
//! ```text
//!  store_page ─▶ untried ──┬─ compressible ──▶ a compressed page, to which entries move one by one
//!                          └─ incompressible ▶ tried: stays uncompressed
//! ```
//!
//! The page's slot records whether it is untried, and so does every entry that refers to it. A page
//! is tried without any lock, while a reference keeps it. Then each entry that still refers to it
//! is changed individually. A kill in between leaves entries with either page, and at worst leaks.

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

/// Compressor of pages, in batches. References keep the pages until [`Lane::end_batch`] is called.
#[derive(Debug)]
pub struct Compressor {
    encoder: Encoder,
    scratch: Box<Block>,
    encodings: Vec<u8>,
    held: Vec<OwnedPageRef>,
}

/// Outcome of an attempt for an entry that refers to an untried page.
#[derive(Debug)]
#[must_use = "an attempt may hold a reference to be published"]
pub enum Attempt {
    /// The entry refers to no existing page, or to a damaged one: it stays unchanged.
    Damaged,
    /// The page stays uncompressed. The entry loses bit u.
    Keep,
    /// A compressed page replaces it.
    Shrink(Shrunk),
}

/// Compressed form of an untried page. Must be passed to [`Lane::store_shrunk`].
#[derive(Debug)]
pub struct Shrunk {
    raw: Slot,
    /// Description of the slot, as tried.
    description: Description,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// Reference to a compressed page with the same contents.
    Stored(OwnedPageRef),
    /// Range of the encoding in the compressor's buffer.
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

    /// Tries to compress the page of an untried entry that was read under this pin.
    pub fn attempt(&mut self, store: &PageStore, pinned: &Pinned<'_>, page: PageRef) -> Attempt {
        let core = &store.core;
        let (Ok(PageBytes::Raw(contents)), Some(at)) =
            (core.stored_page(pinned, page), page.slot())
        else {
            return Attempt::Damaged;
        };
        // If the reference count is at its maximum, compression saves too little.
        let Some(description) = core.memory.try_share(at, Description::is_untried) else {
            return Attempt::Keep;
        };
        self.held.push(OwnedPageRef(page));
        // The new page inherits this description, so it must have the same contents.
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
            // Almost all pages in slots of the raw class are uncompressed, so they are skipped.
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
    /// Returns whether the attempt made an encoding that is not stored yet.
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
    /// Stores the compressed form of an untried page. The caller owns the returned reference.
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
        // In a slot of a packed class, because one of the raw class would save nothing.
        let is_packed = |class| class != Class::RAW;
        let encoding = description.with_length(encoded.len());
        let page = self.store_encoded(encoded, Purpose::Housekeeping, encoding, is_packed)?;
        self.lead_to(pinned, description, raw, &page);
        Ok(page)
    }

    /// Makes the dedup index refer to a page instead of the slot from which its contents come.
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

    /// Makes the dedup index refer to a page in addition, because other entries still use the
    /// previous one.
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

    /// Releases the pages that were tried, and their encodings.
    pub fn end_batch(&mut self, compressor: &mut Compressor) {
        compressor.encodings.clear();
        for page in compressor.held.drain(..) {
            self.give_back(page);
        }
    }

    /// Clears bit u of entry `index` of a leaf, whose page was tried. Returns the old and the new
    /// entry. The caller excludes other writers of the entry.
    pub fn settle_tried(&mut self, leaf: NodeRef, index: usize) -> (PageRef, PageRef) {
        self.reword(leaf, index, PageRef::as_tried)
    }
}
