//! State of one connection between messages.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use shares::Share;
use tokio::sync::watch;

use super::counters::Counters;
use super::interrupt::{Ending, Ends, of_arrow};
use super::meaning::Named;
use super::registry::Entry;
use super::rows::Rows;
use super::shared::Server;
use super::statistics::Figures;
use super::work::Work;
use crate::engine::{Activity, PointRead, Session, Viewer};
use crate::error::{SqlError, SqlState};
use crate::host::{Client, Flow, Host};
use crate::statements::{Command, InsertPlan, Variables, Words};
use crate::wire::{Answers, Format, Formats, PgType, TransactionState, UUID};

/// An authenticated connection.
pub(super) struct Connection {
    pub(super) server: Arc<Server>,
    pub(super) entry: Arc<Entry>,
    pub(super) session: Session,
    /// View of the connection for the catalogue's tables and functions.
    pub(super) viewer: Arc<Viewer>,
    pub(super) client: Arc<Client>,
    pub(super) stops: watch::Receiver<bool>,
    pub(super) variables: Variables,
    pub(super) transaction: TransactionState,
    /// Pending work of the transaction, explicit or implicit.
    pub(super) work: Work,
    /// True if the running statement ends an implicit transaction.
    pub(super) is_last: bool,
    /// True if the statement is one of several in a text.
    pub(super) is_of_several: bool,
    /// Parameter values last reported to the client, and whether they are up to date.
    pub(super) told: Vec<String>,
    pub(super) is_told: bool,
    pub(super) statements: HashMap<String, Arc<Prepared>>,
    pub(super) portals: HashMap<String, Portal>,
    pub(super) cursors: HashMap<String, Cursor>,
    /// True after an error: messages up to the next Sync are ignored.
    pub(super) skips: bool,
}

/// A cursor: a named query whose rows the client fetches.
pub(super) struct Cursor {
    pub(super) rows: Rows,
    pub(super) format: Format,
    /// True for WITH HOLD: the cursor outlives the transaction.
    pub(super) has_hold: bool,
    /// Number of savepoints at its declaration; `None` once that transaction has ended.
    pub(super) depth: Option<usize>,
}

impl Connection {
    pub(super) fn new(
        server: &Arc<Server>,
        client: Arc<Client>,
        entry: Arc<Entry>,
        stops: watch::Receiver<bool>,
    ) -> Self {
        let activity = Arc::clone(&server.registry) as Arc<dyn Activity>;
        let shown = (activity, entry.id);
        let viewer = Viewer::new(&server.host, &client, shown, Variables::check);
        let viewer = Arc::new(viewer);
        let session = Session::new(Arc::clone(&server.engine), &viewer);
        let login = client.principal.name();
        let variables = Variables::new(server.limits.statement_time, login);
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
            work: Work::default(),
            is_last: false,
            is_of_several: false,
            told: Vec::new(),
            is_told: true,
            statements: HashMap::new(),
            portals: HashMap::new(),
            cursors: HashMap::new(),
            skips: false,
        }
    }

    /// Returns the events that end the connection.
    pub(super) fn ends(&self) -> Ends {
        Ends { terminated: self.entry.terminated.clone(), stops: self.stops.clone() }
    }

    /// Returns whether the running statement is a transaction of its own.
    pub(super) fn is_alone(&self) -> bool {
        self.transaction == TransactionState::Idle && !self.is_of_several
    }

    /// Applies changed parameters to queries, and schedules a report to the client.
    pub(super) fn settings_changed(&mut self) {
        self.viewer.set_settings(self.variables.all());
        self.is_told = false;
    }

    /// Reports parameters that differ from the values last reported to the client.
    pub(super) fn tell_settings(&mut self, out: &mut Answers) {
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        for ((name, value), told) in self.variables.reported().zip(&mut self.told) {
            if *told != value {
                out.parameter_status(name, &value);
                *told = value;
            }
        }
    }

    /// Waits until the client's rate allows more in this direction.
    pub(super) fn wait_for_rate(
        &self,
        flow: Flow,
    ) -> impl Future<Output = Result<(), SqlError>> + Send + use<> {
        let (server, client) = (Arc::clone(&self.server), Arc::clone(&self.client));
        async move {
            loop {
                let wait = server.host.owed(&client, flow);
                if wait.is_zero() {
                    return Ok(());
                }
                tokio::time::sleep(wait).await;
            }
        }
    }

    /// Appends rows of the running statement, and counts them and their bytes for the client.
    pub(super) fn put_rows(
        &self,
        out: &mut Answers,
        count: usize,
        put: impl FnOnce(&mut Answers) -> Result<(), ArrowError>,
    ) -> Result<(), Ending> {
        self.count_rows(&self.server.counters.rows_out, count);
        let bytes_before = out.0.len();
        put(out).map_err(of_arrow)?;
        let bytes = out.0.len() - bytes_before;
        self.server.host.charge(&self.client, Flow::Received, bytes);
        Ok(())
    }

    /// Counts rows of the running statement.
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

/// A prepared statement with resolved names and types.
#[derive(Clone, Default)]
pub(super) struct Prepared {
    /// Parsed command; `None` for an empty statement.
    pub(super) command: Option<Command>,
    /// Text, for lists of running statements.
    pub(super) text: String,
    /// Tables that the statement names.
    pub(super) tables: Arc<[Named]>,
    /// Plan of the query, including one in EXPLAIN, COPY or DECLARE.
    pub(super) plan: Option<LogicalPlan>,
    /// Memory accounted for the plan; `None` for an empty one.
    pub(super) memory: Option<Arc<Share>>,
    /// Columns of the plan, as described to clients.
    pub(super) columns: Option<SchemaRef>,
    /// Fast path equivalent to the plan, if the query is a point read.
    pub(super) point_read: Option<Arc<PointRead>>,
    pub(super) insert: Option<InsertPlan>,
    /// Plan of a live query, including one in COPY or DECLARE.
    pub(super) live: Option<LivePlan>,
    /// Statistics; `None` for an empty statement.
    pub(super) figures: Option<Arc<Figures>>,
    /// Types of the parameters, `$1` first.
    pub(super) parameters: Vec<Parameter>,
}

/// A live query with resolved names.
#[derive(Clone, Debug)]
pub(super) struct LivePlan {
    pub(super) words: Words,
    pub(super) schema: SchemaRef,
    /// Number of parameters, derived from `$1`, `$2`….
    pub(super) parameter_count: usize,
}

#[derive(Clone)]
pub(super) struct Parameter {
    pub(super) oid: u32,
    pub(super) data_type: DataType,
}

impl Prepared {
    /// Returns whether its names mean the same as when it was prepared.
    pub(super) fn is_current(&self, host: &dyn Host) -> bool {
        self.tables.iter().all(|it| it.is_same(host))
    }

    /// Fails if a result column's type differs from the one described to the client, which would
    /// misread the values.
    pub(super) fn check_sent(&self, sent: &Schema) -> Result<(), SqlError> {
        let told = self.columns.iter().flat_map(|it| it.fields());
        let other = told.zip(sent.fields()).find(|(told, sent)| {
            let [told_as, sent_as] = [told, sent].map(|it| PgType::described(it).0);
            let is_sent_as = PgType::of(told).is_sent_as(PgType::of(sent));
            told_as != sent_as && (!is_sent_as || [told_as.oid, sent_as.oid].contains(&UUID))
        });
        let Some((told, _)) = other else { return Ok(()) };
        let what = format!("could not determine data type of column {:?}", told.name());
        Err(SqlError::unsupported(what).with_hint("Add an explicit cast to the column."))
    }

    /// Returns the bytes of its query's memory that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, |it| it.amount())
    }

    /// Returns the name of the cursor that the statement fetches from.
    pub(super) fn cursor(&self) -> Option<&String> {
        match &self.command {
            Some(Command::Fetch { name, .. }) => Some(name),
            _ => None,
        }
    }
}

/// A portal: a prepared statement with bound parameters, and its rows once it has been executed.
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

pub(super) fn no_statement(name: &str) -> SqlError {
    let what = format!("prepared statement {name:?} does not exist");
    SqlError::new(SqlState::INVALID_STATEMENT, what)
}

pub(super) fn no_cursor(name: &str) -> SqlError {
    SqlError::new(SqlState::CURSOR_NAME, format!("cursor {name:?} does not exist"))
}
