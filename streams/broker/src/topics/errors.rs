//! Conversion of errors of the storage and the log to rejections.

use kafka_client::POOL_IS_FULL;
use kafka_protocol::error::ResponseError;
use record_log::{LogError, LogErrorKind};

use super::Refusal;
use crate::storage::{StorageError, StorageErrorKind};

pub(super) fn of_storage(error: StorageError) -> Refusal {
    let code = match error.kind {
        StorageErrorKind::Exists => ResponseError::TopicAlreadyExists,
        StorageErrorKind::Missing => ResponseError::UnknownTopicOrPartition,
        StorageErrorKind::Unsupported => ResponseError::InvalidConfig,
        // An error that clients do not retry.
        StorageErrorKind::TooMany => {
            let what = format!("cannot create the topic's volume: {error}");
            return Refusal::new(ResponseError::PolicyViolation, what);
        }
        StorageErrorKind::NoSpace => {
            return Refusal::new(ResponseError::NotEnoughReplicas, pool_is_full());
        }
        StorageErrorKind::Failed => ResponseError::KafkaStorageError,
    };
    Refusal::new(code, error.to_string())
}

/// Converts an error of the log, with its chain of causes.
pub(super) fn of_log(error: LogError) -> Refusal {
    if is_of_full_pool(&error) {
        return Refusal::new(error_of(error.kind), pool_is_full());
    }
    Refusal::new(error_of(error.kind), error.with_causes())
}

/// Returns whether the pool had no memory. Otherwise the volume may have no segment left.
pub(crate) fn is_of_full_pool(error: &LogError) -> bool {
    error.kind == LogErrorKind::NoSpace && error.source.is_some()
}

/// Message of a request for which the pool has no memory.
pub(crate) fn pool_is_full() -> String {
    format!("{POOL_IS_FULL}; delete records or topics, lower their retention, or enlarge the pool")
}

/// Returns Kafka's error for a kind of log error.
pub(crate) fn error_of(kind: LogErrorKind) -> ResponseError {
    match kind {
        // Producers retry after retention or the owner has freed space.
        LogErrorKind::NoSpace | LogErrorKind::NotDurable => ResponseError::NotEnoughReplicas,
        LogErrorKind::NotALog | LogErrorKind::Damaged | LogErrorKind::Device => {
            ResponseError::KafkaStorageError
        }
        LogErrorKind::InvalidBatch => ResponseError::CorruptMessage,
        LogErrorKind::InvalidRecord => ResponseError::InvalidRecord,
        LogErrorKind::TooLarge => ResponseError::MessageTooLarge,
        LogErrorKind::OffsetOutOfRange => ResponseError::OffsetOutOfRange,
        LogErrorKind::OutOfOrderSequence => ResponseError::OutOfOrderSequenceNumber,
        LogErrorKind::FencedProducer => ResponseError::InvalidProducerEpoch,
        LogErrorKind::TransactionState => ResponseError::InvalidTxnState,
        LogErrorKind::TooManyProducers => ResponseError::PolicyViolation,
        LogErrorKind::NoSuchPartition => ResponseError::UnknownTopicOrPartition,
    }
}

#[cfg(test)]
mod tests {
    use block_device::{Action, ByteRange, DeviceError, DeviceErrorKind};

    use super::*;

    #[test]
    fn a_full_pool_is_named_whatever_found_it() {
        let of_topic = of_storage(StorageError::new(StorageErrorKind::NoSpace, "volume \"a\""));
        let error = DeviceError::new(DeviceErrorKind::NoSpace, Action::Write, ByteRange::new(0, 1));
        let (kind, what) = (LogErrorKind::NoSpace, "cannot write".to_owned());
        let of_partition = of_log(LogError { kind, what, source: Some(error.into()) });
        for refusal in [of_topic, of_partition] {
            assert_eq!(refusal.error, ResponseError::NotEnoughReplicas);
            assert!(refusal.message.starts_with(POOL_IS_FULL), "{}", refusal.message);
        }
        let what = "the volume is full".to_owned();
        let of_volume = of_log(LogError { kind, what, source: None });
        assert_eq!(of_volume.message, "the volume is full");
    }
}
