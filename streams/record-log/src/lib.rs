//! A message log on a block device: a topic is a volume, divided into partitions, each an endless
//! row of record batches as Kafka's clients made them.
//!
//! ```text
//! Topic ──▶ Partition ──▶ Segment ──▶ BlockDevice
//!           appends, reads,  a run of batches
//!           deletes          in one slot
//! ```
//!
//! The batches are the only truth. Indexes, producers' numbers and aborted transactions are derived
//! from them and can be computed again; checkpoints only make that shorter. Address space is the
//! allocator: a segment has 2 GiB of it, and takes memory as it is written.
//!
//! It reads no clock, starts no thread and knows no network. What was appended survives the death
//! of the process; what was flushed survives what the volume's durability class promises.
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
