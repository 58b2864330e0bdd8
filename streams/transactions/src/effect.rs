//! Requests and effects: the interface between the state machine and its owner.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    AddOffsetsToTxnResponse, AddPartitionsToTxnResponse, DescribeTransactionsResponse,
    EndTxnResponse, InitProducerIdResponse, ListTransactionsResponse, TransactionalId,
};
use shares::Owner;

use crate::participants::Participants;
use crate::state_log::Record;
use crate::transaction::{Outcome, Producer};

/// Identifier of a request, chosen by the owner, for its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Origin of a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub ticket: Ticket,
    /// Version of the request, which determines the error codes that the client supports.
    pub api_version: i16,
    /// Owner whose share of the coordinator's limits the request uses.
    pub owner: Owner,
    /// Time of a monotonic clock in milliseconds.
    /// [`Transactions::set_host_ahead`](crate::Transactions::set_host_ahead) sets the difference to
    /// the host's clock.
    pub now_ms: i64,
}

/// Action that the owner must perform, in order: see the rule of effects in the crate's
/// documentation.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Append a record to the state log.
    Persist(Record),
    /// Write markers, then call [`Transactions::markers_written`](crate::Transactions).
    WriteMarkers(Markers),
    /// Respond to a request. Each ticket is answered exactly once, possibly in a later call.
    Reply(Ticket, Response),
}

/// Identifier of a batch of markers, valid for one [`Transactions`](crate::Transactions). An owner
/// that replaces its instance must first let the markers in progress finish, and drop their
/// tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkersTicket(pub(crate) u64);

/// End of a transaction, which the owner must write to each partition and report to each group that
/// participated. Deleted partitions and groups are skipped. A marker that cannot be written must be
/// retried. When the ticket is returned, no marker may still be in progress, because it would end
/// the producer's next transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Markers {
    pub ticket: MarkersTicket,
    pub transactional_id: TransactionalId,
    /// The epoch of the marker. It exceeds that of the records if the transaction was fenced, or
    /// was ended by a client of transaction.version 2.
    pub producer: Producer,
    pub outcome: Outcome,
    pub participants: Participants,
}

/// Response in Kafka's schema. The owner sets throttle times.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    InitProducerId(InitProducerIdResponse),
    AddPartitionsToTxn(AddPartitionsToTxnResponse),
    AddOffsetsToTxn(AddOffsetsToTxnResponse),
    EndTxn(EndTxnResponse),
    ListTransactions(ListTransactionsResponse),
    DescribeTransactions(DescribeTransactionsResponse),
    /// Response to [`Transactions::admit`](crate::Transactions::admit).
    Admitted(Result<(), ResponseError>),
}
