//! Writing: one transaction after the other, each durable before the next one begins.
//!
//! After an error no part of that write counts. The segment is left as it is and the next
//! transaction goes to a new segment, whose header names the end of the journal before the error.
//! So a transaction that was reported as failed and reached the disk all the same never becomes
//! part of the journal once another has taken its place.

use std::io::IoSlice;
use std::sync::{Arc, Mutex, MutexGuard};

use sealing::SetKey;
use storage::AlignedBuffer;
use volumes::DURABLE_COUNT_MAX;

use crate::chain::Chain;
use crate::error::{JournalError, JournalErrorKind};
use crate::format::{
    Address, Form, PreviousEnd, SEGMENT_HEADER_BYTES, Seal, SealedSegment, SegmentHeader, SetId,
    Sizes, TABLE_COUNT_MAX, TABLE_RECORD_BYTES,
};
use crate::known::KnownPages;
use crate::options::{JournalOptions, SEGMENT_BYTES_MIN};
use crate::replay::Position;
use crate::sealed_write::{SealedWrite, Target};
use crate::segment_file::name_of;
use crate::segment_set::{Segment, SegmentSet};
use crate::transaction_builder::{TRANSACTION_BLOCKS_MAX, TransactionBuilder};

/// Bytes of the largest table that the engine lets come about.
const TABLE_BYTES_MAX: usize = DURABLE_COUNT_MAX * TABLE_RECORD_BYTES;
const _: () = assert!(
    DURABLE_COUNT_MAX <= TABLE_COUNT_MAX
        && TABLE_BYTES_MAX + 8 * BLOCK_BYTES <= SEGMENT_BYTES_MIN as usize,
    "such a table fits each segment, beside contents"
);

/// Sequences that are left out when it is not known where the newest checkpoint lies: it is past
/// the last transaction by as many as could not be written then.
const UNKNOWN_LEFT_OUT: u64 = 1 << 24;

const BLOCK_BYTES: usize = block_device::BLOCK_BYTES;

/// State of one run of a journal that appends.
#[derive(Debug)]
pub(crate) struct Log {
    segments: Arc<SegmentSet>,
    set_id: SetId,
    epoch: u64,
    key: Option<Arc<SetKey>>,
    segment_bytes: u32,
    /// The segment that is written; `None` before the first one and after an error.
    current: Option<Current>,
    /// Where the journal ends.
    end: Option<PreviousEnd>,
    next_sequence: u64,
    /// Sequences before the next one whose transactions could not be written.
    abandoned: u32,
    /// What is next goes to a new segment.
    wants_segment: bool,
    /// Nothing but volume tables is written for now: short segments will do.
    is_of_tables: bool,
    known: Arc<Mutex<KnownPages>>,
    head: AlignedBuffer,
    sealed: SealedWrite,
}

/// Set that a journal is of.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) set_id: SetId,
    /// Encrypts what is written, if there is one.
    pub(crate) key: Option<Arc<SetKey>>,
}

#[derive(Debug)]
struct Current {
    segment: Segment,
    seal: Seal,
    first_sequence: u64,
    /// After the last transaction.
    offset: u32,
}

impl Log {
    /// Continues the journal that was found, in a run of its own.
    pub(crate) fn new(
        segments: Arc<SegmentSet>,
        identity: Identity,
        chain: &Chain,
        covered: Option<Position>,
        options: &JournalOptions,
    ) -> Self {
        let Identity { set_id, key } = identity;
        let epoch = chain.epoch + 1;
        let known = chain.next_sequence();
        let (next_sequence, given) = match covered {
            Some(covered) => (known.max(covered.0), known),
            None => (known + UNKNOWN_LEFT_OUT, known + UNKNOWN_LEFT_OUT),
        };
        let abandoned = given - chain.end_sequence();
        Self {
            segments,
            set_id,
            epoch,
            key,
            segment_bytes: options.segment_bytes,
            current: None,
            end: chain.end(),
            next_sequence,
            // A run that began that many more has failed as often.
            abandoned: u32::try_from(abandoned).unwrap_or(u32::MAX),
            wants_segment: true,
            is_of_tables: false,
            known: Arc::new(Mutex::new(KnownPages::new(options.known_pages_max))),
            head: AlignedBuffer::new(),
            sealed: SealedWrite::new(),
        }
    }

    /// Form of the segments that are written.
    pub(crate) fn form(&self) -> Form {
        if self.key.is_some() { Form::Sealed } else { Form::Plain }
    }

    pub(crate) fn position(&self) -> Position {
        Position(self.next_sequence)
    }

    /// Locked for a short time only, never while the disk is waited for.
    pub(crate) fn known(&self) -> MutexGuard<'_, KnownPages> {
        self.known.lock().expect("no thread panics with the pages locked")
    }

    /// The table of known pages, for threads that do not write.
    pub(crate) fn share_known(&self) -> Arc<Mutex<KnownPages>> {
        Arc::clone(&self.known)
    }

    /// Number of blocks that fit into a transaction whatever they hold, beside a volume table.
    pub(crate) fn blocks_max(&self, table: &[u8]) -> Result<usize, JournalError> {
        let volume_count = table.len() / TABLE_RECORD_BYTES;
        let none = Sizes {
            form: self.form(),
            table_count: None,
            entry_count: 0,
            packed_bytes: 0,
            whole_count: 0,
        };
        let fixed = SEGMENT_HEADER_BYTES + none.body_start() + table.len() + BLOCK_BYTES;
        // The block's entry, and that of its volume.
        let each = BLOCK_BYTES + 2 * none.entry_bytes();
        let room = (self.segment_bytes as usize).saturating_sub(fixed) / each;
        if room == 0 || volume_count > TABLE_COUNT_MAX {
            let what = format!("cannot journal a table of {volume_count} volumes");
            return Err(JournalError::new(JournalErrorKind::Invalid, what));
        }
        Ok(room.min(TRANSACTION_BLOCKS_MAX))
    }

    /// Says whether any volume has contents that are written here. Without one the journal takes
    /// little room on the disk.
    pub(crate) fn expect_blocks(&mut self, are_expected: bool) {
        self.is_of_tables = !are_expected;
    }

    /// Makes sure that there is a segment to write a transaction of this length to, without writing
    /// one.
    pub(crate) fn prepare(&mut self, length: usize) -> Result<(), JournalError> {
        match self.has_room(length) {
            true => Ok(()),
            false => self.begin_segment(length),
        }
    }

    fn has_room(&self, length: usize) -> bool {
        let fits = |it: &Current| it.offset as usize + length <= it.segment.bytes as usize;
        !self.wants_segment && self.current.as_ref().is_some_and(fits)
    }

    /// Writes a transaction of at most [`Log::blocks_max`] blocks. It is durable when this
    /// returns its length. The first of a segment gets the volume table, which is what readers
    /// begin with.
    pub(crate) fn append<'bytes>(
        &mut self,
        transaction: &mut TransactionBuilder<'bytes>,
        table: &'bytes [u8],
    ) -> Result<usize, JournalError> {
        let is_first = |current: &Current| current.first_sequence == self.next_sequence;
        if self.current.as_ref().is_some_and(is_first) {
            transaction.set_table(table);
        }
        let length = transaction.sizes().total_bytes();
        if !self.has_room(length) {
            self.begin_segment(length + table.len())?;
            transaction.set_table(table);
        }
        self.write(transaction)
    }

    /// Begins a checkpoint: everything written from now on lies after the position that is
    /// returned, in segments of its own, and refers to nothing before it.
    pub(crate) fn begin_checkpoint(&mut self) -> Position {
        let is_fresh =
            self.current.as_ref().is_some_and(|it| it.first_sequence == self.next_sequence);
        if !is_fresh {
            self.wants_segment = true;
        }
        if let Some(end) = self.end {
            self.known().raise_floor(end.number + u32::from(!is_fresh));
        }
        self.position()
    }

    fn write(&mut self, transaction: &mut TransactionBuilder<'_>) -> Result<usize, JournalError> {
        let current = self.current.as_mut().expect("a segment was begun");
        let Current { segment, seal, offset, .. } = current;
        let address = Address {
            sequence: self.next_sequence,
            epoch: self.epoch,
            segment: segment.number,
            offset: *offset,
        };
        let file = &*segment.file;
        let written = match seal.form() {
            Form::Plain => {
                transaction.write_head(&mut self.head, seal, address);
                let mut parts = vec![IoSlice::new(&self.head)];
                parts.extend(transaction.whole_pages().iter().map(|page| IoSlice::new(page)));
                file.write_durably(u64::from(*offset), &parts)
            }
            Form::Sealed => self.sealed.write(transaction, Target { file, seal, address }),
        };
        let length = transaction.sizes().total_bytes();
        if let Err(error) = written {
            let what = format!("cannot write to segment {}", name_of(segment.number));
            // It may be on the disk all the same. Nothing else gets its number, so that a
            // checkpoint from here on lies after it.
            self.next_sequence += 1;
            self.abandoned += 1;
            self.current = None;
            self.segments.close_last(self.next_sequence);
            return Err(JournalError::storage(what, error));
        }
        *offset += u32::try_from(length).expect("a segment's length has 32 bits");
        self.end = Some(PreviousEnd { number: segment.number, end: *offset });
        self.segments.note_written(*offset);
        self.next_sequence += 1;
        transaction.note_pages(&mut self.known(), address);
        Ok(length)
    }

    /// Begins a segment. From the attempt on nothing is added to the one before: the new header may
    /// be on the disk even if that could not be told.
    fn begin_segment(&mut self, length: usize) -> Result<(), JournalError> {
        self.current = None;
        self.segments.close_last(self.next_sequence);
        let is_short = SEGMENT_HEADER_BYTES + length <= SEGMENT_BYTES_MIN as usize / 2;
        let bytes_min = match self.is_of_tables && is_short {
            true => SEGMENT_BYTES_MIN,
            false => self.segment_bytes,
        };
        let sealed = self.key.as_deref().map(draw_seal).transpose()?;
        let segment = self.segments.take(bytes_min)?;
        let header = SegmentHeader {
            set_id: self.set_id,
            epoch: self.epoch,
            number: segment.number,
            segment_bytes: segment.bytes,
            first_sequence: self.next_sequence,
            abandoned: self.abandoned,
            previous: self.end,
            sealed,
        };
        let seal = header.seal(self.key.as_deref());
        self.head.clear();
        self.head.extend_from_slice(&header.encode());
        if let Err(error) = segment.file.write_durably(0, &[IoSlice::new(&self.head)]) {
            self.segments.give_up(&segment);
            let what = format!("cannot begin segment {}", name_of(segment.number));
            return Err(JournalError::storage(what, error));
        }
        self.segments.keep(&segment);
        let offset = u32::try_from(SEGMENT_HEADER_BYTES).expect("a block");
        self.end = Some(PreviousEnd { number: segment.number, end: offset });
        self.current = Some(Current { segment, seal, first_sequence: self.next_sequence, offset });
        self.wants_segment = false;
        self.abandoned = 0;
        Ok(())
    }
}

fn draw_seal(key: &SetKey) -> Result<SealedSegment, JournalError> {
    let salt = key.draw_salt().map_err(|error| JournalError {
        kind: JournalErrorKind::Disk,
        what: "cannot seal a segment".to_owned(),
        source: Some(error.into()),
    })?;
    Ok(SealedSegment { data_key: key.id(), salt })
}
