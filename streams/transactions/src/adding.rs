//! Requests that add participants to a transaction or verify them, and the error codes for each
//! type of request.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnResponse, AddPartitionsToTxnResponse, TransactionalId,
};

use crate::effect::{Caller, Effect, Response};
use crate::participants::Participants;
use crate::transaction::Producer;

/// First versions of Produce and TxnOffsetCommit that add their participants implicitly (KIP-890).
const PRODUCE_ADDS: i16 = 12;
const OFFSET_COMMIT_ADDS: i16 = 5;

/// First versions whose clients support `TRANSACTION_ABORTABLE`.
const PRODUCE_IS_ABORTABLE: i16 = 11;
const OFFSET_COMMIT_IS_ABORTABLE: i16 = 4;

/// First version of AddPartitionsToTxn and AddOffsetsToTxn whose clients support `PRODUCER_FENCED`.
const ADDING_KNOWS_FENCED: i16 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    AddPartitions,
    AddOffsets,
    Produce,
    OffsetCommit,
}

#[derive(Clone, Debug)]
pub(crate) struct Adding {
    pub(crate) api: Api,
    pub(crate) caller: Caller,
    pub(crate) transactional_id: TransactionalId,
    pub(crate) producer: Producer,
    pub(crate) participants: Participants,
}

impl Adding {
    /// Returns whether the request may add new participants, instead of only verifying them.
    pub(crate) fn may_add(&self) -> bool {
        match self.api {
            Api::AddPartitions | Api::AddOffsets => true,
            Api::Produce => self.caller.api_version >= PRODUCE_ADDS,
            Api::OffsetCommit => self.caller.api_version >= OFFSET_COMMIT_ADDS,
        }
    }

    pub(crate) fn reply(&self, result: Result<(), ResponseError>) -> Effect {
        let result = result.map_err(|error| self.wording(error));
        let code = result.map_or_else(|error| error.code(), |()| 0);
        let response = match self.api {
            Api::AddPartitions => Response::AddPartitionsToTxn(self.partitions_response(code)),
            Api::AddOffsets => {
                Response::AddOffsetsToTxn(AddOffsetsToTxnResponse::default().with_error_code(code))
            }
            Api::Produce | Api::OffsetCommit => Response::Admitted(result),
        };
        Effect::Reply(self.caller.ticket, response)
    }

    /// Maps an error to the code that clients of this version handle correctly.
    fn wording(&self, error: ResponseError) -> ResponseError {
        let version = self.caller.api_version;
        match (error, self.api) {
            (ResponseError::ProducerFenced, Api::AddPartitions | Api::AddOffsets)
                if version >= ADDING_KNOWS_FENCED =>
            {
                error
            }
            (ResponseError::ProducerFenced, _) => ResponseError::InvalidProducerEpoch,
            (ResponseError::TransactionAbortable, Api::Produce)
                if version < PRODUCE_IS_ABORTABLE =>
            {
                ResponseError::InvalidTxnState
            }
            (ResponseError::TransactionAbortable, Api::OffsetCommit)
                if version < OFFSET_COMMIT_IS_ABORTABLE =>
            {
                ResponseError::InvalidTxnState
            }
            // Clients retry after the replacements of these two, without looking up the coordinator
            // again.
            (ResponseError::ConcurrentTransactions, Api::Produce) if version < PRODUCE_ADDS => {
                ResponseError::NotEnoughReplicas
            }
            (ResponseError::CoordinatorLoadInProgress, Api::Produce) => {
                ResponseError::NotEnoughReplicas
            }
            (ResponseError::ConcurrentTransactions, Api::OffsetCommit)
                if version < OFFSET_COMMIT_ADDS =>
            {
                ResponseError::CoordinatorLoadInProgress
            }
            _ => error,
        }
    }

    fn partitions_response(&self, code: i16) -> AddPartitionsToTxnResponse {
        let topics = self.participants.topics.iter().map(|(topic, partitions)| {
            let of = |partition: &i32| {
                AddPartitionsToTxnPartitionResult::default()
                    .with_partition_index(*partition)
                    .with_partition_error_code(code)
            };
            AddPartitionsToTxnTopicResult::default()
                .with_name(topic.clone())
                .with_results_by_partition(partitions.iter().map(of).collect())
        });
        AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(topics.collect())
    }
}
