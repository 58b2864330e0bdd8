//! What all parts of a pool work on: memory, the dedup index, and references coming to their end.

use std::cell::Cell;

use codec::DecodeError;
use sync::atomic::{AtomicUsize, Ordering};
use sync::{Pinned, Striped, counted};

use crate::entry::Entry;
use crate::fingerprint::{Fingerprinter, described_fingerprint};
use crate::index::DedupIndex;
use crate::layout::{Class, Slot};
use crate::memory::Memory;

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
}

impl Core {
    /// The bytes of a page, if what the entry says of it can be.
    #[inline]
    pub(crate) fn stored_page<'seen>(
        &'seen self,
        pinned: &'seen Pinned<'_>,
        entry: Entry,
    ) -> Result<PageBytes<'seen>, DecodeError> {
        let at = entry.slot().filter(|&at| self.memory.layout.has(at)).ok_or(DecodeError)?;
        let length = entry.length_bytes();
        if length as u64 > at.class.shape().slot_bytes {
            return Err(DecodeError);
        }
        if length != 0 {
            return Ok(PageBytes::Encoded(self.memory.slot_bytes(pinned, at, length)));
        }
        if at.class != Class::RAW {
            return Err(DecodeError);
        }
        let bytes = self.memory.slot_bytes(pinned, at, codec::BLOCK_BYTES);
        Ok(PageBytes::Raw(bytes.try_into().expect("a block was asked for")))
    }

    /// Gives a reference back that no map holds.
    pub(crate) fn release(&self, at: Slot) {
        self.release_in_lane(at, thread_number());
    }

    /// Brings near what releasing a reference looks at first.
    pub(crate) fn prefetch_word(&self, at: Slot) {
        self.memory.region.prefetch(self.memory.layout.slot_word(at));
    }

    /// Brings near what releasing the last reference looks at next. The word is near already.
    pub(crate) fn prefetch_hint(&self, at: Slot) {
        let word =
            self.memory.region.word(self.memory.layout.slot_word(at)).load(Ordering::Relaxed);
        let fingerprint = described_fingerprint(counted::description_of(word));
        if counted::count_of(word) == 1 && fingerprint != 0 {
            self.index.prefetch(&self.memory, fingerprint);
        }
    }

    pub(crate) fn release_in_lane(&self, at: Slot, lane: usize) {
        self.release_many(at, 1, lane);
    }

    /// Entries in a damaged region may name what is not there: that is left alone.
    pub(crate) fn release_many(&self, at: Slot, references: u64, lane: usize) {
        if !self.memory.is_named(at) {
            return;
        }
        let word = self.memory.region.word_to_store(self.memory.layout.slot_word(at));
        if let Some(description) = counted::drop_many(word, references) {
            let fingerprint = described_fingerprint(description);
            if fingerprint != 0 {
                self.index.remove(&self.memory, &self.memory.grace.pin(lane), fingerprint, at);
            }
            self.live[at.class.index()].add(lane, -1);
            self.memory.book.credit(at.slab, at.class, self.memory.book_context());
        }
    }
}

/// A small number that differs between threads: the place where one looks first.
pub(crate) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<Option<usize>> = const { Cell::new(None) };
    }
    OWN.with(|own| {
        own.get().unwrap_or_else(|| {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            own.set(Some(number));
            number
        })
    })
}
