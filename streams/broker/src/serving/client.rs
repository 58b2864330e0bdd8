//! Who is at the other end of a connection.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use access::{ConnectionPlace, Operation, Principal, QuotaError, Resource, owner_of};
use program::Seat;
use shares::Owner;

use super::asked::Asked;
use crate::broker::Broker;
use crate::operation::Flow;

const NO_PANIC: &str = "no thread panics with this lock";

/// One connection's client.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    /// To spare until it is known who the client is.
    seat: Arc<Seat>,
    identity: Arc<OnceLock<Identity>>,
    /// No request of the connection is taken in before this (KIP-219).
    muted_until: Arc<Mutex<Option<Instant>>>,
}

#[derive(Debug)]
struct Identity {
    principal: Principal,
    owner: Owner,
    place: ConnectionPlace,
}

impl Client {
    /// Not known yet.
    pub(super) fn new(address: SocketAddr, seat: Arc<Seat>) -> Self {
        Self { address, seat, identity: Arc::default(), muted_until: Arc::default() }
    }

    /// Says who it is. Another login on a connection is of the same principal.
    ///
    /// # Errors
    /// The principal has as many connections as it may have.
    pub(super) fn identify(&self, broker: &Broker, principal: Principal) -> Result<(), QuotaError> {
        let (ip, now) = (self.address.ip(), Instant::now());
        let limits = broker.rules.users().quota_of(&principal);
        let place = broker.rules.quotas.connect((&principal, ip), limits, now)?;
        let owner = owner_of(&principal, ip);
        if !self.seat.hold(owner) {
            return Err(QuotaError::Shares);
        }
        // One that came later changes nothing, and its place is given back.
        let _known = self.identity.set(Identity { principal, owner, place });
        Ok(())
    }

    pub(super) fn is_known(&self) -> bool {
        self.identity.get().is_some()
    }

    /// Its principal's name; empty where that is not known yet.
    pub(crate) fn principal(&self) -> &str {
        self.identity.get().map_or("", |identity| identity.principal.as_str())
    }

    /// Whose share it takes of limits that all have together.
    pub(crate) fn owner(&self) -> Owner {
        self.identity.get().map_or(Owner::NOBODY, |identity| identity.owner)
    }

    /// The account of its principal.
    pub(super) fn place(&self) -> Option<&ConnectionPlace> {
        self.identity.get().map(|identity| &identity.place)
    }

    /// Counts bytes that it produced or fetched, and mutes its connection where these are more than
    /// its principal's rate allows: the `throttle_time_ms` of the answer.
    pub(super) fn charge(&self, broker: &Broker, flow: Flow, bytes: usize) -> i32 {
        let Some(place) = self.place() else { return 0 };
        let now = Instant::now();
        let throttle_ms = match flow {
            Flow::Produce => place.produced(bytes as u64, now),
            Flow::Fetch => place.fetched(bytes as u64, now),
        };
        if throttle_ms > 0 {
            let time = Duration::from_millis(u64::try_from(throttle_ms).unwrap_or(0));
            broker.counters.throttled(flow, time);
            let mut muted_until = self.muted_until.lock().expect(NO_PANIC);
            *muted_until = (*muted_until).max(Some(now + time));
        }
        throttle_ms
    }

    /// Until when the connection is muted, if it is.
    pub(super) fn muted_until(&self) -> Option<Instant> {
        let muted_until = *self.muted_until.lock().expect(NO_PANIC);
        muted_until.filter(|until| *until > Instant::now())
    }

    /// Says in the log whose connection ends over a request that cannot be read.
    pub(crate) fn note_unreadable(&self, asked: Asked, client_id: &str, error: &dyn Display) {
        tracing::warn!(
            address = %self.address, principal = self.principal(), client = client_id,
            request = ?asked.key, version = asked.version, %error,
            "connection closed: malformed request"
        );
    }

    /// Returns whether the client may do that.
    pub(crate) fn may(
        &self,
        broker: &Broker,
        operation: Operation,
        resource: Resource<'_>,
    ) -> bool {
        self.identity.get().is_some_and(|identity| {
            broker.rules.allows(&identity.principal, self.address.ip(), operation, resource)
        })
    }

    /// Returns whether the client may do that with some topic.
    pub(crate) fn may_with_some_topic(&self, broker: &Broker, operation: Operation) -> bool {
        self.identity.get().is_some_and(|identity| {
            broker.rules.allows_some_topic(&identity.principal, self.address.ip(), operation)
        })
    }
}
