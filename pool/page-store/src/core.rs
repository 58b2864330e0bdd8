//! What all parts of a pool work on: memory, the dedup index, and references coming to their end.

use codec::DecodeError;
use sync::atomic::Ordering;
use sync::{Striped, counted};

use crate::deferred::Deferred;
use crate::fingerprint::{Fingerprinter, described_hint};
use crate::index::DedupIndex;
use crate::layout::{Class, Slot};
use crate::memory::{Keeps, Memory};
use crate::page_ref::PageRef;

/// Bytes that memory moves at a time.
const LINE_BYTES: usize = 64;

/// A page's contents where they are stored.
#[derive(Clone, Copy, Debug)]
pub enum PageBytes<'seen> {
    /// One pattern, over and over.
    Fill(u32),
    /// The block itself.
    Raw(&'seen codec::Block),
    /// The block in LZ4's block format.
    Encoded(&'seen [u8]),
}

/// What all parts of a pool work on.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) memory: Memory,
    pub(crate) index: DedupIndex,
    pub(crate) fingerprinter: Fingerprinter,
    /// Live slots by class, in a part for each lane.
    pub(crate) live: Box<[Striped]>,
    pub(crate) deferred: Deferred,
}

impl Core {
    /// The bytes of a page, if what the entry says of it can be.
    #[inline]
    pub(crate) fn stored_page<'seen>(
        &'seen self,
        kept: &'seen impl Keeps,
        entry: PageRef,
    ) -> Result<PageBytes<'seen>, DecodeError> {
        let at = entry.slot().ok_or(DecodeError)?;
        let length = entry.length_bytes();
        if length == 0 && at.class == Class::RAW && self.memory.layout.has_large(at.slab, at.slot) {
            return Ok(PageBytes::Raw(self.memory.large_slot_bytes(kept, at)));
        }
        if !self.memory.layout.has(at) {
            return Err(DecodeError);
        }
        if length as u64 > at.class.shape().slot_bytes {
            return Err(DecodeError);
        }
        if length == 0 {
            return Err(DecodeError);
        }
        // What a decoder reads decides where it reads next: it would wait for each line.
        let start = self.memory.layout.slot(at);
        for line in (0..length as u64).step_by(LINE_BYTES) {
            self.memory.region.prefetch(start + line);
        }
        Ok(PageBytes::Encoded(self.memory.slot_bytes(kept, at, length)))
    }

    /// Brings near what releasing a reference looks at first.
    pub(crate) fn prefetch_word(&self, at: Slot) {
        self.memory.region.prefetch(self.memory.layout.slot_word(at));
    }

    /// Brings near what releasing the last reference looks at next. The word is near already.
    pub(crate) fn prefetch_hint(&self, at: Slot) {
        let word =
            self.memory.region.word(self.memory.layout.slot_word(at)).load(Ordering::Relaxed);
        if counted::count_of(word) == 1
            && let Some(fingerprint) = described_hint(counted::description_of(word))
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
        let word = self.memory.region.word_to_store(self.memory.layout.slot_word(at));
        if counted::drop_but_last(word, references) {
            match self.has_children(at) {
                true => self.deferred.push(at),
                false => self.release_alone(at, 1, lane),
            }
        }
    }

    /// The same where what a node names is no reference any more, or is given back by somebody
    /// else. Entries in a damaged region may name what is not there: that is left alone.
    pub(crate) fn release_alone(&self, at: Slot, references: u64, lane: usize) {
        if !self.memory.is_named(at) {
            return;
        }
        let word = self.memory.region.word_to_store(self.memory.layout.slot_word(at));
        if let Some(description) = counted::drop_many(word, references) {
            if let Some(fingerprint) = described_hint(description) {
                self.index.remove(&self.memory, &self.memory.grace.pin(), fingerprint, at);
            }
            self.live[at.class.index()].add(lane, -1);
            self.memory.book.credit(at.slab, at.class, self.memory.book_context());
        }
    }
}
