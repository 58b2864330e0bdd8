//! Current value of each key of a partition: its last committed record, unless that is a tombstone
//! or has expired. Values stay in the log. Memory contains only their offsets.
//!
//! ```text
//! log ──▶ Follower ──▶ Values ──▶ get, snapshot, as of
//!            │           index: key's hash ─▶ offset, 20 bytes
//!            │           live: the offsets of all values, 2 bytes or 1 bit each
//!            ├──▶ changes, in order, each with where the value was
//!            └──▶ checkpoints, on the topic's volume
//! ```
//!
//! All state is derived from the log, which is authoritative. One thread follows the log, any
//! thread reads. Reads see the values at one offset, [`Values::applied`]. A snapshot continues to
//! show them while the log grows. A snapshot and the changes from its offset on contain no gap and
//! no duplicate. A batch is applied atomically. A transaction is applied once it is committed,
//! batch by batch.
//!
//! The crate reads no clock, draws no randomness, starts no threads and does no network I/O. Lock
//! order: state of the values, then locks of the log.
#![forbid(unsafe_code)]

mod as_of;
mod change;
mod error;
mod follower;
mod index;
mod key_hash;
mod live;
mod pick;
mod replay;
mod shard;
mod snapshot;
mod values;

pub use as_of::{AsOf, AsOfStep};
pub use change::{Change, OnChange};
pub use error::ValuesError;
pub use follower::{CheckpointStep, Followed, Follower, Opening, SweepStep};
pub use key_hash::Secret;
pub use pick::read_record;
pub use replay::Replay;
pub use snapshot::{Scan, ScanStep, Snapshot};
pub use values::{Figures, Values};
