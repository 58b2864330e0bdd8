//! Image store that this daemon serves to other hosts, and its clients.
//!
//! It is served from the daemon's start to its end, also during a promotion. If the daemon itself
//! uses the same directory as its store, both share one object, because the directory is locked.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use export_kit::LogLimit;
use image::FolderStore;
use nbd::TlsSettings;
use store_server::{ServerSpec, StoreServer, Visitors};

use crate::config::StoreServerConfig;
use crate::events::{EventLog, unix_seconds};

/// Server of the image store.
pub(crate) struct StoreServing {
    server: StoreServer,
}

impl StoreServing {
    pub(crate) fn start(
        config: &StoreServerConfig,
        events: &Arc<EventLog>,
    ) -> anyhow::Result<Self> {
        let spec = ServerSpec {
            listen: config.listen,
            directory: config.directory.clone(),
            tls: config.tls.clone().into(),
            clients: config.clients.clone(),
            bytes_max: config.bytes_max,
        };
        let server = StoreServer::start(spec, Arc::new(Door::new(Arc::clone(events))));
        let server = server.context("cannot serve the image store of [store-server]")?;
        let (address, directory) = (server.address(), config.directory.display());
        tracing::info!(%address, %directory, "serving an image store");
        Ok(Self { server })
    }

    /// Returns the served store if it is the one in this directory.
    pub(crate) fn store_in(&self, directory: &Path) -> Option<Arc<FolderStore>> {
        let real = |path: &Path| path.canonicalize().ok();
        let is_same = real(directory).is_some_and(|it| real(self.server.directory()) == Some(it));
        is_same.then(|| Arc::clone(self.server.store()))
    }

    /// Replaces the TLS settings for new connections.
    pub(crate) fn set_tls(&self, settings: &TlsSettings) {
        self.server.set_tls(settings);
    }

    pub(crate) fn status(&self) -> api::StoreServerStatus {
        let status = self.server.status();
        let now = unix_seconds();
        let client = |client: store_server::ClientStatus| api::StoreClient {
            name: client.name,
            address: client.address.to_string(),
            connections: client.connections,
            requests: client.requests,
            received_bytes: client.received_bytes,
            sent_bytes: client.sent_bytes,
            last_request_unix_seconds: client.idle.map(|idle| now.saturating_sub(idle.as_secs())),
        };
        api::StoreServerStatus {
            address: status.address.to_string(),
            directory: self.server.directory().display().to_string(),
            max_bytes: status.bytes_max,
            used_bytes: status.used_bytes,
            refused: status.refused,
            clients: status.clients.into_iter().map(client).collect(),
        }
    }
}

/// Reports clients as events. Their rate is limited, because peers cause them.
struct Door {
    events: Arc<EventLog>,
    visits: LogLimit,
    refusals: LogLimit,
    /// Clients whose connection was reported.
    told: Mutex<HashSet<String>>,
}

impl Door {
    fn new(events: Arc<EventLog>) -> Self {
        let (visits, refusals) = (LogLimit::new(), LogLimit::new());
        Self { events, visits, refusals, told: Mutex::default() }
    }
}

impl Visitors for Door {
    fn came(&self, client: &str, address: SocketAddr) {
        if self.visits.admit().is_none() {
            return;
        }
        self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(client.to_owned());
        let message =
            format!("{client} at {} has connected to the served image store", address.ip());
        self.events.info("store_client_came", None, message);
    }

    fn left(&self, client: &str) {
        if self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(client) {
            let message = format!("{client} has disconnected from the served image store");
            self.events.info("store_client_left", None, message);
        }
    }

    fn refused(&self, address: SocketAddr, why: &str) {
        let Some(left_out) = self.refusals.admit() else { return };
        let more = match left_out {
            0 => String::new(),
            count => format!(" ({count} more before)"),
        };
        let message =
            format!("a connection of {} to the image store was refused: {why}{more}", address.ip());
        self.events.warning("store_client_refused", None, message);
    }
}
