//! The log on disk that makes a flush durable.
//!
//! A [`Journal`] remembers what blocks of volumes hold, not what was written to them: a flush
//! captures the blocks that changed since they were last captured, and writes their pages as the
//! pool stores them, once each. Blocks are whole after every loss of power. A flush that takes
//! several transactions is acknowledged after the last; without the acknowledgement any of them may
//! be there, from the first one on.
//!
//! It starts no thread: those who flush do the writing, and the owner calls [`Journal::tend`] now
//! and then for what can be done ahead.
//!
//! Lock order: rounds, known pages, shelf, meter; none is held while the disk is waited for. Who
//! searches for a lost block makes others wait that search too.
#![forbid(unsafe_code)]

mod chain;
mod draft;
mod error;
pub mod format;
mod journal;
mod known;
mod log;
mod meter;
mod options;
mod page_copy;
mod reader;
mod replay;
mod rounds;
mod segment_file;
mod shelf;
mod table;
mod writer;

pub use chain::set_in;
pub use error::{JournalError, JournalErrorKind};
pub use format::{RecordKind, SetId, VolumeRecord};
pub use journal::{FlushError, Journal, JournalSpec};
pub use meter::{Failure, JournalState, JournalStatus};
pub use options::{
    Clock, FailurePolicy, JournalOptions, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENT_COUNT_MIN,
    SystemClock,
};
pub use replay::{Change, Position, Recovered, Refusal, Replay, recover};
pub use segment_file::set_aside;
