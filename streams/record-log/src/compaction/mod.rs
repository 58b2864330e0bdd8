//! Compaction: of the records with one key, the latest is kept.
//!
//! ```text
//! clean            dirty               not yet
//! ├───────────────┼───────────────────┼──────────────────────────┤
//! start           clean offset        map's end          last stable offset, last segment
//!
//! 1 map    reads the dirty part, notes the latest offset of each key
//! 2 copy   reads all up to the map's end, writes what stays to a fresh slot, group by group
//! 3 switch the header of the new segment says which segments it takes the place of
//! ```
//!
//! Offsets and the order of records never change; what is left out leaves gaps. The last segment
//! and what is not yet decided by its transaction are never touched. Appends and reads go on
//! meanwhile: segments do not change, they are replaced.
//!
//! Source of the rules: Apache Kafka, "Log Compaction", and KIP-534 for the time that tombstones
//! and markers stay.

mod key_map;
mod new_segment;
mod pass;
mod rules;
mod transactions;

pub use pass::{Compaction, CompactionOptions, CompactionOutcome, CompactionStep};
