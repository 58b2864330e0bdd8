//! Clients of the server: names, connections and traffic.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tls::ClientCertificate;

/// Maximum number of clients with statistics. Beyond it, those that disconnected first are dropped.
const CLIENT_COUNT_MAX: usize = 64;

/// Maximum length of a client's name.
const NAME_BYTES_MAX: usize = 253;

/// Observer of client connections. Calls must not block.
pub trait Visitors: Send + Sync {
    /// A client has its first connection.
    fn came(&self, client: &str, address: SocketAddr);

    /// The last connection of a client was closed.
    fn left(&self, client: &str);

    /// A connection was refused before any request was read.
    fn refused(&self, address: SocketAddr, why: &str);
}

/// Connections and traffic of a client, since the server was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientStatus {
    /// First DNS name of its certificate.
    pub name: String,
    /// Address of its newest connection.
    pub address: SocketAddr,
    pub connections: u64,
    pub requests: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// Time since its last request.
    pub idle: Option<Duration>,
}

#[derive(Debug)]
struct Known {
    address: SocketAddr,
    connections: u64,
    requests: u64,
    received_bytes: u64,
    sent_bytes: u64,
    last_request: Option<Instant>,
    last_seen: Instant,
}

/// All clients.
pub(crate) struct Clients {
    known: Mutex<BTreeMap<String, Known>>,
    refused: Mutex<u64>,
    visitors: Arc<dyn Visitors>,
}

/// A connection of a client. Dropping it ends it.
pub(crate) struct Visit {
    clients: Arc<Clients>,
    name: String,
}

impl Clients {
    pub(crate) fn new(visitors: Arc<dyn Visitors>) -> Self {
        Self { known: Mutex::default(), refused: Mutex::default(), visitors }
    }

    pub(crate) fn refuse(&self, address: SocketAddr, why: &str) {
        *self.refused.lock().expect(NO_PANIC) += 1;
        self.visitors.refused(address, why);
    }

    pub(crate) fn refused_count(&self) -> u64 {
        *self.refused.lock().expect(NO_PANIC)
    }

    pub(crate) fn enter(self: &Arc<Self>, name: String, address: SocketAddr) -> Visit {
        let mut known = self.lock();
        if !known.contains_key(&name) && known.len() >= CLIENT_COUNT_MAX {
            let gone = known.iter().filter(|(_, it)| it.connections == 0);
            let oldest = gone.min_by_key(|(_, it)| it.last_seen).map(|(name, _)| name.clone());
            oldest.and_then(|name| known.remove(&name));
        }
        let now = Instant::now();
        let client = known.entry(name.clone()).or_insert(Known {
            address,
            connections: 0,
            requests: 0,
            received_bytes: 0,
            sent_bytes: 0,
            last_request: None,
            last_seen: now,
        });
        client.connections += 1;
        client.address = address;
        let is_first = client.connections == 1;
        drop(known);
        if is_first {
            self.visitors.came(&name, address);
        }
        Visit { clients: Arc::clone(self), name }
    }

    pub(crate) fn status(&self) -> Vec<ClientStatus> {
        let status = |(name, known): (&String, &Known)| ClientStatus {
            name: name.clone(),
            address: known.address,
            connections: known.connections,
            requests: known.requests,
            received_bytes: known.received_bytes,
            sent_bytes: known.sent_bytes,
            idle: known.last_request.map(|at| at.elapsed()),
        };
        self.lock().iter().map(status).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().expect(NO_PANIC)
    }
}

const NO_PANIC: &str = "no thread panics with this lock";

impl Visit {
    pub(crate) fn begin_request(&self) {
        self.change(|known| {
            known.requests += 1;
            known.last_request = Some(Instant::now());
        });
    }

    pub(crate) fn received(&self, bytes: u64) {
        self.change(|known| known.received_bytes += bytes);
    }

    pub(crate) fn sent(&self, bytes: u64) {
        self.change(|known| known.sent_bytes += bytes);
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        if let Some(known) = self.clients.lock().get_mut(&self.name) {
            change(known);
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut is_last = false;
        self.change(|known| {
            known.connections -= 1;
            known.last_seen = Instant::now();
            is_last = known.connections == 0;
        });
        if is_last {
            self.clients.visitors.left(&self.name);
        }
    }
}

/// Returns the name of a client: the first DNS name in its certificate.
pub(crate) fn name_of(certificate: &ClientCertificate) -> String {
    let name = certificate.names().into_iter().find(|name| name.len() <= NAME_BYTES_MAX);
    name.unwrap_or_else(|| "a certificate without a DNS name".to_owned())
}
