//! Client of a connection.

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

/// Client of one connection. Clones share its state.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    /// Place among all connections, which can be evicted until the client is identified.
    seat: Arc<Seat>,
    identity: Arc<OnceLock<Identity>>,
    /// Time until which no request of the connection is read (KIP-219).
    muted_until: Arc<Mutex<Option<Instant>>>,
}

#[derive(Debug)]
struct Identity {
    principal: Principal,
    owner: Owner,
    place: ConnectionPlace,
}

impl Client {
    /// Creates a client that is not identified yet.
    pub(super) fn new(address: SocketAddr, seat: Arc<Seat>) -> Self {
        Self { address, seat, identity: Arc::default(), muted_until: Arc::default() }
    }

    /// Sets the client's principal. Reauthentication cannot change it.
    ///
    /// # Errors
    /// The principal has reached its limit of connections.
    pub(super) fn identify(&self, broker: &Broker, principal: Principal) -> Result<(), QuotaError> {
        let (ip, now) = (self.address.ip(), Instant::now());
        let limits = broker.rules.users().quota_of(&principal);
        let place = broker.rules.quotas.connect((&principal, ip), limits, now)?;
        let owner = owner_of(&principal, ip);
        if !self.seat.hold(owner) {
            return Err(QuotaError::Shares);
        }
        // A repeated login changes nothing, and its place is released.
        let _known = self.identity.set(Identity { principal, owner, place });
        Ok(())
    }

    pub(super) fn is_known(&self) -> bool {
        self.identity.get().is_some()
    }

    /// Returns the name of its principal; empty before identification.
    pub(crate) fn principal(&self) -> &str {
        self.identity.get().map_or("", |identity| identity.principal.as_str())
    }

    /// Returns the owner whose share of common limits it uses.
    pub(crate) fn owner(&self) -> Owner {
        self.identity.get().map_or(Owner::NOBODY, |identity| identity.owner)
    }

    /// Returns its principal's quota account.
    pub(super) fn place(&self) -> Option<&ConnectionPlace> {
        self.identity.get().map(|identity| &identity.place)
    }

    /// Charges produced or fetched bytes. If the principal's rate is exceeded, the connection is
    /// muted. Returns the `throttle_time_ms` of the response.
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

    /// Returns the time until which the connection is muted, if any.
    pub(super) fn muted_until(&self) -> Option<Instant> {
        let muted_until = *self.muted_until.lock().expect(NO_PANIC);
        muted_until.filter(|until| *until > Instant::now())
    }

    /// Logs a request that cannot be decoded, for which the connection is closed.
    pub(crate) fn note_unreadable(&self, asked: Asked, client_id: &str, error: &dyn Display) {
        tracing::warn!(
            address = %self.address, principal = self.principal(), client = client_id,
            request = ?asked.key, version = asked.version, %error,
            "connection closed: malformed request"
        );
    }

    /// Returns whether the client may perform the operation.
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

    /// Returns whether the client may perform the operation on at least one topic.
    pub(crate) fn may_with_some_topic(&self, broker: &Broker, operation: Operation) -> bool {
        self.identity.get().is_some_and(|identity| {
            broker.rules.allows_some_topic(&identity.principal, self.address.ip(), operation)
        })
    }
}
