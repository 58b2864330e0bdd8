//! Message log on a block device. A topic is a volume, divided into partitions. Each partition is
//! an unbounded sequence of record batches in the format of Kafka's clients.
//!
//! ```text
//! Topic ──▶ Partition ──▶ Segment ──▶ BlockDevice
//!           appends, reads,  a run of batches
//!           deletes          in one slot
//! ```
//!
//! The batches are authoritative. Indexes, producers' sequence numbers and aborted transactions are
//! derived from them; checkpoints only shorten that. Slots replace an allocator: a segment has 2
//! GiB of address space, and takes memory as it is written.
//!
//! The crate reads no clock, starts no threads and does no network I/O. Appended batches survive a
//! crash of the process. Flushed batches survive all that the volume's durability class covers.
#![forbid(unsafe_code)]

mod batch;
mod committed;
mod compaction;
mod cutting;
mod derived_area;
mod error;
mod holds;
mod index;
mod layout;
mod partition;
mod producers;
mod properties;
mod records;
mod recovery;
mod reserve;
mod retention;
mod searches;
mod segment;
mod slots;
mod topic;
mod view;
mod volume;
mod waits;
mod writer;

pub use batch::Batch;
pub use committed::CommittedBatches;
pub use compaction::{Compaction, CompactionOptions, CompactionOutcome, CompactionStep};
pub use derived_area::DerivedArea;
pub use error::{LogError, LogErrorKind};
pub use holds::CompactionHold;
pub use layout::{PARTITION_COUNT_MAX, SEGMENT_BYTES_MAX};
pub use partition::{Appended, Partition};
pub use producers::{Aborted, PRODUCER_COUNT_MAX, ProducerState, is_committed};
pub use properties::PROPERTIES_BYTES_MAX;
pub use records::{NOTE_BYTES_MAX, TopicId};
pub use retention::Retention;
pub use searches::TimePlace;
pub use segment::{BATCH_BYTES_MAX, RECORDS_BYTES_MAX};
pub use topic::{NewTopic, Topic};
pub use view::PinnedLog;
pub use volume::TopicOptions;
pub use waits::set_around_waits;
