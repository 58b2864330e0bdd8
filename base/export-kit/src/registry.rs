//! Open connections of an export, and their traffic.
//!
//! The registry's lock is held briefly when a connection is made, opens a volume, or is closed.
//! Serving requests only changes the connection's own [`Counters`].
//!
//! A client repeats unanswered requests of a lost connection on its next one. Therefore a volume is
//! not opened while a closed connection still has requests in its device: they could take effect
//! after their repetitions. See [`Registration::open`] and [`Inside`].

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::Shutdown;
use sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::peer::Peer;
use crate::quota::Quota;
use crate::traffic::{Counters, Traffic};
use crate::unix_socket::end_socket;

/// Maximum time to send the remaining answers on a connection whose client is gone, while another
/// connection waits for it.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);

/// Registry of the connections of one export. `K` identifies the opened object, such as a volume's
/// id. `U` is passed to [`Registry::visit`].
pub struct Registry<K, U = ()> {
    quota: Quota,
    /// Number of open connections, readable without the lock.
    open_count: AtomicUsize,
    book: Mutex<Book<K, U>>,
    all_gone: Condvar,
    /// Notified when a connection has no more requests in a device.
    one_left: Condvar,
}

struct Book<K, U> {
    open: BTreeMap<u64, Entry<K, U>>,
    /// Number of connections that have opened each object, if there are any.
    opened: BTreeMap<K, usize>,
    /// Objects that connections have opened and may have requests in, including those of closed
    /// connections.
    inside: BTreeMap<u64, K>,
    /// Number of accepted connections, also used as their ids.
    accepted: u64,
    refused: u64,
    /// Traffic of closed connections.
    past: Traffic,
}

struct Entry<K, U> {
    /// `None`: a client on another host.
    peer: Option<Peer>,
    socket: Arc<OwnedFd>,
    is_ending: Arc<AtomicBool>,
    opened: Option<(K, U)>,
    counters: Arc<Counters>,
}

/// State of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status<K: Ord> {
    /// Number of clients of each volume that has any.
    pub clients: BTreeMap<K, usize>,
    /// Number of clients that have not opened a volume yet.
    pub handshakes: usize,
    /// Number of clients since the start.
    pub accepted: u64,
    /// Number of clients since the start that were disconnected immediately, because there were too
    /// many or they have no access.
    pub refused: u64,
    /// Traffic since the start.
    pub traffic: Traffic,
}

impl<K: Ord> Status<K> {
    /// Number of clients, with or without an open volume.
    pub fn client_count(&self) -> usize {
        self.handshakes + self.clients.values().sum::<usize>()
    }
}

/// Entry of a connection. Dropping it removes the entry.
pub struct Registration<K: Ord + Clone, U = ()> {
    registry: Arc<Registry<K, U>>,
    id: u64,
    is_ending: Arc<AtomicBool>,
    counters: Arc<Counters>,
}

/// Guard that each thread which may change data for a connection holds meanwhile.
pub struct Inside<K: Ord, U = ()> {
    registry: Arc<Registry<K, U>>,
    id: u64,
}

impl<K: Ord + Clone, U> Registry<K, U> {
    pub fn new(quota: Quota) -> Self {
        let (open, opened, inside) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let past = Traffic::default();
        let book = Book { open, opened, inside, accepted: 0, refused: 0, past };
        let (open_count, book) = (AtomicUsize::new(0), Mutex::new(book));
        Self { quota, open_count, book, all_gone: Condvar::new(), one_left: Condvar::new() }
    }

    /// Registers a connection, or counts it as refused if there are too many. Clients on other
    /// hosts, without a peer, have a limit of their own.
    pub fn admit(
        self: &Arc<Self>,
        peer: Option<&Peer>,
        socket: &Arc<OwnedFd>,
    ) -> Option<Registration<K, U>> {
        let mut book = self.book();
        let mut present = book.open.values().map(|entry| entry.peer.as_ref());
        let has_room = match peer {
            Some(peer) => self.quota.has_room(present.flatten(), peer),
            None => present.by_ref().filter(Option::is_none).count() < self.quota.total,
        };
        if !has_room {
            book.refused += 1;
            return None;
        }
        let id = book.accepted;
        book.accepted += 1;
        let (is_ending, counters) = (Arc::<AtomicBool>::default(), Arc::<Counters>::default());
        let entry = Entry {
            peer: peer.cloned(),
            socket: Arc::clone(socket),
            is_ending: Arc::clone(&is_ending),
            opened: None,
            counters: Arc::clone(&counters),
        };
        book.open.insert(id, entry);
        self.note_open_count(&book);
        Some(Registration { registry: Arc::clone(self), id, is_ending, counters })
    }

    /// Counts a client that was refused before it was registered.
    pub fn note_refused(&self) {
        self.book().refused += 1;
    }

    /// Number of connections that have opened `key`. The time does not depend on the number of
    /// connections.
    pub fn count_of<Q: ?Sized + Ord>(&self, key: &Q) -> usize
    where
        K: std::borrow::Borrow<Q>,
    {
        self.book().opened.get(key).copied().unwrap_or(0)
    }

    pub fn status(&self) -> Status<K> {
        let book = self.book();
        let (accepted, refused, traffic) = (book.accepted, book.refused, book.past);
        let mut status = Status { accepted, refused, traffic, ..Status::default() };
        for entry in book.open.values() {
            status.traffic += entry.counters.traffic();
            status.handshakes += usize::from(entry.opened.is_none());
        }
        status.clients.clone_from(&book.opened);
        status
    }

    /// Calls `visit` for all connections that have opened `key`. `visit` must not block.
    pub fn visit(&self, key: &K, visit: impl FnMut(&U)) {
        let book = self.book();
        let opened = book.open.values().filter_map(|entry| entry.opened.as_ref());
        opened.filter(|(opened, _)| opened == key).map(|(_, used)| used).for_each(visit);
    }

    /// Closes all connections that have opened `key`. Returns their number.
    pub fn disconnect<Q: ?Sized + PartialEq>(&self, key: &Q) -> usize
    where
        K: std::borrow::Borrow<Q>,
    {
        let book = self.book();
        let opened = book.open.values().filter(|entry| entry.has_opened(key));
        opened.map(|entry| entry.end(Shutdown::Both)).count()
    }

    /// Returns whether a connection to `key` is about to close, because its client or the server
    /// has disconnected.
    pub fn is_closing<Q: ?Sized + PartialEq>(&self, key: &Q) -> bool
    where
        K: std::borrow::Borrow<Q>,
    {
        let book = self.book();
        let opened = book.open.values().filter(|entry| entry.has_opened(key)).collect();
        closing(opened).iter().any(|is_closing| *is_closing)
    }

    /// Shuts down the direction `first` of all connections, and at `deadline` both directions of
    /// those that remain. Returns the number of the latter.
    pub fn drain(&self, first: Shutdown, deadline: Instant) -> usize {
        let mut book = self.book();
        book.open.values().for_each(|entry| entry.end(first));
        while !book.open.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            (book, _) = self.all_gone.wait_timeout(book, left).expect(NOT_POISONED);
        }
        book.open.values().map(|entry| entry.end(Shutdown::Both)).count()
    }

    fn note_open_count(&self, book: &Book<K, U>) {
        // Relaxed: the count carries no data.
        self.open_count.store(book.open.len(), Ordering::Relaxed);
    }
}

impl<K: Ord, U> Registry<K, U> {
    fn book(&self) -> MutexGuard<'_, Book<K, U>> {
        self.book.lock().expect(NOT_POISONED)
    }
}

impl<K: Ord, U> Book<K, U> {
    /// Counts one connection less to an object, if the connection had one open.
    fn note_closed(&mut self, key: Option<K>) {
        let Some(key) = key else { return };
        if let Some(count) = self.opened.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.opened.remove(&key);
            }
        }
    }

    /// Closed connections that may have requests in the device of `key`.
    fn leaving(&self, key: &K) -> Vec<u64> {
        let inside = self.inside.iter().filter(|(_, opened)| *opened == key).map(|(id, _)| *id);
        let (open, mut leaving): (Vec<u64>, Vec<u64>) =
            inside.partition(|id| self.open.contains_key(id));
        let is_closing = closing(open.iter().map(|id| &self.open[id]).collect());
        let is_closing = open.into_iter().zip(is_closing).filter(|(_, is_closing)| *is_closing);
        leaving.extend(is_closing.map(|(id, _)| id));
        leaving
    }
}

/// Returns for each connection whether its client or the server has disconnected.
fn closing<K, U>(entries: Vec<&Entry<K, U>>) -> Vec<bool> {
    let sockets = entries.iter().map(|entry| &*entry.socket);
    let mut events: Vec<_> = sockets.map(|socket| PollFd::new(socket, PollFlags::RDHUP)).collect();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // If the poll fails, no client is known to have disconnected.
    if let Err(error) = retry_on_intr(|| poll(&mut events, Some(&now))) {
        tracing::warn!(%error, "cannot check for disconnected clients");
    }
    let has_gone = events.iter().map(|event| !event.revents().is_empty());
    let is_ending = entries.iter().map(|entry| entry.is_ending.load(Ordering::Relaxed));
    has_gone.zip(is_ending).map(|(has_gone, is_ending)| has_gone || is_ending).collect()
}

impl<K, U> Entry<K, U> {
    fn has_opened<Q: ?Sized + PartialEq>(&self, key: &Q) -> bool
    where
        K: std::borrow::Borrow<Q>,
    {
        self.opened.as_ref().is_some_and(|(opened, _)| opened.borrow() == key)
    }

    fn end(&self, how: Shutdown) {
        if how == Shutdown::Both {
            // Relaxed: it guards no data; a sleeping thread is woken by the shutdown of its socket.
            self.is_ending.store(true, Ordering::Relaxed);
        }
        end_socket(&*self.socket, how);
    }
}

impl<K: Ord + Clone, U> Registration<K, U> {
    /// Opens `key`, with `used` for [`Registry::visit`]. Waits until closed connections have no
    /// more requests in its device. Returns `None` if this takes longer than `time_max`.
    pub fn open(&self, key: K, used: U, time_max: Duration) -> Option<Inside<K, U>> {
        let begun = Instant::now();
        let mut book = self.registry.book();
        loop {
            let leaving = book.leaving(&key);
            if leaving.is_empty() {
                break;
            }
            let mut left = time_max.checked_sub(begun.elapsed())?;
            match FAREWELL_TIME_MAX.checked_sub(begun.elapsed()) {
                Some(farewell) => left = left.min(farewell),
                None => {
                    let open = leaving.iter().filter_map(|id| book.open.get(id));
                    open.for_each(|entry| entry.end(Shutdown::Both));
                }
            }
            (book, _) = self.registry.one_left.wait_timeout(book, left).expect(NOT_POISONED);
        }
        let entry = book.open.get_mut(&self.id).expect("the entry goes with the registration");
        let before = entry.opened.replace((key.clone(), used));
        book.note_closed(before.map(|(key, _)| key));
        *book.opened.entry(key.clone()).or_default() += 1;
        book.inside.insert(self.id, key);
        Some(Inside { registry: Arc::clone(&self.registry), id: self.id })
    }

    /// Returns whether the connection must close immediately.
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Number of open connections, including this one.
    pub fn open_count(&self) -> usize {
        // Relaxed: the count carries no data.
        self.registry.open_count.load(Ordering::Relaxed)
    }
}

impl<K: Ord + Clone, U> Drop for Registration<K, U> {
    fn drop(&mut self) {
        let mut book = self.registry.book();
        let entry = book.open.remove(&self.id);
        let opened = entry.as_ref().and_then(|entry| entry.opened.as_ref());
        let key = opened.map(|(key, _)| key.clone());
        book.note_closed(key);
        self.registry.note_open_count(&book);
        book.past += self.counters.traffic();
        if book.open.is_empty() {
            self.registry.all_gone.notify_all();
        }
        drop(book);
        // Dropped after the lock is released, because freeing its memory may take time.
        drop(entry);
    }
}

impl<K: Ord, U> Drop for Inside<K, U> {
    fn drop(&mut self) {
        self.registry.book().inside.remove(&self.id);
        self.registry.one_left.notify_all();
    }
}

impl<K: Ord> Default for Status<K> {
    fn default() -> Self {
        let (clients, traffic) = (BTreeMap::new(), Traffic::default());
        Self { clients, handshakes: 0, accepted: 0, refused: 0, traffic }
    }
}

const NOT_POISONED: &str = "nothing panics while it holds this lock";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    const QUOTA: Quota = Quota { total: 2, per_user: 2, reserved: 0 };

    #[test]
    fn a_connection_is_counted_while_it_is_there_and_its_traffic_for_good() {
        let registry = Arc::new(Registry::<u64>::new(QUOTA));
        let (here, _there) = UnixStream::pair().expect("a pair");
        let socket = Arc::new(OwnedFd::from(here));
        let [first, second] = [(); 2].map(|()| registry.admit(None, &socket).expect("a place"));
        assert!(registry.admit(None, &socket).is_none());
        let _inside = first.open(7, (), Duration::ZERO).expect("nobody was there before");
        first.counters().writes.add(3);
        let status = registry.status();
        assert_eq!((status.clients, status.handshakes), (BTreeMap::from([(7, 1)]), 1));
        assert_eq!((status.accepted, status.refused, status.traffic.writes), (2, 1, 3));
        assert_eq!((registry.disconnect(&8), registry.disconnect(&7)), (0, 1));
        assert!(first.is_ending() && !second.is_ending());
        drop(first);
        assert_eq!((second.open_count(), registry.status().traffic.writes), (1, 3));
        assert_eq!(registry.drain(Shutdown::Both, Instant::now()), 1);
        drop(second);
        assert_eq!(registry.drain(Shutdown::Both, Instant::now()), 0);
    }

    /// A connection that has opened 7, its two ends, and its guard.
    struct Opened {
        registration: Option<Registration<u64>>,
        inside: Option<Inside<u64>>,
        client: Option<UnixStream>,
    }

    fn open(registry: &Arc<Registry<u64>>, time_max: Duration) -> Option<Opened> {
        let (here, client) = UnixStream::pair().expect("a pair");
        let registration = registry.admit(None, &Arc::new(here.into())).expect("a place");
        let inside = registration.open(7, (), time_max)?;
        let (registration, inside, client) = (Some(registration), Some(inside), Some(client));
        Some(Opened { registration, inside, client })
    }

    /// Closes a connection and checks whether another one must wait until its requests have left
    /// the device.
    #[track_caller]
    fn check_waiting(end: impl FnOnce(&Registry<u64>, &mut Opened), must_wait: bool) {
        let registry = Arc::new(Registry::new(Quota { total: 9, per_user: 9, reserved: 0 }));
        let mut first = open(&registry, Duration::ZERO).expect("nobody was there before");
        let beside = open(&registry, Duration::ZERO);
        assert!(beside.is_some(), "a connection that goes on is not waited for");
        end(&registry, &mut first);
        assert_eq!(open(&registry, Duration::ZERO).is_none(), must_wait);
        drop(beside);
        let leave = std::thread::spawn(move || drop(first.inside.take()));
        assert!(open(&registry, Duration::from_secs(600)).is_some(), "it has left");
        leave.join().expect("no panic");
    }

    #[test]
    fn nothing_is_opened_while_a_connection_that_has_ended_is_inside_its_device() {
        check_waiting(|_, _| (), false);
        check_waiting(|_, first| drop(first.inside.take()), false);
        check_waiting(|registry, _| assert_eq!(registry.disconnect(&7), 2), true);
        check_waiting(|_, first| drop(first.client.take()), true);
        check_waiting(|_, first| drop(first.registration.take()), true);
        let close_half = |_: &Registry<u64>, first: &mut Opened| {
            let client = first.client.as_ref().expect("it is there");
            client.shutdown(std::net::Shutdown::Write).expect("it is open");
        };
        check_waiting(close_half, true);
    }

    #[test]
    fn a_connection_is_closing_from_the_end_of_its_client_to_its_own() {
        let registry = Arc::new(Registry::new(Quota { total: 9, per_user: 9, reserved: 0 }));
        let mut opened = open(&registry, Duration::ZERO).expect("nobody was there before");
        assert!(!registry.is_closing(&7));
        drop(opened.client.take());
        assert!(registry.is_closing(&7) && !registry.is_closing(&8));
        drop(opened.inside.take());
        assert!(registry.is_closing(&7), "its thread may still answer");
        drop(opened.registration.take());
        assert!(!registry.is_closing(&7));
        let opened = open(&registry, Duration::ZERO).expect("nobody is there");
        assert_eq!((registry.disconnect(&7), registry.is_closing(&7)), (1, true));
        drop(opened);
    }
}
