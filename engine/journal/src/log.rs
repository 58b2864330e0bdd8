//! Appending to the journal. Each transaction is durable before the next one begins.
//!
//! After a write error no part of that write counts. The segment is abandoned, and the next
//! transaction goes to a new segment whose header names the end of the journal before the error. A
//! transaction that was reported as failed but reached the disk therefore never becomes part of the
//! journal once another has replaced it.

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

/// Size of the largest volume table that the engine permits.
const TABLE_BYTES_MAX: usize = DURABLE_COUNT_MAX * TABLE_RECORD_BYTES;
const _: () = assert!(
    DURABLE_COUNT_MAX <= TABLE_COUNT_MAX
        && TABLE_BYTES_MAX + 8 * BLOCK_BYTES <= SEGMENT_BYTES_MIN as usize,
    "such a table fits each segment, beside contents"
);

/// Sequence numbers skipped if the position of the newest checkpoint is unknown. The checkpoint may
/// lie past the last transaction by the number of failed writes.
const UNKNOWN_LEFT_OUT: u64 = 1 << 24;

const BLOCK_BYTES: usize = block_device::BLOCK_BYTES;

/// State of one appending run of a journal.
#[derive(Debug)]
pub(crate) struct Log {
    segments: Arc<SegmentSet>,
    set_id: SetId,
    epoch: u64,
    key: Option<Arc<SetKey>>,
    segment_bytes: u32,
    /// Segment being written. `None` before the first one and after an error.
    current: Option<Current>,
    /// End of the journal.
    end: Option<PreviousEnd>,
    next_sequence: u64,
    /// Number of sequence numbers before the next one whose transactions could not be written.
    abandoned: u32,
    /// Forces the next transaction into a new segment.
    wants_segment: bool,
    /// Only volume tables are being written, so short segments suffice.
    is_of_tables: bool,
    known: Arc<Mutex<KnownPages>>,
    head: AlignedBuffer,
    sealed: SealedWrite,
}

/// Durable set of a journal.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) set_id: SetId,
    /// Encryption key, if the journal is encrypted.
    pub(crate) key: Option<Arc<SetKey>>,
}

#[derive(Debug)]
struct Current {
    segment: Segment,
    seal: Seal,
    first_sequence: u64,
    /// Offset after the last transaction.
    offset: u32,
}

impl Log {
    /// Continues the given journal in a new run.
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
            // Skipped sequence numbers count like those of failed writes.
            abandoned: u32::try_from(abandoned).unwrap_or(u32::MAX),
            wants_segment: true,
            is_of_tables: false,
            known: Arc::new(Mutex::new(KnownPages::new(options.known_pages_max))),
            head: AlignedBuffer::new(),
            sealed: SealedWrite::new(),
        }
    }

    /// Returns the form of new segments.
    pub(crate) fn form(&self) -> Form {
        if self.key.is_some() { Form::Sealed } else { Form::Plain }
    }

    pub(crate) fn position(&self) -> Position {
        Position(self.next_sequence)
    }

    /// Locks the known pages. The lock is held briefly, never across disk I/O.
    pub(crate) fn known(&self) -> MutexGuard<'_, KnownPages> {
        self.known.lock().expect("no thread panics with the pages locked")
    }

    /// Returns the table of known pages for threads that do not write.
    pub(crate) fn share_known(&self) -> Arc<Mutex<KnownPages>> {
        Arc::clone(&self.known)
    }

    /// Returns the number of blocks that fit into a transaction beside a volume table, whatever
    /// their contents.
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
        // One entry for the block and one for its volume.
        let each = BLOCK_BYTES + 2 * none.entry_bytes();
        let room = (self.segment_bytes as usize).saturating_sub(fixed) / each;
        if room == 0 || volume_count > TABLE_COUNT_MAX {
            let what = format!("cannot journal a table of {volume_count} volumes");
            return Err(JournalError::new(JournalErrorKind::Invalid, what));
        }
        Ok(room.min(TRANSACTION_BLOCKS_MAX))
    }

    /// Sets whether any volume's contents are journaled. If not, the journal uses short segments to
    /// save disk space.
    pub(crate) fn expect_blocks(&mut self, are_expected: bool) {
        self.is_of_tables = !are_expected;
    }

    /// Ensures that a segment with space for a transaction of this length exists, without writing
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

    /// Writes a transaction of at most [`Log::blocks_max`] blocks. It is durable when this returns
    /// its length. The first transaction of a segment gets the volume table, because readers start
    /// with it.
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

    /// Begins a checkpoint. Everything written from now on lies after the returned position, in
    /// separate segments, and refers to nothing before it.
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
                let written = file.write_durably(u64::from(*offset), &parts);
                written.inspect(|()| {
                    self.segments.last_written().note(segment.number, *offset, &parts);
                })
            }
            Form::Sealed => self.sealed.write(transaction, Target { file, seal, address }),
        };
        let length = transaction.sizes().total_bytes();
        if let Err(error) = written {
            let what = format!("cannot write to segment {}", name_of(segment.number));
            // The transaction may have reached the disk. Its sequence number is not reused, so that
            // a checkpoint from here on lies after it.
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

    /// Begins a segment. Nothing is appended to the previous segment after this attempt, because
    /// the new header may be on disk even if its write failed.
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
        self.segments.last_written().note(segment.number, 0, &[IoSlice::new(&self.head)]);
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
