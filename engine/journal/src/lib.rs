//! The log on disk that makes a flush durable.
//!
//! A [`Journal`] records what blocks of volumes hold, not the writes to them: a flush captures the
//! blocks that changed since they were last captured, and writes their pages as the pool stores
//! them, once each. Blocks are intact after every power loss. A flush that takes several
//! transactions is acknowledged after the last; before that, a power loss may leave any number of
//! them, from the first one on.
//!
//! Threads that flush do the writing, with one beside them while a long encrypted transaction is
//! written; no thread stays. The owner calls [`Journal::maintain`] now and then for what can be
//! done ahead.
//!
//! Modules stand in levels, each naming none below it: the bytes; reading them; writing them; the
//! journal.
//!
//! Lock order: group commit, known pages, segments, meter. None is held while the disk is waited
//! for.
//! A search for a lost block makes other searches wait.
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
pub use journal::{FlushError, Journal, JournalSpec};
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
