//! A client's view of the catalogue.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use access::{Operation, Principal, Resource};

use crate::error::{SqlError, SqlState};
use crate::host::{Client, Host};

const NO_PANIC: &str = "no thread panics with this lock";

/// Parameter that makes transactions of a session read-only by default.
pub(crate) const READ_ONLY: &str = "default_transaction_read_only";

/// Parameter that makes the current transaction read-only.
pub(crate) const TRANSACTION_READ_ONLY: &str = "transaction_read_only";

/// Parameter with the principal that a client acts for. Set at login, and fixed afterwards.
pub(crate) const ON_BEHALF_OF: &str = "memlane.on_behalf_of";

/// Maximum number of parameters that one statement sets by `set_config`.
const ASSIGNED_COUNT_MAX: usize = 100;

/// Checks the value of a parameter, and returns the form in which it is shown.
pub(crate) type CheckSetting = fn(&str, &str) -> Result<String, SqlError>;

/// A parameter that a statement has set by `set_config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assigned {
    pub(crate) name: String,
    pub(crate) value: String,
    /// True if the value applies until the end of the transaction.
    pub(crate) is_local: bool,
}

/// Parses a boolean parameter. Returns `None` if it is invalid.
pub(crate) fn switch(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" | "t" | "y" => Some(true),
        "off" | "false" | "no" | "0" | "f" | "n" => Some(false),
        _ => None,
    }
}

/// Registry of connections and statement statistics.
pub(crate) trait Activity: Send + Sync + std::fmt::Debug {
    fn connected(&self) -> Vec<Connected>;

    /// Returns the statistics of statements.
    fn statements(&self) -> Vec<StatementTotals>;

    /// Cancels a connection's statement. Returns `false` if it runs none.
    fn cancel(&self, id: i32) -> bool;

    /// Terminates a connection. Returns `false` if it does not exist.
    fn terminate(&self, id: i32) -> bool;
}

/// One connection.
#[derive(Clone, Debug)]
pub(crate) struct Connected {
    pub(crate) id: i32,
    pub(crate) client: Arc<Client>,
    pub(crate) since: SystemTime,
    /// Running statement and its start time.
    pub(crate) running: Option<(String, SystemTime)>,
    /// Rows sent or received by the running or last statement.
    pub(crate) rows: u64,
}

/// Cumulative statistics of one statement of one user.
#[derive(Clone, Debug)]
pub(crate) struct StatementTotals {
    pub(crate) principal: Principal,
    pub(crate) on_behalf_of: Option<Principal>,
    pub(crate) id: i64,
    /// Normalized, without constants.
    pub(crate) text: String,
    pub(crate) calls: u64,
    pub(crate) rows: u64,
    pub(crate) total: Duration,
    pub(crate) least: Duration,
    pub(crate) most: Duration,
}

/// The client of one connection, and the data for its catalogue queries.
pub(crate) struct Viewer {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) client: Arc<Client>,
    pub(crate) activity: Arc<dyn Activity>,
    /// Id of the connection.
    pub(crate) id: i32,
    /// Values of all parameters, as in SHOW.
    settings: Mutex<BTreeMap<String, String>>,
    check_setting: CheckSetting,
    /// Parameters that the running statement has set. Its connection applies them at its end.
    assigned: Mutex<Vec<Assigned>>,
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
        (activity, id): (Arc<dyn Activity>, i32),
        check_setting: CheckSetting,
    ) -> Self {
        let (host, client) = (Arc::clone(host), Arc::clone(client));
        let (settings, assigned) = (Mutex::default(), Mutex::default());
        Self { host, client, activity, id, settings, check_setting, assigned }
    }

    /// Sets a parameter once the running statement has ended. Returns its value as it is shown.
    ///
    /// # Errors
    /// The parameter cannot have this value, or the statement sets too many.
    pub(super) fn assign(&self, it: Assigned) -> Result<String, SqlError> {
        let shown = (self.check_setting)(&it.name, &it.value)?;
        let mut assigned = self.assigned.lock().expect(NO_PANIC);
        assigned.retain(|other| other.name != it.name);
        if assigned.len() >= ASSIGNED_COUNT_MAX {
            let what = format!(
                "too many configuration parameters: set_config sets at most {ASSIGNED_COUNT_MAX} \
                 in a statement"
            );
            return Err(SqlError::new(SqlState::TOO_LARGE, what));
        }
        assigned.push(it);
        Ok(shown)
    }

    /// Takes the parameters that the statement has set.
    pub(crate) fn take_assigned(&self) -> Vec<Assigned> {
        std::mem::take(&mut *self.assigned.lock().expect(NO_PANIC))
    }

    /// Updates the connection's parameters.
    pub(crate) fn set_settings(&self, settings: BTreeMap<String, String>) {
        *self.settings.lock().expect(NO_PANIC) = settings;
    }

    pub(super) fn settings(&self) -> BTreeMap<String, String> {
        self.settings.lock().expect(NO_PANIC).clone()
    }

    /// Returns the value of a parameter, also if this statement has set it.
    pub(super) fn setting(&self, name: &str) -> Option<String> {
        let assigned = self.assigned.lock().expect(NO_PANIC);
        let found = assigned.iter().find(|it| it.name == name).map(|it| it.value.clone());
        drop(assigned);
        found.or_else(|| self.settings().remove(name))
    }

    /// Returns whether the transaction is read-only.
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

    /// Returns the connections that the client may see: those of its own user, or all if it is
    /// authorized to describe the cluster.
    pub(super) fn connected(&self) -> Vec<Connected> {
        let sees_all = self.may_with_cluster(Operation::Describe);
        let mut list = self.activity.connected();
        list.retain(|it| sees_all || self.is_own(&it.client));
        list
    }

    /// Returns the statistics of users whose connections the client may see.
    pub(super) fn statements(&self) -> Vec<StatementTotals> {
        let sees_all = self.may_with_cluster(Operation::Describe);
        let mut list = self.activity.statements();
        list.retain(|it| sees_all || self.client.is_own(&it.principal, it.on_behalf_of.as_ref()));
        list
    }

    /// Returns whether the client is authorized to cancel or terminate a connection, or `None` if
    /// no such connection is visible to it.
    pub(super) fn may_end(&self, id: i32) -> Option<bool> {
        let found = self.connected().into_iter().find(|it| it.id == id)?;
        Some(self.is_own(&found.client) || self.may_with_cluster(Operation::Alter))
    }

    fn is_own(&self, client: &Client) -> bool {
        self.client.is_own(&client.principal, client.on_behalf_of.as_ref())
    }

    /// Returns the users that the client may see.
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

/// Returns a hash of the bytes, which is stable between versions.
pub(super) fn number_of(bytes: &[u8]) -> u32 {
    // FNV-1a.
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
