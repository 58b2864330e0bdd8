//! State shared by all request handlers.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;

use crate::access::{Accounts, Attempts, AuditLog, Enrolments, Passwords, Sessions, Setup};
use crate::broker::{Interface, Kafka, Queries};
use crate::gateway::Gateway;
use crate::network::Network;
use crate::page::Page;
use crate::refusal::{Kind, Refusal};
use crate::shares::Shares;
use crate::sign_on::SignOn;
use crate::watch::{History, Told, VolumeHistory, Watch};

/// Maximum number of open event streams, in total and per user.
const WATCHERS_MAX: usize = 256;
const WATCHERS_OF_USER_MAX: usize = 32;

/// Maximum number of open machine consoles, in total and per user.
const CONSOLES_MAX: usize = 32;
const CONSOLES_OF_USER_MAX: usize = 16;

/// State of the console, one for the process.
#[derive(Debug)]
pub(crate) struct Console {
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) sessions: Sessions,
    pub(crate) attempts: Attempts,
    pub(crate) enrolments: Enrolments,
    pub(crate) passwords: Passwords,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) setup: Setup,
    pub(crate) sign_on: Option<SignOn>,
    pub(crate) gateway: Gateway,
    pub(crate) broker: Option<Interface>,
    pub(crate) queries: Option<Queries>,
    pub(crate) kafka: Option<Kafka>,
    pub(crate) watch: Watch,
    pub(crate) watchers: Arc<Shares<String>>,
    pub(crate) consoles: Arc<Shares<String>>,
    pub(crate) history: Arc<History>,
    pub(crate) busiest: Arc<Told>,
    pub(crate) volumes: Arc<VolumeHistory>,
    pub(crate) page: Page,
    /// Public URL, if configured.
    pub(crate) public_url: Option<String>,
    pub(crate) proxies: Vec<Network>,
}

impl Console {
    pub(crate) fn consoles() -> Arc<Shares<String>> {
        Shares::new(CONSOLES_MAX, CONSOLES_OF_USER_MAX)
    }

    /// Returns the broker's HTTP interface, or an error if none is configured.
    pub(crate) fn known_broker(&self) -> Result<&Interface, Refusal> {
        let nowhere = || {
            Refusal::new(Kind::NoBroker, "no broker is configured; start the console with --broker")
        };
        self.broker.as_ref().ok_or_else(nowhere)
    }

    /// Returns the broker's Kafka client, or an error if none is configured.
    pub(crate) fn known_kafka(&self) -> Result<&Kafka, Refusal> {
        let what = "the broker's Kafka listener is not configured; start the console with \
                    --broker-kafka";
        self.kafka.as_ref().ok_or_else(|| Refusal::new(Kind::NoBroker, what))
    }

    /// Returns the availability of an operation that needs a broker address and a role.
    pub(crate) fn told_right(is_configured: bool, is_allowed: bool) -> &'static str {
        match (is_configured, is_allowed) {
            (false, _) => "not_configured",
            (true, false) => "forbidden",
            (true, true) => "allowed",
        }
    }

    /// Unwraps the broker's description of a topic or group.
    pub(crate) fn found(
        told: Result<Option<Value>, String>,
        kind: &str,
        name: &str,
    ) -> Result<Value, Refusal> {
        let told = told.map_err(|why| Refusal::new(Kind::BrokerDown, &why))?;
        told.ok_or_else(|| Refusal::new(Kind::NotFound, &format!("no {kind} {name:?}")))
    }

    pub(crate) fn watchers() -> Arc<Shares<String>> {
        Shares::new(WATCHERS_MAX, WATCHERS_OF_USER_MAX)
    }
}

/// Client address of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);
