//! Conversion of errors of the storage and the log to rejections.

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
        StorageErrorKind::NoSpace | StorageErrorKind::Failed => ResponseError::KafkaStorageError,
    };
    Refusal::new(code, error.to_string())
}

/// Converts an error of the log, with its chain of causes.
pub(super) fn of_log(error: LogError) -> Refusal {
    let mut message = error.to_string();
    let mut cause = error.source.as_deref().map(|it| it as &dyn std::error::Error);
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    Refusal::new(error_of(error.kind), message)
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
