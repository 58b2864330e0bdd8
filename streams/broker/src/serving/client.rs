//! Who is at the other end of a connection.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use access::{ConnectionPlace, Operation, Principal, Resource};

use crate::broker::Broker;

/// One connection's client.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    identity: Arc<OnceLock<Identity>>,
}

#[derive(Debug)]
struct Identity {
    principal: Principal,
    place: ConnectionPlace,
}

impl Client {
    /// Not known yet.
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, identity: Arc::default() }
    }

    /// Says who it is. Another login on a connection is of the same principal.
    pub(super) fn identify(&self, principal: Principal, place: ConnectionPlace) {
        // One that came later changes nothing, and its place is given back.
        let _known = self.identity.set(Identity { principal, place });
    }

    pub(super) fn is_known(&self) -> bool {
        self.identity.get().is_some()
    }

    /// The account of its principal.
    pub(super) fn place(&self) -> Option<&ConnectionPlace> {
        self.identity.get().map(|identity| &identity.place)
    }

    /// Whether the client may do that.
    pub(crate) fn may(
        &self,
        broker: &Broker,
        operation: Operation,
        resource: Resource<'_>,
    ) -> bool {
        self.identity.get().is_some_and(|identity| {
            broker.gate.allows(&identity.principal, self.address.ip(), operation, resource)
        })
    }

    /// Whether the client may do that with some topic.
    pub(crate) fn may_with_some_topic(&self, broker: &Broker, operation: Operation) -> bool {
        self.identity.get().is_some_and(|identity| {
            broker.gate.allows_some_topic(&identity.principal, self.address.ip(), operation)
        })
    }
}
