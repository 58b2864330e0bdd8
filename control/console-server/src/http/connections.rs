//! Accounting of connections: by client network before authentication, by user afterwards.
//!
//! ```text
//! accepted ─▶ unauthenticated, by network ─▶ of a user, once a request is authenticated
//!                  │ limit of all connections: the oldest of the network with the most
//!                  ▼                              ▼ limit of users: the oldest of the user
//!                closed                         closed            with the most
//! ```
//!
//! New connections are never refused and never wait. At a limit, another connection is closed
//! instead. Unauthenticated connections only displace other unauthenticated ones, never those of
//! users.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::access::network_of;

/// Maximum number of connections.
const CONNECTIONS_MAX: usize = 1_024;

/// Maximum number of unauthenticated connections per network.
const OF_ADDRESS_MAX: usize = 512;

/// Maximum number of connections per user, and of all users. The rest is for clients that log in.
const OF_USER_MAX: usize = 256;
const OF_USERS_MAX: usize = 768;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Group {
    /// Unauthenticated clients in a network: an IPv4 address or an IPv6 /64.
    Strangers(IpAddr),
    User(String),
}

#[derive(Debug, Default)]
struct Open {
    next_id: u64,
    count: usize,
    of_users: usize,
    /// Connections of each group, oldest first. Dropping a sender closes its connection.
    of: HashMap<Group, BTreeMap<u64, oneshot::Sender<()>>>,
}

/// All connections of the console.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<Open>);

/// An accounted connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    all: Arc<Connections>,
    id: u64,
    group: Mutex<Group>,
}

impl Connections {
    /// Registers a new connection. The receiver ends when the connection must be closed.
    pub(super) fn enter(
        self: &Arc<Self>,
        address: IpAddr,
    ) -> (Arc<Connection>, oneshot::Receiver<()>) {
        let group = Group::Strangers(network_of(address));
        let mut open = self.lock();
        if open.count_of(&group) >= OF_ADDRESS_MAX {
            open.end_oldest_of(&group);
        }
        if open.count >= CONNECTIONS_MAX {
            let is_stranger = |it: &Group| matches!(it, Group::Strangers(_));
            open.end_oldest_of_most(is_stranger);
        }
        let (keep, ended) = oneshot::channel();
        let id = open.next_id;
        open.next_id += 1;
        open.insert(group.clone(), id, keep);
        drop(open);
        (Arc::new(Connection { all: Arc::clone(self), id, group: Mutex::new(group) }), ended)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Moves the connection to its user, or to the unauthenticated ones of a network.
    pub(super) fn is_of(&self, user: Option<&str>, address: IpAddr) {
        let new = match user {
            Some(user) => Group::User(user.to_owned()),
            None => Group::Strangers(network_of(address)),
        };
        let mut group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        if *group == new {
            return;
        }
        let mut open = self.all.lock();
        // A connection that is being closed no longer belongs to a group.
        let Some(keep) = open.remove(&group, self.id) else { return };
        if user.is_some() {
            if open.count_of(&new) >= OF_USER_MAX {
                open.end_oldest_of(&new);
            }
            if open.of_users >= OF_USERS_MAX {
                open.end_oldest_of_most(|it| matches!(it, Group::User(_)));
            }
        }
        open.insert(new.clone(), self.id, keep);
        *group = new;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        self.all.lock().remove(&group, self.id);
    }
}

impl Open {
    fn count_of(&self, group: &Group) -> usize {
        self.of.get(group).map_or(0, BTreeMap::len)
    }

    fn insert(&mut self, group: Group, id: u64, keep: oneshot::Sender<()>) {
        self.count += 1;
        self.of_users += usize::from(matches!(group, Group::User(_)));
        self.of.entry(group).or_default().insert(id, keep);
    }

    fn remove(&mut self, group: &Group, id: u64) -> Option<oneshot::Sender<()>> {
        let places = self.of.get_mut(group)?;
        let keep = places.remove(&id)?;
        if places.is_empty() {
            self.of.remove(group);
        }
        self.count -= 1;
        self.of_users -= usize::from(matches!(group, Group::User(_)));
        Some(keep)
    }

    fn end_oldest_of(&mut self, group: &Group) {
        let oldest = self.of.get(group).and_then(|it| it.keys().next().copied());
        oldest.and_then(|id| self.remove(group, id));
    }

    /// Closes the oldest connection of the largest group. Of equally large groups, the one with the
    /// oldest connection is chosen.
    fn end_oldest_of_most(&mut self, is_meant: impl Fn(&Group) -> bool) {
        let meant = self.of.iter().filter(|(group, _)| is_meant(group));
        let age = |places: &BTreeMap<u64, _>| places.keys().next().map(|id| u64::MAX - id);
        let most = meant.max_by_key(|(_, places)| (places.len(), age(places)));
        let most = most.map(|(group, _)| group.clone());
        most.into_iter().for_each(|group| self.end_oldest_of(&group));
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(number: usize) -> IpAddr {
        let number = u32::try_from(number).expect("it is small");
        IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number))
    }

    fn is_open(ended: &mut oneshot::Receiver<()>) -> bool {
        matches!(ended.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    #[test]
    fn a_stranger_finds_room_behind_as_many_as_there_may_be() {
        for from_one in [true, false] {
            let all = Arc::new(Connections::default());
            let (user, mut of_user) = all.enter(address(0));
            user.is_of(Some("ann"), address(0));
            let enter = |number| all.enter(address(if from_one { 1 } else { number }));
            let mut others: Vec<_> = (1..=3 * CONNECTIONS_MAX).map(enter).collect();
            let (_stranger, mut of_stranger) = all.enter(address(1));
            assert!(is_open(&mut of_user) && is_open(&mut of_stranger), "{from_one}");
            let still = others.iter_mut().filter_map(|(_, it)| is_open(it).then_some(())).count();
            let expected = if from_one { OF_ADDRESS_MAX } else { CONNECTIONS_MAX - 1 };
            assert_eq!(still, expected - 1, "{from_one}");
            drop(others);
            assert_eq!(all.lock().count, 2);
        }
    }

    #[test]
    fn a_user_who_takes_all_leaves_room_for_other_users_and_for_strangers() {
        let all = Arc::new(Connections::default());
        let begin = |user: &str| {
            let (connection, ended) = all.enter(address(0));
            connection.is_of(Some(user), address(0));
            (connection, ended)
        };
        let (_ann, mut of_ann) = begin("ann");
        let users = ["bob", "cid", "dan", "eve"];
        let _many: Vec<_> =
            (0..4 * CONNECTIONS_MAX).map(|number| begin(users[number % users.len()])).collect();
        assert!(is_open(&mut of_ann));
        assert_eq!(all.lock().of_users, OF_USERS_MAX);
        let (_stranger, mut of_stranger) = all.enter(address(1));
        assert!(is_open(&mut of_stranger));
    }

    #[test]
    fn a_connection_that_was_ended_is_nobodys() {
        let all = Arc::new(Connections::default());
        let (connection, _ended) = all.enter(address(0));
        let _others: Vec<_> = (0..OF_ADDRESS_MAX).map(|_| all.enter(address(0))).collect();
        connection.is_of(Some("ann"), address(0));
        let open = all.lock();
        assert_eq!((open.count, open.of_users), (OF_ADDRESS_MAX, 0));
        drop(open);
    }
}
