//! Sequential reader of a segment's transactions.
//!
//! A transaction is written only after everything before it is durable, so at most one was in
//! progress at a power loss. An invalid transaction at the end is torn and was never acknowledged.
//! An invalid one *before* another transaction is damage.

use std::io::IoSlice;
use std::sync::Arc;

use sealing::SetKey;
use storage::{AlignedBuffer, Folder, StableFile};

use crate::error::JournalError;
use crate::format::{
    Address, FormatError, SEGMENT_HEADER_BYTES, Seal, SegmentHeader, SetId,
    TRANSACTION_HEADER_BYTES, Transaction, TransactionHead, check_head,
};
use crate::segment_file::{Found, cannot_read, name_of};

const BLOCK_BYTES: u32 = 4096;

/// Read size.
const WINDOW_BYTES: usize = 1 << 20;

/// End of a segment's transactions, and the next sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) offset: u32,
    pub(crate) next_sequence: u64,
    /// Start of the last transaction, if it was searched for.
    pub(crate) last_start: Option<u32>,
}

/// Reader of one segment from beginning to end.
#[derive(Debug)]
pub(crate) struct SegmentReader {
    file: Arc<dyn StableFile>,
    header: SegmentHeader,
    seal: Seal,
    /// Upper limit on the end of transactions: the end of the file or segment.
    limit: u32,
    window: AlignedBuffer,
    window_start: u32,
}

/// Result of looking for a transaction at an offset.
#[derive(Debug)]
pub(crate) enum Step<'bytes> {
    /// An intact head. The transaction's pages may be damaged.
    Transaction(Transaction<'bytes>),
    /// No intact transaction of this journal is there.
    Nothing(FormatError),
}

impl SegmentReader {
    pub(crate) fn open(
        folder: &dyn Folder,
        key: Option<&SetKey>,
        header: SegmentHeader,
    ) -> Result<Self, JournalError> {
        let number = header.number;
        let failed = |error| cannot_read(number, error);
        Ok(Self::of(folder.open(&name_of(number)).map_err(failed)?, key, header))
    }

    /// Creates a reader for an open segment file.
    pub(crate) fn of(
        file: Arc<dyn StableFile>,
        key: Option<&SetKey>,
        header: SegmentHeader,
    ) -> Self {
        let limit = file.size_bytes().min(u64::from(header.segment_bytes));
        let limit = u32::try_from(limit).expect("a segment's length has 32 bits");
        let window = AlignedBuffer::new();
        Self { file, header, seal: header.seal(key), limit, window, window_start: 0 }
    }

    pub(crate) fn first_sequence(&self) -> u64 {
        self.header.first_sequence
    }

    pub(crate) fn first_offset() -> u32 {
        u32::try_from(SEGMENT_HEADER_BYTES).expect("a block")
    }

    /// Reads transaction `sequence` at `offset`.
    pub(crate) fn read(&mut self, offset: u32, sequence: u64) -> Result<Step<'_>, JournalError> {
        let address = self.address(offset, sequence);
        let head = TransactionHead::decode(self.bytes(offset, TRANSACTION_HEADER_BYTES)?);
        let head = match head {
            Ok(head) if head.address == address => head,
            Ok(_) => return Ok(Step::Nothing(FormatError::misplaced("a transaction"))),
            Err(error) => return Ok(Step::Nothing(error)),
        };
        let seal = self.seal.clone();
        let bytes = self.bytes(offset, head.sizes.total_bytes())?;
        Ok(match Transaction::decode(bytes, &seal, address) {
            Ok(transaction) => Step::Transaction(transaction),
            Err(error) => Step::Nothing(error),
        })
    }

    /// Finds the end of the newest segment. A torn transaction at the end is excluded. If one is
    /// damaged before the end, returns its start and the damage.
    pub(crate) fn find_end(&mut self) -> Result<(End, Option<JournalError>), JournalError> {
        let mut last_start = 0;
        let mut offset = Self::first_offset();
        let mut next_sequence = self.header.first_sequence;
        loop {
            let (length, is_whole) = match self.read(offset, next_sequence)? {
                Step::Transaction(it) => (Ok(length_of(&it)), it.has_whole_pages()),
                Step::Nothing(error) => (Err(error), false),
            };
            let end = End { offset, next_sequence, last_start: Some(last_start) };
            if !is_whole && !self.has_later_transaction(offset, next_sequence)? {
                return Ok((end, None));
            }
            // If only some pages are damaged, the reader reports them individually.
            let length = match length {
                Ok(length) => length,
                Err(error) => return Ok((end, Some(self.damaged(offset, next_sequence, error)))),
            };
            last_start = offset;
            offset += length;
            next_sequence += 1;
        }
    }

    /// Returns whether an intact transaction with a higher sequence number exists after `offset`.
    fn has_later_transaction(&mut self, offset: u32, sequence: u64) -> Result<bool, JournalError> {
        let mut at = offset + BLOCK_BYTES;
        while at < self.limit {
            let head = TransactionHead::decode(self.bytes(at, TRANSACTION_HEADER_BYTES)?);
            if let Ok(TransactionHead { address, .. }) = head
                && address.sequence > sequence
                && matches!(self.read(at, address.sequence)?, Step::Transaction(_))
            {
                return Ok(true);
            }
            at += BLOCK_BYTES;
        }
        Ok(false)
    }

    /// Rewrites the bytes from `start` to `end` in place.
    pub(crate) fn write_again(&self, start: u32, end: u32) -> Result<(), JournalError> {
        let name = name_of(self.header.number);
        let mut bytes = AlignedBuffer::zeroed((end - start) as usize);
        let failed = |error| {
            let what = format!("cannot make the end of segment {name} durable");
            JournalError::storage(what, error)
        };
        self.file.read(u64::from(start), &mut bytes).map_err(failed)?;
        self.file.write_durably(u64::from(start), &[IoSlice::new(&bytes)]).map_err(failed)
    }

    /// Error for a required transaction that is corrupt.
    pub(crate) fn damaged(&self, offset: u32, sequence: u64, error: FormatError) -> JournalError {
        let name = name_of(self.header.number);
        let what = format!("cannot read transaction {sequence} at byte {offset} of segment {name}");
        JournalError::format(what, error)
    }

    fn address(&self, offset: u32, sequence: u64) -> Address {
        let SegmentHeader { epoch, number, .. } = self.header;
        Address { sequence, epoch, segment: number, offset }
    }

    /// Returns `length` bytes from `offset` on, or fewer at the end.
    fn bytes(&mut self, offset: u32, length: usize) -> Result<&[u8], JournalError> {
        let left = self.limit.saturating_sub(offset);
        let left = usize::try_from(left).expect("a segment fits memory");
        let length = length.min(left);
        let is_there = |start: u32, window: &[u8]| {
            let skipped = offset.checked_sub(start).map(|skipped| skipped as usize);
            skipped.is_some_and(|skipped| skipped + length <= window.len())
        };
        if !is_there(self.window_start, &self.window) {
            self.window.clear();
            self.window.resize(length.max(WINDOW_BYTES).min(left), 0);
            self.window_start = offset;
            let read = self.file.read(u64::from(offset), &mut self.window);
            if let Err(error) = read {
                self.window.clear();
                return Err(cannot_read(self.header.number, error));
            }
        }
        let start = (offset - self.window_start) as usize;
        Ok(&self.window[start..start + length])
    }
}

/// Returns the length of a transaction in its segment.
pub(crate) fn length_of(transaction: &Transaction<'_>) -> u32 {
    u32::try_from(transaction.sizes.total_bytes()).expect("within the format's limits")
}

/// Returns whether the first transaction of a segment is intact although its header is not.
pub(crate) fn holds_transactions(
    folder: &dyn Folder,
    found: &Found,
    set_id: SetId,
) -> Result<bool, JournalError> {
    let offset = SegmentReader::first_offset();
    let failed = |error| cannot_read(found.number, error);
    if found.file_bytes <= u64::from(offset + BLOCK_BYTES) {
        return Ok(false);
    }
    let file = folder.open(&name_of(found.number)).map_err(failed)?;
    let mut bytes = AlignedBuffer::zeroed(TRANSACTION_HEADER_BYTES);
    file.read(u64::from(offset), &mut bytes).map_err(failed)?;
    let Ok(head) = TransactionHead::decode(&bytes) else { return Ok(false) };
    let Address { epoch, segment, .. } = head.address;
    let left = found.file_bytes - u64::from(offset);
    let length = left.min(head.sizes.total_bytes() as u64);
    bytes.resize(usize::try_from(length).expect("within the format's limits"), 0);
    file.read(u64::from(offset), &mut bytes).map_err(failed)?;
    // Without its header the key of a sealed segment is unknown, but the checksum suffices.
    let is_whole = check_head(&bytes, &Seal::new(set_id, epoch)).is_ok();
    Ok(is_whole && segment == found.number)
}
