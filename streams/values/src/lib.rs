//! The current value of each key of a partition: the last committed record of each key, where that
//! is no tombstone and has not expired. Values stay in the log; memory holds where they are.
//!
//! ```text
//! log ──▶ Follower ──▶ Values ──▶ get, snapshot, as of
//!            │           index: key's hash ─▶ offset, 20 bytes
//!            │           live: the offsets of all values, 2 bytes or 1 bit each
//!            ├──▶ changes, in order, each with where the value was
//!            └──▶ checkpoints, on the topic's volume
//! ```
//!
//! The log is the only truth, and all this is derived from it. One thread follows; any thread
//! reads. Reads see the values at one offset, [`Values::applied`], and a snapshot keeps seeing them
//! while the log goes on: with the changes from its offset on it has no gap and nothing twice. A
//! batch is taken in as a whole, and a transaction once it is committed, in as many pieces as it
//! has batches.
//!
//! It reads no clock, draws no randomness, starts no thread and knows no network. Lock order: state
//! of the values, then those of the log.
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
