//! Which clients are there, and what all of them did.
//!
//! The registry's lock is held for a few instructions when a client comes, opens a volume or goes.
//! While it is served, a client touches its own meter only.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use block_device::BlockDevice;
use peers::{Peer, Quota};
use rustix::net::{Shutdown, shutdown};
use shared_ring::ServerRing;

use crate::traffic::{Meter, Traffic};

pub(crate) struct Registry {
    quota: Quota,
    book: Mutex<Book>,
    all_gone: Condvar,
}

#[derive(Default)]
struct Book {
    next_id: u64,
    open: BTreeMap<u64, Entry>,
    accepted: u64,
    refused: u64,
    /// Of the clients that have gone.
    traffic: Traffic,
}

struct Entry {
    peer: Peer,
    socket: Arc<OwnedFd>,
    is_ending: Arc<AtomicBool>,
    used: Option<Use>,
    meter: Arc<Meter>,
}

/// What a client has opened.
pub(crate) struct Use {
    pub(crate) volume_id: u64,
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) ring: Arc<ServerRing>,
}

/// What a server is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Clients of each volume that has any, by its id.
    pub clients: BTreeMap<u64, usize>,
    /// Clients that have not opened a volume yet.
    pub handshakes: usize,
    /// Clients since the start.
    pub accepted: u64,
    /// Clients since the start that were turned away: too many were there, or there was nothing
    /// that they may open.
    pub refused: u64,
    pub traffic: Traffic,
}

/// A client's entry, which goes with it.
pub(crate) struct Registration {
    registry: Arc<Registry>,
    id: u64,
    is_ending: Arc<AtomicBool>,
    meter: Arc<Meter>,
}

impl Registry {
    pub(crate) fn new(quota: Quota) -> Self {
        Self { quota, book: Mutex::default(), all_gone: Condvar::new() }
    }

    /// Counts a client that is turned away before it has a place.
    pub(crate) fn note_refused(&self) {
        self.book().refused += 1;
    }

    /// Enters a client, or counts it as refused when too many are there.
    pub(crate) fn admit(
        self: &Arc<Self>,
        socket: &Arc<OwnedFd>,
        peer: &Peer,
    ) -> Option<Registration> {
        let mut book = self.book();
        if !self.quota.has_room(book.open.values().map(|entry| &entry.peer), peer) {
            book.refused += 1;
            return None;
        }
        book.accepted += 1;
        let id = book.next_id;
        book.next_id += 1;
        let is_ending = Arc::<AtomicBool>::default();
        let meter = Arc::<Meter>::default();
        let entry = Entry {
            peer: peer.clone(),
            socket: Arc::clone(socket),
            is_ending: Arc::clone(&is_ending),
            used: None,
            meter: Arc::clone(&meter),
        };
        book.open.insert(id, entry);
        Some(Registration { registry: Arc::clone(self), id, is_ending, meter })
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
            status.traffic += entry.meter.traffic();
            match &entry.used {
                Some(used) => *status.clients.entry(used.volume_id).or_default() += 1,
                None => status.handshakes += 1,
            }
        }
        status
    }

    /// Tells the clients of a volume how large it is now.
    pub(crate) fn refresh_size(&self, volume_id: u64) {
        let book = self.book();
        let used = book.open.values().filter_map(|entry| entry.used.as_ref());
        for used in used.filter(|used| used.volume_id == volume_id) {
            used.ring.set_size_bytes(used.device.geometry().size_bytes);
        }
    }

    /// Ends all clients of a volume. Returns how many there were.
    pub(crate) fn disconnect(&self, volume_id: u64) -> usize {
        let book = self.book();
        let is_meant =
            |entry: &&Entry| entry.used.as_ref().is_some_and(|used| used.volume_id == volume_id);
        book.open.values().filter(is_meant).map(Entry::end).count()
    }

    /// Ends all clients, and waits until `deadline` for them to be gone. Returns how many are left.
    pub(crate) fn end_all(&self, deadline: Instant) -> usize {
        let mut book = self.book();
        book.open.values().for_each(Entry::end);
        while !book.open.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            (book, _) = self.all_gone.wait_timeout(book, left).expect(NOT_POISONED);
        }
        book.open.len()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect(NOT_POISONED)
    }
}

impl Entry {
    fn end(&self) {
        // Relaxed: it protects nothing; a thread that sleeps is woken by the end of its socket.
        self.is_ending.store(true, Ordering::Relaxed);
        if let Err(error) = shutdown(&*self.socket, Shutdown::Both) {
            // The client was faster.
            tracing::trace!(%error, "the client had gone");
        }
    }
}

impl Registration {
    pub(crate) fn opened(&self, used: Use) {
        let mut book = self.registry.book();
        let entry = book.open.get_mut(&self.id).expect("the entry goes with the registration");
        entry.used = Some(used);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut book = self.registry.book();
        let entry = book.open.remove(&self.id);
        book.traffic += self.meter.traffic();
        if book.open.is_empty() {
            self.registry.all_gone.notify_all();
        }
        drop(book);
        // The memory may go with it, which takes its time.
        drop(entry);
    }
}

const NOT_POISONED: &str = "nothing panics while it holds this lock";
