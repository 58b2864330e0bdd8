//! Continuous shipping of the journal to the image store.
//!
//! A thread of the owner ships extracts in the order of the journal, each once. Writers of the
//! journal do not wait for it. Data not yet shipped stays on disk and counts as lag. A failed
//! attempt is repeated with the same bytes under the same name, so a delayed request is harmless.
//!
//! Nothing is shipped before an image was saved under the set's claim, because extracts continue
//! only images of the same claim.

use std::collections::HashMap;
use std::sync::Arc;

use image::{
    EXTRACT_BYTES_MAX, ExtractName, ImageError, ImageErrorKind, encode_extract, newest_claim_after,
};
use journal::Written;
use storage::AlignedBuffer;
use sync::atomic::Ordering::Relaxed;

use crate::error::DurableError;
use crate::set::DurableSet;

const ATTEMPT: &str = "ship the journal to the image store";

/// Maximum number of extracts per call, so that the owner can do other work.
const EXTRACTS_AT_ONCE_MAX: usize = 16;

/// Ships the journal of a set. Each set has one shipper, with one owner.
#[derive(Debug)]
pub struct Shipper {
    set: Arc<DurableSet>,
    /// Shipped length of each segment.
    sent: HashMap<u32, u32>,
    /// An extract whose upload has an unknown outcome.
    pending: Option<Extract>,
    /// All flushes before this time are in the store.
    shipped_unix_micros: Option<u64>,
    /// Highest number that was checked for claims of other writers.
    looked_through: u32,
    is_fenced: bool,
    /// True if extracts may have been uploaded since the last check for claims of other writers.
    is_unchecked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Extract {
    segment: u32,
    offset: u32,
    bytes: u32,
    taken_unix_micros: u64,
    /// Nothing durable followed it when it was determined.
    is_last: bool,
}

/// Outcome of a call of [`Shipper::ship`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shipped {
    /// No image was saved under this claim yet. One must be saved first.
    NeedsImage,
    /// Everything that was durable at the start of the call is in the store.
    All { extracts: usize, bytes: u64 },
    /// More remains to be shipped.
    Some { extracts: usize, bytes: u64 },
}

/// Lag of the store behind the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Bytes of the journal that the store lacks.
    pub bytes: u64,
    /// Every flush before this time is in the store. In microseconds since 1970. `None` until
    /// everything was shipped for the first time.
    pub shipped_unix_micros: Option<u64>,
}

impl Shipper {
    pub fn new(set: Arc<DurableSet>) -> Self {
        if set.mirror.is_on() {
            set.journal.keep_last_written();
        }
        Self {
            set,
            sent: HashMap::new(),
            pending: None,
            shipped_unix_micros: None,
            looked_through: 0,
            is_fenced: false,
            is_unchecked: true,
        }
    }

    /// Ships durable parts of the journal that the store lacks. Blocks on the disk and the store.
    /// After a failure the next call continues. Once another writer has claimed the store, every
    /// call fails.
    pub fn ship(&mut self, now_unix_micros: u64) -> Result<Shipped, DurableError> {
        let shipped = self.ship_durable(now_unix_micros);
        shipped.map_err(|error| self.set.note_if_fenced(error))
    }

    fn ship_durable(&mut self, now_unix_micros: u64) -> Result<Shipped, DurableError> {
        if !self.set.has_own_image.load(Relaxed) {
            return Ok(Shipped::NeedsImage);
        }
        // Read before `written`, so that the written segments reach at least up to it.
        let position = self.set.journal.position();
        let written = self.set.journal.written();
        self.sent.retain(|segment, _| written.iter().any(|kept| kept.segment == *segment));
        let (mut extracts, mut bytes) = (0, 0);
        while let Some(next) = self.next(&written, now_unix_micros) {
            if extracts == EXTRACTS_AT_ONCE_MAX {
                return Ok(Shipped::Some { extracts, bytes });
            }
            if extracts == 0 && !self.set.mirror.is_on() {
                self.check_claim().map_err(DurableError::images(ATTEMPT))?;
            }
            self.pending = Some(next);
            self.is_unchecked = true;
            if self.put(next)? {
                extracts += 1;
                bytes += u64::from(next.bytes);
            }
            self.pending = None;
            let sent = self.sent.entry(next.segment).or_default();
            *sent = (*sent).max(next.offset + next.bytes);
        }
        if self.set.mirror.is_on() {
            if self.is_unchecked {
                self.check_claim().map_err(DurableError::images(ATTEMPT))?;
                self.is_unchecked = false;
            }
            self.set.mirror.note_shipped(position);
        }
        self.shipped_unix_micros = Some(now_unix_micros);
        Ok(Shipped::All { extracts, bytes })
    }

    /// Returns the lag of the store. Cheap.
    pub fn lag(&self) -> Lag {
        let left = |it: &Written| u64::from(it.bytes.saturating_sub(self.sent_of(it.segment)));
        let bytes = self.set.journal.written().iter().map(left).sum();
        Lag { bytes, shipped_unix_micros: self.shipped_unix_micros }
    }

    fn sent_of(&self, segment: u32) -> u32 {
        self.sent.get(&segment).copied().unwrap_or(0)
    }

    /// Returns the next extract: the one with unknown outcome, if there is one.
    fn next(&self, written: &[Written], now_unix_micros: u64) -> Option<Extract> {
        let is_kept = |it: &Extract| written.iter().any(|kept| kept.segment == it.segment);
        if let Some(pending) = self.pending.filter(is_kept) {
            return Some(pending);
        }
        let begun = written.iter().find(|it| self.sent_of(it.segment) < it.bytes)?;
        let offset = self.sent_of(begun.segment);
        let bytes = (begun.bytes - offset).min(EXTRACT_BYTES_MAX);
        let is_last = written
            .last()
            .is_some_and(|last| last.segment == begun.segment && last.bytes == offset + bytes);
        // If more follows, the previous time still applies, unless the clock was set back.
        let before = self.shipped_unix_micros.filter(|&before| before <= now_unix_micros);
        let taken_unix_micros = if is_last { now_unix_micros } else { before.unwrap_or(0) };
        Some(Extract { segment: begun.segment, offset, bytes, taken_unix_micros, is_last })
    }

    /// Uploads an extract. Returns false if its segment was removed meanwhile, because an image
    /// covers it.
    fn put(&mut self, extract: Extract) -> Result<bool, DurableError> {
        let Extract { segment, offset, bytes, taken_unix_micros, is_last } = extract;
        let mut payload = AlignedBuffer::zeroed(bytes as usize);
        let read = self.set.journal.read_written(segment, offset, &mut payload);
        if !read.map_err(DurableError::journal(ATTEMPT))? {
            return Ok(false);
        }
        let name = ExtractName { writer: self.set.writer_id, segment, offset };
        let object = encode_extract(self.set.id, name, taken_unix_micros, &payload);
        // Set before the upload, because an image may be saved meanwhile.
        self.set.may_have_extracts.store(true, Relaxed);
        let put = self.upload(name, &object, is_last);
        put.map_err(DurableError::images(ATTEMPT))?;
        Ok(true)
    }

    /// Stores an extract. With the last one of a round, the store is asked for claims of other
    /// writers in the same request, if flushes depend on it.
    fn upload(
        &mut self,
        name: ExtractName,
        object: &AlignedBuffer,
        is_last: bool,
    ) -> Result<(), ImageError> {
        let images = &self.set.images;
        match self.set.own_number.get().filter(|_| is_last && self.set.mirror.is_on()) {
            None => images.put_extract(name, object),
            Some(own) => {
                let put = |number| images.put_extract_and_look(name, object, number);
                self.is_unchecked = own.may_be_replaced(put)?;
                Ok(())
            }
        }
    }

    /// Fails once another writer has claimed the store.
    fn check_claim(&mut self) -> Result<(), ImageError> {
        let own = self.set.own_number.get().filter(|_| !self.is_fenced);
        // Without an answer the listing decides.
        if own.is_some_and(|own| matches!(own.may_be_replaced_in(&*self.set.images), Ok(false))) {
            return Ok(());
        }
        if !self.is_fenced {
            let (looked_through, writer) =
                newest_claim_after(&*self.set.images, self.looked_through)?;
            self.looked_through = looked_through;
            self.is_fenced = writer.is_some_and(|writer| writer != self.set.writer_id);
        }
        match self.is_fenced {
            true => Err(ImageError::new(ImageErrorKind::Fenced, ATTEMPT)),
            false => Ok(()),
        }
    }
}
