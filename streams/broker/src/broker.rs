//! State that all connections share.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;

use crate::access_rules::AccessRules;
use crate::broker_settings::BrokerSettings;
use crate::coordinator::Coordinator;
use crate::definitions::Definitions;
use crate::deriving::Deriving;
use crate::live::LiveQueries;
use crate::operation::Counters;
use crate::serving::{Buffers, Recompression, SessionCache};
use crate::topics::Topics;

/// The one broker of the cluster.
pub(crate) const NODE_ID: i32 = 1;

/// Where clients are told to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advertised {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Topics that are made without saying how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewTopics {
    /// True if clients that ask for a topic have it made.
    pub(crate) are_created_on_demand: bool,
    pub(crate) partition_count: u32,
}

/// Limits of clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connection_count: usize,
    /// Size of one request.
    pub(crate) request_bytes: usize,
}

pub(crate) struct Broker {
    pub(crate) cluster_id: String,
    /// Where it listens.
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
    /// Options with which the coordinator was started.
    pub(crate) groups: consumer_groups::Options,
    pub(crate) rules: Arc<AccessRules>,
    pub(crate) buffers: Buffers,
    pub(crate) sessions: Arc<SessionCache>,
    pub(crate) recompression: Recompression,
    pub(crate) counters: Box<Counters>,
    /// Says that the broker stops: no more requests are taken in.
    pub(crate) stops: watch::Receiver<bool>,
}
