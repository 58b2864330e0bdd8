//! Messages between the state machine and its owner.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    AddOffsetsToTxnResponse, AddPartitionsToTxnResponse, DescribeTransactionsResponse,
    EndTxnResponse, InitProducerIdResponse, ListTransactionsResponse, TransactionalId,
};
use shares::Owner;

use crate::participants::Participants;
use crate::state_log::Record;
use crate::transaction::{Outcome, Producer};

/// The owner's name for a request that is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub ticket: Ticket,
    /// Version of the request, which decides what the client understands.
    pub api_version: i16,
    /// Whose share of the coordinator's limits is taken.
    pub owner: Owner,
    /// Milliseconds of a clock that nobody sets, and which never goes back from one call to the
    /// next. [`Transactions::set_host_ahead`](crate::Transactions::set_host_ahead) says how the
    /// host's differs.
    pub now_ms: i64,
}

/// Effect that the owner has to carry out, in order: see the rule of effects in the crate's
/// documentation.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Append to the state log.
    Persist(Record),
    /// Write markers, then call [`Transactions::markers_written`](crate::Transactions).
    WriteMarkers(Markers),
    /// Answer a request. Each ticket is answered once, sometimes by a later call.
    Reply(Ticket, Response),
}

/// Says which markers were written. It is of one [`Transactions`](crate::Transactions): an owner
/// that drops one and loads another lets its markers end first, and forgets their tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkersTicket(pub(crate) u64);

/// The end of a transaction, to be written to each partition and told to each group that took part
/// in it. Partitions and groups that are deleted are left out. A marker that cannot be written is
/// tried again; none may be on its way when the ticket was handed back, for it would end the
/// producer's next transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Markers {
    pub ticket: MarkersTicket,
    pub transactional_id: TransactionalId,
    /// The epoch is the marker's. It is above that of the records where the transaction was fenced,
    /// or was ended by a client of transaction.version 2.
    pub producer: Producer,
    pub outcome: Outcome,
    pub participants: Participants,
}

/// An answer in Kafka's form. Throttle times are the owner's.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    InitProducerId(InitProducerIdResponse),
    AddPartitionsToTxn(AddPartitionsToTxnResponse),
    AddOffsetsToTxn(AddOffsetsToTxnResponse),
    EndTxn(EndTxnResponse),
    ListTransactions(ListTransactionsResponse),
    DescribeTransactions(DescribeTransactionsResponse),
    /// To [`Transactions::admit`](crate::Transactions::admit).
    Admitted(Result<(), ResponseError>),
}
