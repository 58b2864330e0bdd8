//! On-disk format of the journal, described in `docs/formats/journal.md`.
//!
//! Pure functions between bytes and values, without I/O. Decoding arbitrary bytes ends with a value
//! or an error: lengths are checked before use, and memory use is proportional to the input.

mod error;
mod field;
mod seal;

mod segment;
mod table;

mod entry;
mod transaction;

pub use entry::{BLOCK_COUNT_MAX, ENTRY_BYTES, Entry, Location, Place, SEALED_ENTRY_BYTES};
pub use error::{FormatError, FormatErrorKind, SEALED_VERSION, VERSION};
pub use seal::{Form, PageCheck, Seal, SetId};
pub use segment::{PreviousEnd, SEGMENT_HEADER_BYTES, SealedSegment, SegmentHeader};
pub use table::{RecordKind, TABLE_COUNT_MAX, TABLE_RECORD_BYTES, VolumeRecord};
pub use transaction::{
    Address, HEAD_BYTES_MAX, PAGES_BYTES_MAX, Sizes, TRANSACTION_HEADER_BYTES, Transaction,
    TransactionHead, check_head, open_stored, seal_head,
};
