//! State that one connection keeps between messages.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use shares::Share;
use tokio::sync::watch;

use super::counters::Counters;
use super::interrupt::Ends;
use super::meaning::Named;
use super::registry::Entry;
use super::rows::Rows;
use super::shared::Server;
use super::statistics::Figures;
use super::work::Work;
use crate::engine::{Activity, PointRead, Session, Viewer};
use crate::error::{SqlError, SqlState};
use crate::host::Client;
use crate::statements::{Command, InsertPlan, Variables, Words};
use crate::wire::{Answers, Format, Formats, PgType, TransactionState};

/// One connection, after its login.
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
    /// Work of the transaction, or of the statements that are one without BEGIN.
    pub(super) work: Work,
    /// True if the statement that runs ends these.
    pub(super) is_last: bool,
    /// True if it is one of several of a text.
    pub(super) is_of_several: bool,
    /// Values of its parameters that the client was told, and whether they are still that.
    pub(super) told: Vec<String>,
    pub(super) is_told: bool,
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
    /// True if it outlives the transaction.
    pub(super) has_hold: bool,
    /// Number of savepoints when it was declared; `None` once that transaction is over.
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

    /// Ends of the connection.
    pub(super) fn ends(&self) -> Ends {
        Ends { terminated: self.entry.terminated.clone(), stops: self.stops.clone() }
    }

    /// Returns whether the statement that runs is a transaction of its own.
    pub(super) fn is_alone(&self) -> bool {
        self.transaction == TransactionState::Idle && !self.is_of_several
    }

    /// Parameters have other values: queries see them, and the client is told before it goes on.
    pub(super) fn settings_changed(&mut self) {
        self.viewer.set_settings(self.variables.all());
        self.is_told = false;
    }

    /// Tells the client of parameters that have other values than it was told.
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
#[derive(Clone, Default)]
pub(super) struct Prepared {
    /// `None`: the statement is empty.
    pub(super) command: Option<Command>,
    /// Its text, for lists of what runs.
    pub(super) text: String,
    /// The tables that it names.
    pub(super) tables: Arc<[Named]>,
    /// Plan of a query, also one that is explained, copied or that a cursor is of.
    pub(super) plan: Option<LogicalPlan>,
    /// Memory that it takes; `None` where it is empty.
    pub(super) memory: Option<Arc<Share>>,
    /// Columns of the plan, as clients are told of them.
    pub(super) columns: Option<SchemaRef>,
    /// The same as the plan of a query, where the query is one.
    pub(super) point_read: Option<Arc<PointRead>>,
    pub(super) insert: Option<InsertPlan>,
    /// Plan of a live query, also one that is copied or that a cursor is of.
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
    /// Number of parameters, as many as `$1`, `$2`… say.
    pub(super) parameter_count: usize,
}

#[derive(Clone)]
pub(super) struct Parameter {
    pub(super) oid: u32,
    pub(super) data_type: DataType,
}

impl Prepared {
    /// Refuses to send columns of other types than clients were told of: they would be misread.
    pub(super) fn check_sent(&self, sent: &Schema) -> Result<(), SqlError> {
        let told = self.columns.iter().flat_map(|it| it.fields());
        let other = told
            .zip(sent.fields())
            .find(|(told, sent)| !PgType::of(told).is_sent_as(PgType::of(sent)));
        let Some((told, _)) = other else { return Ok(()) };
        let what = format!("the type of column {:?} is not known beforehand", told.name());
        Err(SqlError::unsupported(what).with_hint("Cast it to the type that it shall have."))
    }

    /// Bytes of the memory of its query that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, |it| it.amount())
    }

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

pub(super) fn no_cursor(name: &str) -> SqlError {
    SqlError::new(SqlState::CURSOR_NAME, format!("cursor {name:?} does not exist"))
}
