//! View of one client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use access::{Operation, Principal, Resource};

use crate::host::{Client, Host};

const NO_PANIC: &str = "no thread panics with this lock";

/// The parameter with which a client says that its connection changes nothing.
pub(crate) const READ_ONLY: &str = "default_transaction_read_only";

/// The same of one transaction.
pub(crate) const TRANSACTION_READ_ONLY: &str = "transaction_read_only";

/// The parameter with which a client says whom it asks for. It is said with the login, and stays.
pub(crate) const ON_BEHALF_OF: &str = "memlane.on_behalf_of";

/// A switch as PostgreSQL writes them; `None`: it is none.
pub(crate) fn switch(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" | "t" | "y" => Some(true),
        "off" | "false" | "no" | "0" | "f" | "n" => Some(false),
        _ => None,
    }
}

/// The connections that there are.
pub(crate) trait Activity: Send + Sync + std::fmt::Debug {
    fn connected(&self) -> Vec<Connected>;

    /// What statements have taken.
    fn statements(&self) -> Vec<StatementTotals>;

    /// Cancels what a connection runs; `false` where it runs nothing.
    fn cancel(&self, id: i32) -> bool;

    /// Ends a connection; `false` where there is none.
    fn terminate(&self, id: i32) -> bool;
}

/// One connection.
#[derive(Clone, Debug)]
pub(crate) struct Connected {
    pub(crate) id: i32,
    pub(crate) client: Arc<Client>,
    pub(crate) since: SystemTime,
    /// Statement that it runs, and the time of its start.
    pub(crate) running: Option<(String, SystemTime)>,
    /// That what runs, or what ran last, has sent or taken in.
    pub(crate) rows: u64,
}

/// Resources that all calls of one statement of one user have taken.
#[derive(Clone, Debug)]
pub(crate) struct StatementTotals {
    pub(crate) principal: Principal,
    pub(crate) on_behalf_of: Option<Principal>,
    pub(crate) id: i64,
    /// Without constants.
    pub(crate) text: String,
    pub(crate) calls: u64,
    pub(crate) rows: u64,
    pub(crate) total: Duration,
    pub(crate) least: Duration,
    pub(crate) most: Duration,
}

/// The client of one connection, and where it looks.
pub(crate) struct Viewer {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) client: Arc<Client>,
    pub(crate) activity: Arc<dyn Activity>,
    /// Number of its connection.
    pub(crate) id: i32,
    /// What SHOW says of each parameter.
    settings: Mutex<BTreeMap<String, String>>,
}

impl std::fmt::Debug for Viewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Viewer").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Viewer {
    pub(crate) fn new(
        host: &Arc<dyn Host>,
        client: &Arc<Client>,
        activity: Arc<dyn Activity>,
        id: i32,
    ) -> Self {
        let (host, client) = (Arc::clone(host), Arc::clone(client));
        Self { host, client, activity, id, settings: Mutex::default() }
    }

    /// Takes in what the connection's parameters are now.
    pub(crate) fn set_settings(&self, settings: BTreeMap<String, String>) {
        *self.settings.lock().expect(NO_PANIC) = settings;
    }

    pub(super) fn settings(&self) -> BTreeMap<String, String> {
        self.settings.lock().expect(NO_PANIC).clone()
    }

    /// Returns whether the client has said that it only reads.
    pub(super) fn only_reads(&self) -> bool {
        let settings = self.settings.lock().expect(NO_PANIC);
        settings.get(TRANSACTION_READ_ONLY).is_some_and(|it| switch(it) == Some(true))
    }

    pub(super) fn may(&self, operation: Operation, topic: &str) -> bool {
        self.host.allows(&self.client, operation, Resource::topic(topic))
    }

    fn may_with_cluster(&self, operation: Operation) -> bool {
        self.host.allows(&self.client, operation, Resource::cluster())
    }

    /// The connections that the client may see: its user's own, or all where it may describe the
    /// cluster.
    pub(super) fn connected(&self) -> Vec<Connected> {
        let sees_all = self.may_with_cluster(Operation::Describe);
        let mut list = self.activity.connected();
        list.retain(|it| sees_all || self.is_own(&it.client));
        list
    }

    /// Statements of the users whose connections the client may see.
    pub(super) fn statements(&self) -> Vec<StatementTotals> {
        let sees_all = self.may_with_cluster(Operation::Describe);
        let mut list = self.activity.statements();
        list.retain(|it| sees_all || self.client.is_own(&it.principal, it.on_behalf_of.as_ref()));
        list
    }

    /// Returns whether the client may end what that connection does; `None` where there is no such
    /// connection, as far as the client may know.
    pub(super) fn may_end(&self, id: i32) -> Option<bool> {
        let found = self.connected().into_iter().find(|it| it.id == id)?;
        Some(self.is_own(&found.client) || self.may_with_cluster(Operation::Alter))
    }

    fn is_own(&self, client: &Client) -> bool {
        self.client.is_own(&client.principal, client.on_behalf_of.as_ref())
    }

    /// The users that the client may know of.
    pub(super) fn role_names(&self) -> Vec<String> {
        let own = self.client.name().to_owned();
        let mut names = vec![own];
        if self.may_with_cluster(Operation::Describe) {
            names.extend(self.host.users().list().map(|user| user.name.to_string()));
        }
        names.sort();
        names.dedup();
        names
    }
}

/// A number that bytes always have; most bytes have different ones.
pub(super) fn number_of(bytes: &[u8]) -> u32 {
    // FNV-1a.
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
