//! Context of requests, and effects that the coordinator requests from its owner.

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::ResponseKind;
use shares::Owner;

use crate::options::Options;

/// Identifier of a request, chosen by the owner, for its reply. Each is answered once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Origin and time of a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub ticket: Ticket,
    /// Version of the request and its reply.
    pub api_version: i16,
    pub client_id: &'a str,
    /// The client's address, for descriptions of groups.
    pub host: &'a str,
    /// The client's principal, as named by the owner; empty if unknown.
    pub principal: &'a str,
    /// Owner whose share of the coordinator's limits the request uses.
    pub owner: Owner,
    /// Time of a monotonic clock in milliseconds. Its epoch is 1970 by the host's clock at some
    /// time; [`Groups::set_host_ahead`] sets the current difference.
    ///
    /// [`Groups::set_host_ahead`]: crate::Groups::set_host_ahead
    pub now_ms: i64,
}

/// Record of the state log: the latest value of a key is valid. A record without a value deletes
/// the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Bytes,
    pub value: Option<Bytes>,
}

/// Action that the owner must perform, in order, within and across calls.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Append to the state log.
    Persist(Record),
    /// Reply to a request, after the records of all earlier effects are durable.
    Reply(Ticket, ResponseKind),
}

/// A request that is answered later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) ticket: Ticket,
    pub(crate) api_version: i16,
}

/// Context of one call: time, limits and effects.
pub(crate) struct CallContext<'a> {
    pub(crate) now_ms: i64,
    /// Time of the host's clock, for persistent timestamps.
    pub(crate) unix_ms: i64,
    pub(crate) options: Options,
    pub(crate) out: &'a mut Vec<Effect>,
}

impl CallContext<'_> {
    pub(crate) fn persist(&mut self, record: Record) {
        self.out.push(Effect::Persist(record));
    }

    pub(crate) fn reply(&mut self, ticket: Ticket, response: impl Into<ResponseKind>) {
        self.out.push(Effect::Reply(ticket, response.into()));
    }
}

/// Converts a result to an error code; 0 means success.
pub(crate) fn code(result: Result<(), ResponseError>) -> i16 {
    result.err().map_or(0, |error| error.code())
}
