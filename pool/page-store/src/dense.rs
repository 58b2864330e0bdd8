//! The dense form: idle pages, encoded again to save memory.
//!
//! ```text
//!  uncompressed, or LZ4 ─── not read for a while ───▶ dense
//!          ▲                                            │
//!          └───────────────── read ─────────────────────┘
//! ```
//!
//! Pages change their form as in `crate::compress`: a page of the other form replaces it in one
//! entry after the other, and a kill in between leaves entries with either.
//!
//! Releases that do not know the form must not open a pool with such pages:
//! [`PageStore::begin_dense`] marks the pool before the first is stored.

use std::ops::Range;

use codec::{Block, DenseEncoder, Encoder};
use sync::Pinned;

use crate::core::PageBytes;
use crate::dedup::Search;
use crate::dense_form::HEAD_BYTES;
use crate::error::NoSpace;
use crate::fingerprint::Description;
use crate::lane::Lane;
use crate::layout::{Class, Slot, packed_bytes_max};
use crate::page_ref::{OwnedPageRef, PageRef};
use crate::purpose::Purpose;
use crate::store::PageStore;

/// Minimum share of a slot that the dense form must save. Otherwise the page keeps its form.
const SAVED_SHARE: u64 = 16;

/// Compressor that encodes pages again, in batches. References keep the pages until
/// [`Lane::end_reencoding`] is called.
#[derive(Debug)]
pub struct DenseCompressor {
    /// Created when the first page is to be encoded.
    dense: Option<DenseEncoder>,
    encoder: Encoder,
    scratch: Box<Block>,
    /// Contents decoded for verification, or those of another page.
    decoded: Box<Block>,
    encodings: Vec<u8>,
    held: Vec<OwnedPageRef>,
}

/// Other form of a page. Must be passed to [`Lane::store_reencoded`].
#[derive(Debug)]
#[must_use = "it may hold a reference to be published"]
pub struct Reencoded {
    from: Slot,
    /// Description of the slot.
    description: Description,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// Reference to a page with the same contents in the wanted form.
    Stored(OwnedPageRef),
    /// Range of the bytes in the compressor's buffer.
    Dense(Range<usize>),
    Encoded(Range<usize>),
    Raw(Range<usize>),
}

impl DenseCompressor {
    pub fn new() -> Self {
        Self {
            dense: None,
            encoder: Encoder::new(),
            scratch: Box::new([0; codec::BLOCK_BYTES]),
            decoded: Box::new([0; codec::BLOCK_BYTES]),
            encodings: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Number of pages processed since [`Lane::end_reencoding`] was called.
    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    /// Encodes the page of an entry, read under this pin, in the dense form. Returns `None` if the
    /// page keeps its form, because that saves too little, the page is damaged, or it has several
    /// references, through which it may be read.
    pub fn make_dense(
        &mut self,
        store: &PageStore,
        pinned: &Pinned<'_>,
        page: PageRef,
    ) -> Option<Reencoded> {
        let core = &store.core;
        let at = core.memory.slot_of(page).filter(|at| at.class.has_pages())?;
        let may_be = !page.is_dense() && !page.is_untried() && !store.is_in_victim(page);
        if !may_be || core.memory.reference_count(at) != 1 {
            return None;
        }
        let may_be = |description: Description| !description.is_dense();
        let description = core.memory.try_share(at, may_be)?;
        self.held.push(OwnedPageRef(page));
        match core.stored_page(pinned, page).ok()? {
            PageBytes::Raw(block) if codec::is_worth_encoding(block) => *self.scratch = *block,
            PageBytes::Encoded(bytes) => codec::decode(bytes, &mut self.scratch).ok()?,
            PageBytes::Raw(_) | PageBytes::Dense(_) | PageBytes::Fill(_) => return None,
        }
        // The new page inherits this description, so it must have the same contents.
        store.verify(page, &self.scratch).ok()?;
        if let Some(fingerprint) = description.hint() {
            let (contents, scratch, others) = (&*self.scratch, &mut *self.decoded, &mut self.held);
            let search = Search { contents, fingerprint, scratch, others };
            let is_dense = |at| core.memory.description(at).is_dense();
            if let Some(page) = core.share_equal(pinned, search, is_dense) {
                return Some(Reencoded { from: at, description, form: Form::Stored(page) });
            }
        }
        self.encode_dense(at.class).map(|form| Reencoded { from: at, description, form })
    }

    /// Encodes the decoded contents of a slot of this class, if that saves enough.
    fn encode_dense(&mut self, class: Class) -> Option<Form> {
        if self.dense.is_none() {
            self.dense = DenseEncoder::new();
        }
        let encoded = self.dense.as_mut()?.encode(&self.scratch, dense_bytes_max(class))?;
        let to = Class::packed_for(HEAD_BYTES + encoded.len())?;
        if to.shape().slot_bytes >= class.shape().slot_bytes {
            return None;
        }
        let start = self.encodings.len();
        self.encodings.push(class.id());
        self.encodings.extend_from_slice(encoded);
        // Verified, because the replaced page may be the only copy of the contents.
        let kept = &self.encodings[start + HEAD_BYTES..];
        let is_same = codec::decode_dense(kept, &mut self.decoded).is_ok();
        (is_same && self.decoded == self.scratch)
            .then_some(Form::Dense(start..self.encodings.len()))
    }

    /// Converts the page of an entry, read under this pin, from the dense form. Returns `None` if
    /// it has another form, or is damaged.
    pub fn make_readable(
        &mut self,
        store: &PageStore,
        pinned: &Pinned<'_>,
        page: PageRef,
    ) -> Option<Reencoded> {
        let core = &store.core;
        let at = core.memory.slot_of(page).filter(|_| page.is_dense())?;
        let description = core.memory.try_share(at, Description::is_dense)?;
        self.held.push(OwnedPageRef(page));
        let PageBytes::Dense(bytes) = core.stored_page(pinned, page).ok()? else { return None };
        let mut contents = [0; codec::BLOCK_BYTES];
        codec::decode_dense(bytes, &mut contents).ok()?;
        store.verify(page, &contents).ok()?;
        let form = self.readable_form(store, pinned, &contents, description);
        Some(Reencoded { from: at, description, form })
    }

    fn readable_form(
        &mut self,
        store: &PageStore,
        pinned: &Pinned<'_>,
        contents: &Block,
        description: Description,
    ) -> Form {
        let core = &store.core;
        if let Some(fingerprint) = description.hint() {
            let (scratch, others) = (&mut *self.scratch, &mut self.held);
            let search = Search { contents, fingerprint, scratch, others };
            let is_readable = |at| !core.memory.description(at).is_dense();
            if let Some(page) = core.share_equal(pinned, search, is_readable) {
                return Form::Stored(page);
            }
        }
        let start = self.encodings.len();
        match self.encoder.encode_thoroughly(contents, packed_bytes_max()) {
            Some(encoded) => {
                self.encodings.extend_from_slice(encoded);
                Form::Encoded(start..self.encodings.len())
            }
            None => {
                self.encodings.extend_from_slice(contents);
                Form::Raw(start..self.encodings.len())
            }
        }
    }
}

impl Default for DenseCompressor {
    fn default() -> Self {
        Self::new()
    }
}

/// Maximum length of a dense encoding that saves enough over a slot of this class.
fn dense_bytes_max(class: Class) -> usize {
    let slot_bytes = class.shape().slot_bytes;
    let slot_bytes_max = slot_bytes - slot_bytes / SAVED_SHARE;
    let bytes_max = usize::try_from(slot_bytes_max).expect("slots are small");
    bytes_max.min(packed_bytes_max()) - HEAD_BYTES
}

impl PageStore {
    /// Marks the pool as one that may have pages in the dense form. Releases that do not know it
    /// reject the pool from now on.
    pub fn begin_dense(&self) {
        let memory = &self.core.memory;
        if !memory.superblock().may_have_dense {
            memory.change_superblock(|superblock| superblock.may_have_dense = true);
        }
    }
}

impl Lane<'_> {
    /// Stores a page in its other form. The caller owns the returned reference. Writers find that
    /// page from now on. [`PageStore::begin_dense`] must be called before a dense page is stored.
    pub fn store_reencoded(
        &mut self,
        pinned: &Pinned<'_>,
        compressor: &DenseCompressor,
        reencoded: Reencoded,
    ) -> Result<OwnedPageRef, NoSpace> {
        let Reencoded { from, description, form } = reencoded;
        let purpose = Purpose::Housekeeping;
        let page = match form {
            Form::Stored(page) => return Ok(page),
            Form::Dense(range) => {
                let encoded = &compressor.encodings[range];
                let dense = description.with_dense_length(encoded.len());
                let slot_bytes = from.class.shape().slot_bytes;
                let is_smaller =
                    |class: Class| class != Class::RAW && class.shape().slot_bytes < slot_bytes;
                self.store_encoded(encoded, purpose, dense, is_smaller)?
            }
            Form::Encoded(range) => {
                let encoded = &compressor.encodings[range];
                let encoding = description.with_length(encoded.len());
                self.store_encoded(encoded, purpose, encoding, |_| true)?
            }
            Form::Raw(range) => {
                let contents = compressor.encodings[range].try_into().expect("a block was kept");
                let at = self.stream_raw(contents, purpose).ok_or(NoSpace)?;
                self.publish_raw(at, description.with_length(0))
            }
        };
        // The count includes the compressor's reference, and the entry that gets the new page.
        if self.core.memory.reference_count(from) > 2 {
            self.lead_also_to(pinned, description, &page);
        } else {
            self.lead_to(pinned, description, from, &page);
        }
        Ok(page)
    }

    /// Releases the processed pages, and their encodings.
    pub fn end_reencoding(&mut self, compressor: &mut DenseCompressor) {
        compressor.encodings.clear();
        for page in compressor.held.drain(..) {
            self.give_back(page);
        }
    }
}
