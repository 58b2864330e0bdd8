//! What one connection keeps between messages.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use tokio::sync::watch;

use super::counters::Counters;
use super::registry::Entry;
use super::rows::Rows;
use super::shared::Server;
use super::statistics::Figures;
use crate::engine::{Activity, PointRead, Session, Viewer};
use crate::error::{SqlError, SqlState};
use crate::host::{Client, Published};
use crate::statements::{Command, InsertPlan, Variables, Words};
use crate::wire::{Format, Formats, TransactionState};

/// One connection, after its login.
pub(super) struct Connection {
    pub(super) server: Arc<Server>,
    pub(super) entry: Arc<Entry>,
    pub(super) session: Session,
    /// What the catalogue's tables and functions know of the connection.
    pub(super) viewer: Arc<Viewer>,
    pub(super) client: Arc<Client>,
    pub(super) stops: watch::Receiver<bool>,
    pub(super) variables: Variables,
    pub(super) transaction: TransactionState,
    /// What an open transaction has inserted; published when it commits.
    pub(super) inserted: Vec<Published>,
    pub(super) inserted_bytes: usize,
    pub(super) statements: HashMap<String, Arc<Prepared>>,
    pub(super) portals: HashMap<String, Portal>,
    pub(super) cursors: HashMap<String, Cursor>,
    /// After an error, messages are left out up to the next Sync.
    pub(super) skips: bool,
}

/// A query that a client takes rows of by name.
pub(super) struct Cursor {
    pub(super) rows: Rows,
    pub(super) format: Format,
    /// Whether it outlives the transaction.
    pub(super) has_hold: bool,
}

impl Connection {
    pub(super) fn new(
        server: &Arc<Server>,
        client: Arc<Client>,
        entry: Arc<Entry>,
        stops: watch::Receiver<bool>,
    ) -> Self {
        let activity = Arc::clone(&server.registry) as Arc<dyn Activity>;
        let viewer = Arc::new(Viewer::new(&server.host, &client, activity, entry.id));
        let session = Session::new(Arc::clone(&server.engine), &viewer);
        let variables = Variables::new(server.limits.statement_time);
        viewer.set_settings(variables.all());
        Self {
            viewer,
            server: Arc::clone(server),
            entry,
            session,
            client,
            stops,
            variables,
            transaction: TransactionState::default(),
            inserted: Vec::new(),
            inserted_bytes: 0,
            statements: HashMap::new(),
            portals: HashMap::new(),
            cursors: HashMap::new(),
            skips: false,
        }
    }

    /// Counts rows of what runs.
    pub(super) fn count_rows(&self, counter: &AtomicU64, count: usize) {
        Counters::add(counter, count);
        Counters::add(&self.entry.rows, count);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.server.registry.remove(self.entry.id);
    }
}

/// A statement whose names were looked up and whose types are known.
#[derive(Default)]
pub(super) struct Prepared {
    /// `None`: the statement is empty.
    pub(super) command: Option<Command>,
    /// Its text, for lists of what runs.
    pub(super) text: String,
    /// Of a query, also one that is explained, copied or that a cursor is of.
    pub(super) plan: Option<LogicalPlan>,
    /// The same as the plan of a query, where the query is one.
    pub(super) point_read: Option<PointRead>,
    pub(super) insert: Option<InsertPlan>,
    /// Of a live query, also one that is copied or that a cursor is of.
    pub(super) live: Option<LivePlan>,
    /// `None` where the statement is empty.
    pub(super) figures: Option<Arc<Figures>>,
    /// Types of its parameters, `$1` first.
    pub(super) parameters: Vec<Parameter>,
}

/// A live query that was looked up.
#[derive(Clone, Debug)]
pub(super) struct LivePlan {
    pub(super) words: Words,
    pub(super) schema: SchemaRef,
    /// As many as `$1`, `$2`… say.
    pub(super) parameter_count: usize,
}

pub(super) struct Parameter {
    pub(super) oid: u32,
    pub(super) data_type: DataType,
}

impl Prepared {
    /// The cursor that it takes rows of.
    pub(super) fn cursor(&self) -> Option<&String> {
        match &self.command {
            Some(Command::Fetch { name, .. }) => Some(name),
            _ => None,
        }
    }
}

/// A prepared statement with values, and its rows once it was begun.
pub(super) struct Portal {
    pub(super) prepared: Arc<Prepared>,
    pub(super) parameters: Vec<ScalarValue>,
    pub(super) formats: Formats,
    pub(super) rows: Option<Rows>,
    pub(super) has_ended: bool,
}

impl Portal {
    pub(super) fn new(
        prepared: Arc<Prepared>,
        parameters: Vec<ScalarValue>,
        formats: Formats,
    ) -> Self {
        Self { prepared, parameters, formats, rows: None, has_ended: false }
    }
}

/// Why a statement ended early.
pub(super) enum Ending {
    Failed(SqlError),
    /// The client has gone.
    Closed,
}

impl From<SqlError> for Ending {
    fn from(error: SqlError) -> Self {
        Self::Failed(error)
    }
}

pub(super) fn no_cursor(name: &str) -> SqlError {
    SqlError::new(SqlState::CURSOR_NAME, format!("cursor {name:?} does not exist"))
}

pub(super) fn terminated_error() -> SqlError {
    let what = "terminating connection due to administrator command";
    SqlError::new(SqlState::SHUTDOWN, what)
}
