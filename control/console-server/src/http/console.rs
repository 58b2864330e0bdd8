//! All that requests are served from.

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

/// Browsers that are told of changes at a time, and those of one user.
const WATCHERS_MAX: usize = 256;
const WATCHERS_OF_USER_MAX: usize = 32;

/// Consoles of machines that are open at a time, and those of one user.
const CONSOLES_MAX: usize = 32;
const CONSOLES_OF_USER_MAX: usize = 16;

/// The console. One for the whole process.
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
    /// Where browsers see the page, if that was said.
    pub(crate) public_url: Option<String>,
    pub(crate) proxies: Vec<Network>,
}

impl Console {
    pub(crate) fn consoles() -> Arc<Shares<String>> {
        Shares::new(CONSOLES_MAX, CONSOLES_OF_USER_MAX)
    }

    /// The broker, or that the console was told of none.
    pub(crate) fn known_broker(&self) -> Result<&Interface, Refusal> {
        let nowhere = || {
            Refusal::new(Kind::NoBroker, "no broker is configured; start the console with --broker")
        };
        self.broker.as_ref().ok_or_else(nowhere)
    }

    /// The broker over Kafka's protocol, or that the console was not told of it.
    pub(crate) fn known_kafka(&self) -> Result<&Kafka, Refusal> {
        let what = "the broker's Kafka listener is not configured; start the console with \
                    --broker-kafka";
        self.kafka.as_ref().ok_or_else(|| Refusal::new(Kind::NoBroker, what))
    }

    /// Word for an operation that takes an address of the broker and a role.
    pub(crate) fn told_right(is_configured: bool, is_allowed: bool) -> &'static str {
        match (is_configured, is_allowed) {
            (false, _) => "not_configured",
            (true, false) => "forbidden",
            (true, true) => "allowed",
        }
    }

    /// The description of a topic or group that the broker was asked for, by its kind and name.
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

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);
