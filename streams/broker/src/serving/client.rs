//! Who is at the other end of a connection.

use std::net::SocketAddr;

use crate::broker::Broker;

/// What a client wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
    Create,
    Delete,
    Alter,
    Describe,
    DescribeConfigs,
    AlterConfigs,
}

/// With what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource<'a> {
    Topic(&'a str),
    Group(&'a str),
    TransactionalId(&'a str),
    Cluster,
}

/// One connection's client.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
}

impl Client {
    /// Whether the client may do that.
    pub(crate) fn may(&self, _: &Broker, _: Operation, _: Resource<'_>) -> bool {
        true
    }
}
