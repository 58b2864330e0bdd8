//! Errors of current values, in the classes that a caller can act on.

use block_device::DeviceError;
use record_log::LogError;

/// A refused or failed request.
#[derive(Debug, thiserror::Error)]
pub enum ValuesError {
    /// The values are being read from the log. The request may be repeated.
    #[error(
        "the current values of partition {partition} are not there yet: its log is read up to \
         offset {applied} of {needed}"
    )]
    NotReady { partition: u32, applied: i64, needed: i64 },

    /// Compaction took a record out before the one that replaces it was followed. The request may
    /// be repeated.
    #[error(
        "the value at offset {offset} of partition {partition} was replaced, and what replaces it \
         is not followed yet"
    )]
    Overtaken { partition: u32, offset: i64 },

    /// The log does not tell what the values were at that offset.
    #[error(
        "the values of partition {partition} at offset {offset} are not known: its log tells them \
         from offset {first} to {last}"
    )]
    OutOfReach { partition: u32, offset: i64, first: i64, last: i64 },

    /// More keys have changed since than the caller's memory holds.
    #[error(
        "the values of partition {partition} at offset {offset} take more than {bytes_max} bytes \
         to find: ask for a later offset, or allow more memory"
    )]
    TooMuchMemory { partition: u32, offset: i64, bytes_max: usize },

    /// A batch that was read before cannot be read now.
    #[error("the batch from offset {offset} on of partition {partition} is damaged")]
    Damaged { partition: u32, offset: i64 },

    /// The checkpoint was not written; the one before it counts.
    #[error("cannot write a checkpoint of current values")]
    Checkpoint(#[source] DeviceError),

    #[error(transparent)]
    Log(#[from] LogError),
}

impl ValuesError {
    /// Returns whether the same request may succeed a little later.
    pub fn may_be_repeated(&self) -> bool {
        matches!(self, Self::NotReady { .. } | Self::Overtaken { .. })
    }

    pub(crate) fn writing(error: DeviceError) -> Self {
        Self::Checkpoint(error)
    }
}
