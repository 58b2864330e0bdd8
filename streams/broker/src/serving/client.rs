//! Who is at the other end of a connection.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::{Duration, Instant};

use access::{ConnectionPlace, Operation, Principal, Resource};
use shares::Owner;

use crate::broker::Broker;
use crate::operation::Flow;

const NO_PANIC: &str = "no thread panics with this lock";

/// One connection's client.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
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
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, identity: Arc::default(), muted_until: Arc::default() }
    }

    /// Says who it is. Another login on a connection is of the same principal.
    pub(super) fn identify(&self, principal: Principal, place: ConnectionPlace) {
        // One that came later changes nothing, and its place is given back.
        let owner = owner_of(&principal, self.address.ip());
        let _known = self.identity.set(Identity { principal, owner, place });
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

/// A number for a principal, or for an address where nobody has logged in: a name that somebody
/// only claims to have is not theirs. Of an IPv6 address it is the network.
fn owner_of(principal: &Principal, address: IpAddr) -> Owner {
    static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let network = match address.to_canonical() {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    };
    let is_known = *principal != Principal::anonymous();
    let number = HASHES.hash_one((is_known.then_some(principal), (!is_known).then_some(network)));
    // 0 is nobody's.
    Owner(number.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_users_and_else_of_addresses() {
        let owner = |principal: &Principal, address: &str| {
            owner_of(principal, address.parse().expect("an address"))
        };
        let anonymous = Principal::anonymous();
        let user = |name| Principal::user(name).expect("a good name");
        assert_eq!(owner(&user("a"), "10.0.0.1"), owner(&user("a"), "10.0.0.2"));
        assert_ne!(owner(&user("a"), "10.0.0.1"), owner(&user("b"), "10.0.0.1"));
        assert_ne!(owner(&user("a"), "10.0.0.1"), owner(&anonymous, "10.0.0.1"));
        assert_ne!(owner(&anonymous, "10.0.0.1"), owner(&anonymous, "10.0.0.2"));
        assert_eq!(owner(&anonymous, "10.0.0.1"), owner(&anonymous, "::ffff:10.0.0.1"));
        assert_eq!(owner(&anonymous, "2001:db8::1"), owner(&anonymous, "2001:db8::2"));
        assert_ne!(owner(&anonymous, "2001:db8::1"), owner(&anonymous, "2001:db8:1::1"));
    }
}
