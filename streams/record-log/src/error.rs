//! Errors of a log, classified for protocols.

use std::error::Error;

use block_device::{DeviceError, DeviceErrorKind};

/// Kind of a rejected or failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogErrorKind {
    /// The pool has no free memory, or the volume no free segment. Nothing was appended. The
    /// request can be retried after retention or the owner has freed space.
    NoSpace,
    /// The volume contains something other than a log, or a log of a later version.
    NotALog,
    /// The contents of the volume are inconsistent: it is damaged.
    Damaged,
    /// The batch is malformed: its sizes, counts or checksum are wrong.
    InvalidBatch,
    /// The batch is complete, but its header's fields about records or producer are invalid.
    InvalidRecord,
    /// The batch exceeds the maximum size of a batch or segment.
    TooLarge,
    /// The offset is before the start of the partition, or after its end.
    OffsetOutOfRange,
    /// The sequence number neither follows the producer's last one nor is that of a remembered
    /// batch.
    OutOfOrderSequence,
    /// A later epoch of the producer has fenced this one.
    FencedProducer,
    /// The marker ends a transaction that does not exist, or a non-transactional batch was sent
    /// during a transaction.
    TransactionState,
    /// The partition remembers too many producers, in total or of this owner. None of them can be
    /// evicted now.
    TooManyProducers,
    /// The partition does not exist, or there would be too many partitions.
    NoSuchPartition,
    /// Stable storage failed during a flush.
    NotDurable,
    /// Another failure of the device.
    Device,
}

/// A rejected or failed request. Programs use `kind`, people the whole chain of errors.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct LogError {
    pub kind: LogErrorKind,
    /// Attempted operation, its object, and the reason of the failure.
    pub what: String,
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl LogError {
    pub(crate) fn new(kind: LogErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), source: None }
    }

    /// Creates an error for a failed request to the device.
    pub(crate) fn device(what: impl Into<String>, error: DeviceError) -> Self {
        let kind = match error.kind {
            DeviceErrorKind::NoSpace => LogErrorKind::NoSpace,
            DeviceErrorKind::NotDurable => LogErrorKind::NotDurable,
            DeviceErrorKind::Corrupt => LogErrorKind::Damaged,
            _ => LogErrorKind::Device,
        };
        Self { kind, what: what.into(), source: Some(Box::new(error)) }
    }

    /// Formats the error with its chain of causes, for logs and users.
    pub fn with_causes(&self) -> String {
        let mut message = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        message
    }

    /// Ignores a lack of memory, for optional operations.
    pub(crate) fn ignore_no_space(self) -> Result<(), Self> {
        if self.kind == LogErrorKind::NoSpace { Ok(()) } else { Err(self) }
    }
}

#[cfg(test)]
mod tests {
    use block_device::{Action, ByteRange};

    use super::*;

    #[test]
    fn an_error_with_causes_names_each_once() {
        let plain = LogError::new(LogErrorKind::TooLarge, "cannot append: too long");
        assert_eq!(plain.with_causes(), "cannot append: too long");
        let (kind, range) = (DeviceErrorKind::NotDurable, ByteRange::new(0, 4096));
        let mut why = DeviceError::new(kind, Action::Flush, range);
        why.source = Some("the disk is gone".into());
        let error = LogError::device("cannot append to partition 3", why);
        let told = error.with_causes();
        let rest = told.strip_prefix("cannot append to partition 3: ").expect("what was attempted");
        assert!(rest.ends_with(": the disk is gone"), "{told}");
    }
}
