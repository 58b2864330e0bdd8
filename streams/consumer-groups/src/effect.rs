//! Inputs of the coordinator with a request, and its demands on its owner.

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::ResponseKind;
use shares::Owner;

use crate::options::Options;

/// The owner's name for a request whose reply is due. Each is answered once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Where a request comes from, and when.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub ticket: Ticket,
    /// The version of the request, and of the reply to it.
    pub api_version: i16,
    pub client_id: &'a str,
    /// The client's address, for descriptions of groups.
    pub host: &'a str,
    /// Who the client is, in the owner's words. Empty where that is not known.
    pub principal: &'a str,
    /// Whose share of the coordinator's limits is taken.
    pub owner: Owner,
    /// Milliseconds of a clock that nobody sets, and which never goes back from one call to the
    /// next. It agreed with the host's, since 1970, at some time; [`Groups::set_host_ahead`] says
    /// what has become of that.
    ///
    /// [`Groups::set_host_ahead`]: crate::Groups::set_host_ahead
    pub now_ms: i64,
}

/// An entry of the state log: the newest value under a key counts. Without a value the key is
/// forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Bytes,
    pub value: Option<Bytes>,
}

/// Effect that the owner is to carry out, in the order of the list, and of the calls.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Append to the state log.
    Persist(Record),
    /// Answer the request, once every record of an effect before this one is durable.
    Reply(Ticket, ResponseKind),
}

/// A request that is answered later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) ticket: Ticket,
    pub(crate) api_version: i16,
}

/// One call into the coordinator: its time, its limits and its effects.
pub(crate) struct CallContext<'a> {
    pub(crate) now_ms: i64,
    /// By the host's clock: for what is kept.
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

/// The code of a result on the wire: 0 if it went well.
pub(crate) fn code(result: Result<(), ResponseError>) -> i16 {
    result.err().map_or(0, |error| error.code())
}
