//! State shared by all connections.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;

use super::counters::Counters;
use super::registry::{QueryInfo, Registry};
use crate::engine::{Activity, Engine};
use crate::error::SqlError;
use crate::host::Host;
use crate::settings::Limits;

/// A SQL server for one host.
pub struct Server {
    pub(super) host: Arc<dyn Host>,
    pub(super) engine: Arc<Engine>,
    pub(super) limits: Limits,
    pub(super) registry: Arc<Registry>,
    pub(super) counters: Counters,
}

impl Server {
    pub fn new(host: Arc<dyn Host>, limits: Limits) -> Result<Self, SqlError> {
        let engine = Arc::new(Engine::new(&limits)?);
        let registry = Arc::new(Registry::new(limits.queries_per_principal));
        Ok(Self { host, engine, limits, registry, counters: Counters::default() })
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the number of open connections.
    pub fn connection_count(&self) -> u64 {
        let ended = self.counters.connections_ended.load(Ordering::Relaxed);
        self.counters.connections_accepted.load(Ordering::Relaxed).saturating_sub(ended)
    }

    /// Returns the memory used by running queries.
    pub fn memory_bytes(&self) -> usize {
        self.engine.memory_used()
    }

    /// Returns the running statements.
    pub fn running(&self) -> Vec<QueryInfo> {
        self.registry.list()
    }

    /// Cancels the connection's running statement. Returns `false` if it runs none.
    pub fn cancel(&self, id: i32) -> bool {
        self.registry.cancel(id)
    }
}

/// Waits until the server stops.
pub(super) async fn stopped(stops: &mut watch::Receiver<bool>) {
    // A closed channel also means that the server stops.
    drop(stops.wait_for(|stops| *stops).await);
}
