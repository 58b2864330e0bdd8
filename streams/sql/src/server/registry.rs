//! Registry of connections and their running statements, for listing and cancellation.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use access::Principal;
use tokio_util::sync::CancellationToken;

use super::statistics::{Statistics, kept_text};
use crate::engine::{Activity, Connected, StatementTotals};
use crate::error::{SqlError, SqlState};
use crate::host::Client;
use crate::permits::{Permit, PermitsByUser};

const NO_PANIC: &str = "no thread panics with this lock";

/// A running statement.
#[derive(Clone, Debug)]
pub struct QueryInfo {
    /// Id of the connection.
    pub id: i32,
    pub principal: Principal,
    pub address: std::net::SocketAddr,
    /// Text, possibly truncated.
    pub text: String,
    pub running: Duration,
}

#[derive(Debug)]
pub(super) struct Registry {
    last_id: AtomicI32,
    connections: Mutex<HashMap<i32, Arc<Entry>>>,
    permits: PermitsByUser,
    pub(super) statistics: Statistics,
}

/// A registered connection.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: i32,
    /// Secret key that authorizes cancel requests.
    pub(super) secret: i32,
    client: Arc<Client>,
    since: SystemTime,
    /// Messages being processed; `None` while the server waits for the client.
    answering: Mutex<Option<Answering>>,
    /// Number of rows sent or received by the running statement.
    pub(super) rows: AtomicU64,
    /// Terminates the connection.
    pub(super) terminated: CancellationToken,
}

/// Messages up to the one after which the client waits for responses. A statement is planned and
/// run in several steps or messages, and can be cancelled between them too.
#[derive(Debug, Default)]
struct Answering {
    token: CancellationToken,
    statement: Option<Statement>,
}

#[derive(Debug)]
struct Statement {
    text: String,
    since: Instant,
    begun: SystemTime,
}

/// Guard of a running step of a statement.
#[derive(Debug)]
pub(super) struct Running<'a> {
    entry: &'a Entry,
    pub(super) token: CancellationToken,
}

impl Registry {
    /// Creates a registry that limits the simultaneous statements of each user.
    pub(super) fn new(per_principal_max: usize) -> Self {
        Self {
            last_id: AtomicI32::default(),
            connections: Mutex::default(),
            permits: PermitsByUser::new(per_principal_max),
            statistics: Statistics::default(),
        }
    }

    pub(super) fn add(&self, client: Arc<Client>) -> Result<Arc<Entry>, SqlError> {
        let mut secret = [0; 4];
        getrandom::fill(&mut secret).map_err(|error| {
            SqlError::new(
                SqlState::INTERNAL,
                format!("could not generate random cancel key: {error}"),
            )
        })?;
        let secret = i32::from_be_bytes(secret);
        let mut connections = self.connections.lock().expect(NO_PANIC);
        let id = loop {
            let id = self.last_id.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & i32::MAX;
            if !connections.contains_key(&id) {
                break id;
            }
        };
        let (since, answering) = (SystemTime::now(), Mutex::default());
        let terminated = CancellationToken::new();
        let rows = AtomicU64::default();
        let entry = Arc::new(Entry { id, secret, client, since, answering, rows, terminated });
        connections.insert(id, Arc::clone(&entry));
        Ok(entry)
    }

    pub(super) fn remove(&self, id: i32) {
        self.connections.lock().expect(NO_PANIC).remove(&id);
    }

    /// Waits for one of the user's permits to run a statement.
    pub(super) async fn permit(&self, entry: &Entry) -> Permit {
        self.permits.of(&entry.client.principal).wait().await
    }

    /// Cancels the connection's statement if the secret matches. Returns `false` if nothing was
    /// cancelled.
    pub(super) fn cancel_with(&self, id: i32, secret: i32) -> bool {
        self.entry(id).filter(|it| it.secret == secret).is_some_and(|it| it.cancel())
    }

    fn entry(&self, id: i32) -> Option<Arc<Entry>> {
        self.connections.lock().expect(NO_PANIC).get(&id).map(Arc::clone)
    }

    pub(super) fn list(&self) -> Vec<QueryInfo> {
        let entries: Vec<_> =
            self.connections.lock().expect(NO_PANIC).values().map(Arc::clone).collect();
        let mut list: Vec<_> = entries.iter().filter_map(|it| it.info()).collect();
        list.sort_by_key(|it| it.id);
        list
    }
}

impl Activity for Registry {
    fn connected(&self) -> Vec<Connected> {
        let entries: Vec<_> =
            self.connections.lock().expect(NO_PANIC).values().map(Arc::clone).collect();
        let mut list: Vec<_> = entries.iter().map(|it| it.connected()).collect();
        list.sort_by_key(|it| it.id);
        list
    }

    fn statements(&self) -> Vec<StatementTotals> {
        self.statistics.list()
    }

    fn cancel(&self, id: i32) -> bool {
        self.entry(id).is_some_and(|it| it.cancel())
    }

    fn terminate(&self, id: i32) -> bool {
        self.entry(id).map(|it| it.terminated.cancel()).is_some()
    }
}

impl Entry {
    /// Marks the connection as idle, with nothing to cancel.
    pub(super) fn rest(&self) {
        *self.answering.lock().expect(NO_PANIC) = None;
    }

    /// Marks the connection as running a step of a statement, or waiting for a permit for it.
    pub(super) fn begin(&self, text: &str) -> Running<'_> {
        self.rows.store(0, Ordering::Relaxed);
        let text = kept_text(text);
        let (since, begun) = (Instant::now(), SystemTime::now());
        let mut answering = self.answering.lock().expect(NO_PANIC);
        let answering = answering.get_or_insert_default();
        answering.statement = Some(Statement { text, since, begun });
        Running { entry: self, token: answering.token.clone() }
    }

    fn connected(&self) -> Connected {
        let answering = self.answering.lock().expect(NO_PANIC);
        let statement = answering.as_ref().and_then(|it| it.statement.as_ref());
        Connected {
            id: self.id,
            client: Arc::clone(&self.client),
            since: self.since,
            running: statement.map(|it| (it.text.clone(), it.begun)),
            rows: self.rows.load(Ordering::Relaxed),
        }
    }

    fn cancel(&self) -> bool {
        let answering = self.answering.lock().expect(NO_PANIC);
        answering.as_ref().map(|it| it.token.cancel()).is_some()
    }

    fn info(&self) -> Option<QueryInfo> {
        let answering = self.answering.lock().expect(NO_PANIC);
        let statement = answering.as_ref().and_then(|it| it.statement.as_ref());
        statement.map(|it| QueryInfo {
            id: self.id,
            principal: self.client.principal.clone(),
            address: self.client.address,
            text: it.text.clone(),
            running: it.since.elapsed(),
        })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(answering) = &mut *self.entry.answering.lock().expect(NO_PANIC) {
            answering.statement = None;
        }
    }
}
