//! State that all parts of a pool work on: memory, the dedup index, and references coming to their
//! end.

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

/// Bytes that memory moves at a time.
const LINE_BYTES: usize = 64;

/// How many references ahead a slot's word is asked for, and then what it leads to.
const FAR_AHEAD: usize = 16;
const NEAR_AHEAD: usize = 8;

/// A page's contents where they are stored.
#[derive(Clone, Copy, Debug)]
pub enum PageBytes<'seen> {
    /// One pattern, over and over.
    Fill(u32),
    /// The block itself.
    Raw(&'seen codec::Block),
    /// The block in LZ4's block format.
    Encoded(&'seen [u8]),
    /// The block in the dense form.
    Dense(&'seen [u8]),
}

/// State that all parts of a pool work on.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) memory: Memory,
    pub(crate) index: DedupIndex,
    pub(crate) fingerprinter: Fingerprinter,
    pub(crate) deferred: Deferred,
}

impl Core {
    /// The bytes of a page, if what the reference says of it can be.
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
        // What a decoder reads decides where it reads next: it would wait for each line.
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

    /// Brings near what releasing a reference looks at first.
    pub(crate) fn prefetch_word(&self, at: Slot) {
        self.memory.region.prefetch(self.memory.layout.slot_word(at));
    }

    /// Brings near what releasing references looks at that come so many places after the one that
    /// is released now: the words, and then the hints of those that are last.
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

    /// Gives a reference back that no map holds. The caller holds the lane of this index.
    pub(crate) fn release(&self, at: Slot, lane: usize) {
        self.release_many(at, 1, lane);
    }

    /// Gives `references` back at once. With the last of a node go those that it names: later, if
    /// there are any.
    pub(crate) fn release_many(&self, at: Slot, references: u64, lane: usize) {
        match at.class == Class::NODE {
            true => self.release_node(at, references, lane),
            false => self.release_alone(at, references, lane),
        }
    }

    /// A node that names something keeps its last reference until that is given back: its slot must
    /// not look free before.
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

    /// The same where what a node names is no reference any more, or is given back apart. Entries
    /// in a damaged region may name what is not there: that is left alone.
    pub(crate) fn release_alone(&self, at: Slot, references: u64, lane: usize) {
        if !self.memory.is_named(at) {
            return;
        }
        let word = self.memory.slot_word_to_store(at);
        // Looked at while the references still keep it.
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

    /// Gives back what a node names to which no map has a reference, and then the node. The caller
    /// holds the lane of this index.
    pub(crate) fn release_tree(&self, node: Slot, lane: usize) {
        let entries = self.memory.entries_of(NodeRef(node));
        let children: Vec<Slot> = entries.filter_map(|entry| self.memory.slot_of(entry)).collect();
        {
            // Pinned, so that the index's buckets that are asked for stay what they are.
            let _pinned = self.memory.grace.pin();
            for (index, &child) in children.iter().enumerate() {
                self.prefetch_release(|distance| children.get(index + distance).copied());
                self.release(child, lane);
            }
        }
        self.release_alone(node, 1, lane);
    }
}
