//! Errors of a log, in the classes that a protocol can express.

use std::error::Error;

use block_device::{DeviceError, DeviceErrorKind};

/// The class of a refused or failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogErrorKind {
    /// The pool has no memory left, or the volume no free segment. Nothing was appended; the
    /// request may be repeated when retention or the owner has made room.
    NoSpace,
    /// The volume holds something that is no log, or a log of a later version.
    NotALog,
    /// What the volume holds contradicts itself: bytes were damaged.
    Damaged,
    /// The batch is not one: its sizes, counts or checksum do not fit.
    InvalidBatch,
    /// The batch is whole, and what its header says of its records or producer cannot be.
    InvalidRecord,
    /// The batch is longer than a segment may be.
    TooLarge,
    /// The offset is before the start of the partition, or past its end.
    OffsetOutOfRange,
    /// The producer's sequence number does not follow the last one, and it is not that of a batch
    /// which is remembered.
    OutOfOrderSequence,
    /// A later incarnation of the producer has taken over.
    FencedProducer,
    /// A transaction ends that the producer has not begun, or a batch outside of a transaction
    /// comes in the middle of one.
    TransactionState,
    /// The partition remembers too many producers, or too many of this owner. None of them may be
    /// forgotten now.
    TooManyProducers,
    /// There are too many partitions, or none of that number.
    NoSuchPartition,
    /// Stable storage did not take what a flush owes.
    NotDurable,
    /// The device failed otherwise.
    Device,
}

/// A refused or failed request. `kind` is for programs, the whole chain for people.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct LogError {
    pub kind: LogErrorKind,
    /// Operation that was attempted, its object, and the reason of the failure.
    pub what: String,
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl LogError {
    pub(crate) fn new(kind: LogErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), source: None }
    }

    /// A request of the log that failed at the device.
    pub(crate) fn device(what: impl Into<String>, error: DeviceError) -> Self {
        let kind = match error.kind {
            DeviceErrorKind::NoSpace => LogErrorKind::NoSpace,
            DeviceErrorKind::NotDurable => LogErrorKind::NotDurable,
            DeviceErrorKind::Corrupt => LogErrorKind::Damaged,
            _ => LogErrorKind::Device,
        };
        Self { kind, what: what.into(), source: Some(Box::new(error)) }
    }

    /// For requests that are worth nothing where memory is scarce.
    pub(crate) fn ignore_no_space(self) -> Result<(), Self> {
        if self.kind == LogErrorKind::NoSpace { Ok(()) } else { Err(self) }
    }
}
