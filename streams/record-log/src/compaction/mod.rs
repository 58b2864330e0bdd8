//! Log compaction: retains the latest record of each key.
//!
//! ```text
//! clean            dirty               not yet
//! ├───────────────┼───────────────────┼──────────────────────────┤
//! start           clean offset        map's end          last stable offset, last segment
//!
//! 1 map    reads the dirty part, collects the latest offset of each key
//! 2 copy   reads all up to the map's end, writes retained records to a new slot, group by group
//! 3 switch the header of the new segment names the segments that it replaces
//! ```
//!
//! Offsets and the order of records never change; removed records leave gaps. The last segment and
//! records of undecided transactions are never compacted. Appends and reads continue during
//! compaction: segments are not modified, but replaced.
//!
//! Source: Apache Kafka, "Log Compaction", and KIP-534 for the retention of tombstones and markers.

mod key_map;
mod new_segment;
mod pass;
mod rules;
mod transactions;

pub use pass::{Compaction, CompactionOptions, CompactionOutcome, CompactionStep};
