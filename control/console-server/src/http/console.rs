//! All that requests are served from.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::access::{Accounts, Attempts, AuditLog, Passwords, Sessions, Setup};
use crate::broker::{Interface, Queries};
use crate::gateway::Gateway;
use crate::page::Page;
use crate::sign_on::SignOn;
use crate::watch::{History, Watch};

/// Browsers that are told of changes at a time.
const WATCHERS_MAX: usize = 256;

/// Consoles of machines that are open at a time.
const CONSOLES_MAX: usize = 32;

/// The console. One for the whole process.
#[derive(Debug)]
pub(crate) struct Console {
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) sessions: Sessions,
    pub(crate) attempts: Attempts,
    pub(crate) passwords: Passwords,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) setup: Setup,
    pub(crate) sign_on: Option<SignOn>,
    pub(crate) gateway: Gateway,
    pub(crate) broker: Option<Interface>,
    pub(crate) queries: Option<Queries>,
    pub(crate) watch: Watch,
    pub(crate) watchers: Arc<Semaphore>,
    pub(crate) consoles: Arc<Semaphore>,
    pub(crate) history: Arc<History>,
    pub(crate) page: Page,
}

impl Console {
    pub(crate) fn consoles() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(CONSOLES_MAX))
    }

    pub(crate) fn watchers() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(WATCHERS_MAX))
    }
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);
