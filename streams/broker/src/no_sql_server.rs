//! Replacement of the SQL server in a broker that is built without it.

use std::net::SocketAddr;
use std::sync::Arc;

use sql::Limits;

use crate::broker::Broker;
use crate::operation::SqlMetrics;

/// Type without values: the server never exists.
pub(crate) enum SqlServer {}

impl SqlServer {
    pub(crate) async fn start(_: &Arc<Broker>, address: &str, _: Limits) -> anyhow::Result<Self> {
        anyhow::bail!(
            "cannot serve SQL on {address}: this memlane-broker was built without SQL; build it \
             with the cargo feature `sql`, as `cargo build --release -p broker` does, or omit \
             --sql"
        )
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match *self {}
    }

    pub(crate) fn metrics(&self) -> SqlMetrics {
        match *self {}
    }

    pub(crate) async fn ended(self) -> anyhow::Result<()> {
        match self {}
    }
}
