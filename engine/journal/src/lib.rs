//! The journal: a log on disk that makes flushes durable.
//!
//! A [`Journal`] logs the contents of changed blocks, not individual writes. A flush captures the
//! blocks that changed since the last capture and writes their pages in the pool's stored form,
//! each page once. Every block survives a power loss intact. A flush that takes several
//! transactions is acknowledged after the last one. A power loss before that may keep any prefix of
//! them.
//!
//! The flushing threads write the journal themselves. A second thread helps only while a long
//! encrypted transaction is written. No thread runs permanently. The owner calls
//! [`Journal::maintain`] regularly for work that can be done in advance.
//!
//! Modules form layers, from the bottom: format, readers, writers, journal. A module uses only
//! layers below it.
//!
//! Lock order: group commit, known pages, segments, meter. No lock is held across disk I/O, except
//! that searches for a lost block run one at a time.
#![forbid(unsafe_code)]

mod error;
pub mod format;
mod options;
mod table;

mod chain;
mod reader;
mod replay;
mod segment_file;

mod group_commit;
mod known;
mod last_written;
mod log;
mod meter;
mod sealed_write;
mod segment_set;
mod transaction_builder;
mod writer;

mod journal;
mod page_copy;

pub use chain::{JournalKey, check_key, find_key, set_in};
pub use error::{JournalError, JournalErrorKind};
pub use format::{RecordKind, SetId, VolumeRecord};
pub use journal::{FlushError, Journal, JournalSpec, Turn};
pub use meter::{Failure, JournalState, JournalStatus};
pub use options::{
    Clock, FailurePolicy, JournalOptions, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENT_COUNT_MIN,
    SystemClock,
};
pub use replay::{
    Change, Position, Recovered, Refusal, Replay, begins_at, recover, recover_until_damage,
};
pub use segment_file::{name_of as segment_file_name, set_aside};
pub use segment_set::Written;
