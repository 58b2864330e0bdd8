//! State shared by all connections.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;

use crate::access_rules::AccessRules;
use crate::broker_settings::BrokerSettings;
use crate::coordinator::{Coordinator, CoordinatorOptions};
use crate::definitions::Definitions;
use crate::deriving::Deriving;
use crate::live::LiveQueries;
use crate::operation::Counters;
use crate::serving::{Buffers, Recompression, SessionCache};
use crate::topics::Topics;

/// Node id of the only broker in the cluster.
pub(crate) const NODE_ID: i32 = 1;

/// Address to which clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advertised {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Defaults of new topics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewTopics {
    /// True if topics are created when clients request them.
    pub(crate) are_created_on_demand: bool,
    pub(crate) partition_count: u32,
}

/// Limits for clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connection_count: usize,
    /// Maximum size of a request.
    pub(crate) request_bytes: usize,
}

pub(crate) struct Broker {
    pub(crate) cluster_id: String,
    /// Address on which the broker listens.
    pub(crate) address: SocketAddr,
    pub(crate) advertised: Advertised,
    pub(crate) new_topics: NewTopics,
    pub(crate) limits: Limits,
    pub(crate) settings: BrokerSettings,
    pub(crate) topics: Arc<Topics>,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) deriving: Arc<Deriving>,
    pub(crate) live: Arc<LiveQueries>,
    pub(crate) coordinator: Coordinator,
    pub(crate) coordinator_options: CoordinatorOptions,
    pub(crate) rules: Arc<AccessRules>,
    pub(crate) buffers: Buffers,
    pub(crate) sessions: Arc<SessionCache>,
    pub(crate) recompression: Recompression,
    pub(crate) counters: Box<Counters>,
    /// True when the broker stops and reads no more requests.
    pub(crate) stops: watch::Receiver<bool>,
}
