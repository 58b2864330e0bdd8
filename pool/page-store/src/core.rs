//! State shared by all parts of a pool: memory, the dedup index, and the release of references.

use codec::DecodeError;
use sync::atomic::Ordering;
use sync::counted;

use crate::deferred::Deferred;
use crate::dense_form;
use crate::fingerprint::{Description, Fingerprinter};
use crate::index::DedupIndex;
use crate::layout::{Class, Slot};
use crate::memory::{Keeps, Memory};
use crate::page_ref::{NodeRef, PageRef};

/// Size of a cache line in bytes.
const LINE_BYTES: usize = 64;

/// Number of references ahead for which a slot's word is prefetched, and then its index bucket.
const FAR_AHEAD: usize = 16;
const NEAR_AHEAD: usize = 8;

/// Contents of a page as they are stored.
#[derive(Clone, Copy, Debug)]
pub enum PageBytes<'seen> {
    /// A repeated pattern.
    Fill(u32),
    /// The block itself.
    Raw(&'seen codec::Block),
    /// The block in LZ4's block format.
    Encoded(&'seen [u8]),
    /// The block in the dense form.
    Dense(&'seen [u8]),
}

/// State shared by all parts of a pool.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) memory: Memory,
    pub(crate) index: DedupIndex,
    pub(crate) fingerprinter: Fingerprinter,
    pub(crate) deferred: Deferred,
}

impl Core {
    /// Returns the bytes of a page, if the reference is plausible.
    #[inline]
    pub(crate) fn stored_page<'seen>(
        &'seen self,
        kept: &'seen impl Keeps,
        page: PageRef,
    ) -> Result<PageBytes<'seen>, DecodeError> {
        let at = page.slot().ok_or(DecodeError)?;
        let length = page.length_bytes();
        if length == 0 && at.class == Class::RAW && self.memory.layout.has_large(at.slab, at.slot) {
            return Ok(PageBytes::Raw(self.memory.large_slot_bytes(kept, at)));
        }
        let is_encoding = length > 0 && length as u64 <= at.class.shape().slot_bytes;
        if !is_encoding || !self.memory.layout.has(at) {
            return Err(DecodeError);
        }
        // A decoder's reads depend on the bytes read before: it would wait for each line.
        let start = self.memory.layout.slot(at);
        for line in (0..length as u64).step_by(LINE_BYTES) {
            self.memory.region.prefetch(start + line);
        }
        let bytes = self.memory.slot_bytes(kept, at, length);
        if page.is_dense() {
            return dense_form::frame_in(bytes).map(PageBytes::Dense);
        }
        Ok(PageBytes::Encoded(bytes))
    }

    /// Prefetches the word that the release of a reference reads first.
    pub(crate) fn prefetch_word(&self, at: Slot) {
        self.memory.region.prefetch(self.memory.layout.slot_word(at));
    }

    /// Prefetches for releases that follow the current one: the words, and then the index buckets
    /// of last references.
    #[inline]
    pub(crate) fn prefetch_release(&self, after: impl Fn(usize) -> Option<Slot>) {
        if let Some(far) = after(FAR_AHEAD) {
            self.prefetch_word(far);
        }
        let Some(near) = after(NEAR_AHEAD) else { return };
        let word = self.memory.slot_word(near, Ordering::Relaxed);
        if counted::count_of(word) == 1
            && let Some(fingerprint) = Description::in_word(word).hint()
        {
            self.index.prefetch(&self.memory, fingerprint);
        }
    }

    /// Releases a reference that no map holds. The caller holds the lane of this index.
    pub(crate) fn release(&self, at: Slot, lane: usize) {
        self.release_many(at, 1, lane);
    }

    /// Releases `references` at once. With the last reference of a node, the references in its
    /// entries are released too: later, if there are any.
    pub(crate) fn release_many(&self, at: Slot, references: u64, lane: usize) {
        match at.class == Class::NODE {
            true => self.release_node(at, references, lane),
            false => self.release_alone(at, references, lane),
        }
    }

    /// Releases references of a node. A node with references in its entries keeps its last
    /// reference until those are released, because its slot must not appear free before.
    fn release_node(&self, at: Slot, references: u64, lane: usize) {
        if !self.memory.is_named(at) {
            return;
        }
        if counted::drop_but_last(self.memory.slot_word_to_store(at), references) {
            let names_any = self.memory.entries_of(NodeRef(at)).any(|entry| entry.slot().is_some());
            match names_any {
                true => self.deferred.push_node(at),
                false => self.release_alone(at, 1, lane),
            }
        }
    }

    /// Releases references of a page, or of a node whose entries are released separately. Entries
    /// in a damaged region may refer to missing pages, which are ignored.
    pub(crate) fn release_alone(&self, at: Slot, references: u64, lane: usize) {
        if !self.memory.is_named(at) {
            return;
        }
        let word = self.memory.slot_word_to_store(at);
        // Read while the references still keep the slot.
        let saved_bytes = match Description::in_word(word.load(Ordering::Relaxed)).is_dense() {
            true => self.memory.dense_saving(at),
            false => 0,
        };
        let dropped = counted::drop_many(word, references);
        if let Some(description) = dropped.map(Description::from_bits) {
            if let Some(fingerprint) = description.hint() {
                self.index.remove(&self.memory, &self.memory.grace.pin(), fingerprint, at);
            }
            self.memory.live[at.class.index()].add(lane, -1);
            if description.is_dense() {
                self.memory.dense.add(lane, -1, saved_bytes);
            }
            self.memory.credit(at);
        }
    }

    /// Releases the references in the entries of an unreferenced node, and then the node. The
    /// caller holds the lane of this index.
    pub(crate) fn release_tree(&self, node: Slot, lane: usize) {
        let entries = self.memory.entries_of(NodeRef(node));
        let children: Vec<Slot> = entries.filter_map(|entry| self.memory.slot_of(entry)).collect();
        {
            // Pinned, so that prefetched buckets of the index stay valid.
            let _pinned = self.memory.grace.pin();
            for (index, &child) in children.iter().enumerate() {
                self.prefetch_release(|distance| children.get(index + distance).copied());
                self.release(child, lane);
            }
        }
        self.release_alone(node, 1, lane);
    }
}
