//! Which connections are open, and what all of them did.
//!
//! The registry's lock is held for a few instructions when a connection comes, chooses its export
//! or goes. While it serves requests, a connection touches its own meter only.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use peers::{Peer, Quota};

use crate::buffer::Crowd;
use crate::exports::Client;
use crate::socket::{End, Socket};
use crate::traffic::Traffic;

/// As many connections have buffers that are large enough for any request, at most.
const CONNECTION_COUNT_FEW: usize = 8;

/// From more connections on, each has buffers for small pieces.
const CONNECTION_COUNT_SEVERAL: usize = 24;

pub(crate) struct Registry {
    /// For each kind of listener.
    quota: Quota,
    /// As many as the book lists, for those who may not wait for it.
    open_count: AtomicUsize,
    book: Mutex<Book>,
    all_gone: Condvar,
}

#[derive(Default)]
struct Book {
    next_id: u64,
    open: BTreeMap<u64, Entry>,
    accepted: u64,
    refused: u64,
    /// Of the connections that have gone.
    traffic: Traffic,
}

struct Entry {
    /// `None`: over TCP.
    peer: Option<Peer>,
    socket: Arc<Socket>,
    export_name: Option<String>,
    meter: Arc<Mutex<Meter>>,
}

/// What one connection did.
#[derive(Default)]
struct Meter {
    /// By its own thread, as last reported.
    served: Traffic,
    /// Errors that other threads answered with.
    late_errors: u64,
}

impl Meter {
    fn traffic(&self) -> Traffic {
        Traffic { errors: self.served.errors + self.late_errors, ..self.served }
    }
}

/// What a server is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Open connections of each export that has any, by its canonical name.
    pub connections: BTreeMap<String, usize>,
    /// Open connections that have not chosen an export yet.
    pub handshakes: usize,
    /// Connections since the start.
    pub accepted: u64,
    /// Connections since the start that were closed at once: too many were open, or there was
    /// nothing that they may use.
    pub refused: u64,
    /// Requests since the start.
    pub traffic: Traffic,
}

/// A connection's entry, which goes with it.
pub(crate) struct Registration {
    registry: Arc<Registry>,
    id: u64,
    meter: Arc<Mutex<Meter>>,
}

impl Registry {
    pub(crate) fn new(quota: Quota) -> Self {
        let (open_count, book) = (AtomicUsize::new(0), Mutex::default());
        Self { quota, open_count, book, all_gone: Condvar::new() }
    }

    /// Enters a connection, or counts it as refused when too many are open.
    pub(crate) fn admit(
        self: &Arc<Self>,
        client: &Client,
        socket: Arc<Socket>,
    ) -> Option<Registration> {
        let peer = match client {
            Client::Local(peer) => Some(peer.clone()),
            Client::Anybody | Client::Certified(_) => None,
        };
        let mut book = self.book();
        let present = book.open.values().map(|entry| entry.peer.as_ref());
        let has_room = match &peer {
            Some(peer) => self.quota.has_room(present.flatten(), peer),
            None => present.filter(Option::is_none).count() < self.quota.total,
        };
        if !has_room {
            book.refused += 1;
            return None;
        }
        book.accepted += 1;
        let id = book.next_id;
        book.next_id += 1;
        let meter = Arc::new(Mutex::default());
        let entry = Entry { peer, socket, export_name: None, meter: Arc::clone(&meter) };
        book.open.insert(id, entry);
        self.note_open_count(&book);
        Some(Registration { registry: Arc::clone(self), id, meter })
    }

    /// Counts a client that is turned away before it has a place.
    pub(crate) fn note_refused(&self) {
        self.book().refused += 1;
    }

    pub(crate) fn status(&self) -> Status {
        let book = self.book();
        let mut status = Status {
            accepted: book.accepted,
            refused: book.refused,
            traffic: book.traffic,
            ..Status::default()
        };
        for entry in book.open.values() {
            status.traffic += lock(&entry.meter).traffic();
            match &entry.export_name {
                Some(name) => *status.connections.entry(name.clone()).or_default() += 1,
                None => status.handshakes += 1,
            }
        }
        status
    }

    /// Ends all connections to an export. Returns how many there were.
    pub(crate) fn disconnect(&self, export_name: &str) -> usize {
        let book = self.book();
        let chosen = |entry: &&Entry| entry.export_name.as_deref() == Some(export_name);
        book.open.values().filter(chosen).map(|entry| entry.socket.end(End::Both)).count()
    }

    /// Lets every connection answer what it has received, until `deadline`, then ends the rest.
    /// Returns how many those were.
    pub(crate) fn drain(&self, deadline: Instant) -> usize {
        let mut book = self.book();
        for entry in book.open.values() {
            entry.socket.end(End::Receiving);
        }
        while !book.open.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            (book, _) = self.all_gone.wait_timeout(book, left).expect(NOT_POISONED);
        }
        book.open.values().map(|entry| entry.socket.end(End::Both)).count()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    fn note_open_count(&self, book: &Book) {
        // Relaxed: the count carries no data.
        self.open_count.store(book.open.len(), Ordering::Relaxed);
    }
}

impl Registration {
    pub(crate) fn chose_export(&self, name: &str) {
        let mut book = self.registry.book();
        let entry = book.open.get_mut(&self.id).expect("the entry goes with the registration");
        entry.export_name = Some(name.to_owned());
    }

    pub(crate) fn report(&self, traffic: Traffic) {
        lock(&self.meter).served = traffic;
    }

    /// Whether memory has to be shared with many connections. Asked before each batch of requests.
    pub(crate) fn crowd(&self) -> Crowd {
        // Relaxed: the count carries no data.
        let count = self.registry.open_count.load(Ordering::Relaxed);
        if count <= CONNECTION_COUNT_FEW {
            Crowd::Few
        } else if count <= CONNECTION_COUNT_SEVERAL {
            Crowd::Several
        } else {
            Crowd::Many
        }
    }

    /// Errors that are not in what [`Registration::report`] tells.
    pub(crate) fn count_late_errors(&self, count: u64) {
        lock(&self.meter).late_errors += count;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut book = self.registry.book();
        book.open.remove(&self.id);
        self.registry.note_open_count(&book);
        let traffic = lock(&self.meter).traffic();
        book.traffic += traffic;
        if book.open.is_empty() {
            self.registry.all_gone.notify_all();
        }
    }
}

const NOT_POISONED: &str = "nothing panics while it holds this lock";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect(NOT_POISONED)
}
