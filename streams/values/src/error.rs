//! Errors of current values, classified by how a caller can react.

use block_device::DeviceError;
use record_log::LogError;

/// A rejected or failed request.
#[derive(Debug, thiserror::Error)]
pub enum ValuesError {
    /// The values are still being read from the log. The request can be retried.
    #[error(
        "current values of partition {partition} are not ready: its log is indexed up to offset \
         {applied} of {needed}"
    )]
    NotReady { partition: u32, applied: i64, needed: i64 },

    /// Compaction removed a record before its successor was followed. The request can be retried.
    #[error(
        "the value at offset {offset} of partition {partition} was replaced, and its successor is \
         not indexed yet"
    )]
    Overtaken { partition: u32, offset: i64 },

    /// The log does not contain the values at that offset.
    #[error(
        "the values of partition {partition} at offset {offset} are not available: its log has \
         them from offset {first} to {last}"
    )]
    OutOfReach { partition: u32, offset: i64, first: i64, last: i64 },

    /// More keys have changed since the offset than fit into the caller's memory limit.
    #[error(
        "the values of partition {partition} at offset {offset} need more than {bytes_max} bytes \
         of memory to find: use a later offset, or raise the memory limit"
    )]
    TooMuchMemory { partition: u32, offset: i64, bytes_max: usize },

    /// A batch can no longer be decoded, though the follower had decoded it.
    #[error("the record batch at offset {offset} of partition {partition} is corrupt")]
    Damaged { partition: u32, offset: i64 },

    /// The checkpoint was not written. The previous one remains valid.
    #[error("cannot write a checkpoint of current values")]
    Checkpoint(#[source] DeviceError),

    #[error(transparent)]
    Log(#[from] LogError),
}

impl ValuesError {
    /// Returns whether the same request may succeed shortly afterwards.
    pub fn may_be_repeated(&self) -> bool {
        matches!(self, Self::NotReady { .. } | Self::Overtaken { .. })
    }

    pub(crate) fn writing(error: DeviceError) -> Self {
        Self::Checkpoint(error)
    }
}
