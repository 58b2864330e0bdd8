//! Runs statements, and sends what they give.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use access::Operation;
use datafusion::common::ScalarValue;
use futures::StreamExt;
use live_queries::CopyFormat;

use super::counters::Counters;
use super::interrupt::{Interrupt, of_arrow};
use super::io::{Io, SEND_BYTES, Stream};
use super::rows::Rows;
use super::state::{Connection, Cursor, Ending, Portal, Prepared, no_cursor};
use crate::engine::one_column;
use crate::error::{SqlError, SqlState};
use crate::host::Published;
use crate::statements::{
    Assignment, Command, CursorSource, Extension, InsertPlan, Variables, run_derive, run_extension,
};
use crate::wire::{CopyOut, Formats, TransactionState};

/// Bytes that an open transaction may insert.
const INSERTED_BYTES_MAX: usize = 64 << 20;

/// Records that an INSERT publishes at a time.
const PUBLISHED_BYTES: usize = 1 << 20;

/// What a statement comes to.
enum Outcome {
    /// Rows, and the word before their number.
    Rows(Rows, &'static str),
    Copy(Rows, CopyFormat),
    Done(String),
    /// A parameter was set that the client is told of.
    Set(&'static str, Option<(&'static str, String)>),
}

/// What FETCH asks for.
struct Fetch<'a> {
    name: &'a str,
    rows_max: usize,
    timeout_ms: Option<u64>,
}

/// How far rows were sent.
struct Sent {
    count: usize,
    /// Whether there are no more.
    is_all: bool,
}

impl Connection {
    /// Runs a portal on, up to `rows_max` rows.
    pub(super) async fn run_portal<S: Stream>(
        &mut self,
        io: &mut Io<S>,
        portal: &mut Portal,
        rows_max: usize,
    ) -> Result<(), Ending> {
        let Some(command) = &portal.prepared.command else {
            io.out.empty_query();
            return Ok(());
        };
        self.check_transaction(command)?;
        let (server, entry) = (Arc::clone(&self.server), Arc::clone(&self.entry));
        let per_principal_max = server.limits.queries_per_principal;
        let running = server.registry.begin(&entry, &portal.prepared.text, per_principal_max)?;
        let interrupt = Interrupt {
            token: running.token.clone(),
            terminated: entry.terminated.clone(),
            time_max: match self.is_live(&portal.prepared) {
                true => self.variables.live_time(),
                false => self.variables.statement_time(),
            },
            begun: Instant::now(),
            stops: self.stops.clone(),
        };
        let is_first = portal.rows.is_none();
        let ended = self.run_on(io, portal, rows_max, &interrupt).await;
        let taken = interrupt.begun.elapsed();
        server.counters.time(taken);
        Counters::count(&server.counters.statements);
        match (&ended, &portal.prepared.figures) {
            (Ok(()), Some(figures)) => {
                figures.count(is_first, taken, entry.rows.load(Ordering::Relaxed));
            }
            (Err(Ending::Failed(error)), _) if error.state == SqlState::CANCELLED => {
                Counters::count(&server.counters.cancelled);
            }
            (Err(Ending::Failed(_)), _) => Counters::count(&server.counters.errors),
            _ => {}
        }
        ended
    }

    async fn run_on<S: Stream>(
        &mut self,
        io: &mut Io<S>,
        portal: &mut Portal,
        rows_max: usize,
        interrupt: &Interrupt,
    ) -> Result<(), Ending> {
        if portal.has_ended {
            io.out.command_complete("SELECT 0");
            return Ok(());
        }
        let prepared = Arc::clone(&portal.prepared);
        if let Some(Command::Fetch { name, rows_max, timeout_ms }) = &prepared.command {
            let fetch = Fetch { name, rows_max: *rows_max, timeout_ms: *timeout_ms };
            return self.fetch(io, fetch, &portal.formats, interrupt).await;
        }
        let (mut rows, word) = match portal.rows.take() {
            Some(rows) => (rows, "SELECT"),
            None => match interrupt.unless(io, self.begin(&prepared, &portal.parameters)).await? {
                Outcome::Rows(rows, word) => (rows, word),
                Outcome::Copy(rows, format) => {
                    return self.copy_out(io, (rows, format), interrupt).await;
                }
                Outcome::Done(tag) => {
                    io.out.command_complete(&tag);
                    return Ok(());
                }
                Outcome::Set(tag, status) => {
                    self.viewer.set_settings(self.variables.all());
                    if let Some((name, value)) = status {
                        io.out.parameter_status(name, &value);
                    }
                    io.out.command_complete(tag);
                    return Ok(());
                }
            },
        };
        let sent = self.send_rows(io, &mut rows, (rows_max, &portal.formats), interrupt).await?;
        if !sent.is_all {
            portal.rows = Some(rows);
            io.out.portal_suspended();
            return Ok(());
        }
        portal.has_ended = true;
        match word {
            "SELECT" => io.out.command_complete(&format!("SELECT {}", sent.count)),
            other => io.out.command_complete(other),
        }
        Ok(())
    }

    async fn send_rows<S: Stream>(
        &mut self,
        io: &mut Io<S>,
        rows: &mut Rows,
        (rows_max, formats): (usize, &Formats),
        interrupt: &Interrupt,
    ) -> Result<Sent, Ending> {
        let mut count = 0;
        while count < rows_max {
            let next = interrupt.unless(io, rows.next(rows_max - count)).await?;
            let Some(chunk) = next else {
                return Ok(Sent { count, is_all: true });
            };
            count += chunk.len();
            self.count_rows(&self.server.counters.rows_out, chunk.len());
            chunk.put(&mut io.out.0, formats).map_err(of_arrow)?;
            // Whoever waits for more has what is there.
            if io.out.0.len() >= SEND_BYTES || rows.is_waited_for() {
                interrupt.send(io).await?;
            }
        }
        Ok(Sent { count, is_all: false })
    }

    async fn fetch<S: Stream>(
        &mut self,
        io: &mut Io<S>,
        Fetch { name, rows_max, timeout_ms }: Fetch<'_>,
        formats: &Formats,
        interrupt: &Interrupt,
    ) -> Result<(), Ending> {
        let mut cursor = self.cursors.remove(name).ok_or_else(|| no_cursor(name))?;
        let count = match cursor.rows.is_live() {
            true => {
                let wait = (rows_max, timeout_ms.map(Duration::from_millis));
                self.fetch_live(io, &mut cursor.rows, (wait, formats), interrupt).await?
            }
            false => {
                let wanted = (rows_max, formats);
                self.send_rows(io, &mut cursor.rows, wanted, interrupt).await?.count
            }
        };
        self.cursors.insert(name.to_owned(), cursor);
        io.out.command_complete(&format!("FETCH {count}"));
        Ok(())
    }

    async fn copy_out<S: Stream>(
        &mut self,
        io: &mut Io<S>,
        (mut rows, format): (Rows, CopyFormat),
        interrupt: &Interrupt,
    ) -> Result<(), Ending> {
        let column_count = rows.schema().fields().len();
        let mut copy = CopyOut::begin(&mut io.out, column_count, format);
        if rows.is_live() {
            interrupt.send(io).await?;
        }
        let mut count = 0;
        while let Some(chunk) = interrupt.unless(io, rows.next(usize::MAX)).await? {
            count += chunk.len();
            self.count_rows(&self.server.counters.rows_out, chunk.len());
            chunk.put_copy(&mut io.out, &mut copy).map_err(of_arrow)?;
            if io.out.0.len() >= SEND_BYTES || rows.is_waited_for() {
                interrupt.send(io).await?;
            }
        }
        copy.end(&mut io.out);
        io.out.command_complete(&format!("COPY {count}"));
        Ok(())
    }

    /// Refuses what a transaction that failed, or one that is not there, does not allow.
    pub(super) fn check_transaction(&self, command: &Command) -> Result<(), SqlError> {
        let may_always =
            matches!(command, Command::Commit | Command::Rollback | Command::Savepoint("ROLLBACK"));
        if self.transaction == TransactionState::Failed && !may_always {
            let what = "current transaction is aborted, commands ignored until end of \
                        transaction block";
            return Err(SqlError::new(SqlState::FAILED_TRANSACTION, what));
        }
        if let Some(word) = command.change().filter(|_| self.variables.only_reads()) {
            let what = format!("cannot execute {word} in a read-only transaction");
            return Err(SqlError::new(SqlState::READ_ONLY, what));
        }
        let is_alone = matches!(command, Command::Declare { has_hold: false, .. });
        if is_alone && self.transaction == TransactionState::Idle {
            let what = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, what)
                .with_hint("Begin a transaction, or declare it WITH HOLD."));
        }
        Ok(())
    }

    async fn begin(
        &mut self,
        prepared: &Prepared,
        parameters: &[ScalarValue],
    ) -> Result<Outcome, SqlError> {
        let command = prepared.command.as_ref().expect("the caller looked");
        if let Some(it) = &prepared.point_read {
            return Ok(Outcome::Rows(Rows::of_batch(it.read(parameters).await?), "SELECT"));
        }
        let plan = prepared.plan.clone();
        let parameters = parameters.to_vec();
        const PLANNED: &str = "queries are planned when they are prepared";
        let done = |tag: &str| Ok(Outcome::Done(tag.to_owned()));
        match command {
            Command::Query(_) => {
                let rows = self.session.run(plan.expect(PLANNED), parameters).await?;
                Ok(Outcome::Rows(Rows::new(rows), "SELECT"))
            }
            Command::Explain { analyze, .. } => {
                let plan = plan.expect(PLANNED);
                let rows = self.session.explain(plan, parameters, *analyze).await?;
                Ok(Outcome::Rows(Rows::new(rows), "EXPLAIN"))
            }
            Command::CopyOut { source, format } => {
                let rows = self.open(source, prepared, parameters).await?;
                Ok(Outcome::Copy(rows, *format))
            }
            Command::Extension(extension) => self.extension(extension, prepared, &parameters).await,
            Command::Insert(_) => {
                let insert = prepared.insert.as_ref().expect(PLANNED);
                let count = self.insert(insert, &parameters).await?;
                done(&format!("INSERT 0 {count}"))
            }
            Command::Set(assignment) => {
                let default_time = self.server.limits.statement_time;
                Ok(Outcome::Set("SET", self.variables.set(assignment, default_time)?))
            }
            Command::Reset(name) => self.reset(name),
            Command::Show(name) => {
                let value = self.variables.show(name)?;
                Ok(Outcome::Rows(Rows::new(one_column(name, vec![value])?), "SHOW"))
            }
            Command::Begin => {
                self.transaction = TransactionState::Open;
                done("BEGIN")
            }
            Command::Commit => self.commit().await,
            Command::Rollback => {
                self.end_transaction();
                done("ROLLBACK")
            }
            Command::Savepoint(tag) => self.savepoint(tag),
            Command::Declare { .. }
            | Command::Fetch { .. }
            | Command::Move { .. }
            | Command::CloseCursor(_) => self.cursor_command(command, prepared, parameters).await,
            Command::CreateTable { .. } | Command::DropTable { .. } => self.tables(command).await,
            Command::Deallocate(name) => {
                match name {
                    Some(name) => drop(self.statements.remove(name)),
                    None => self.statements.clear(),
                }
                done("DEALLOCATE")
            }
            Command::Discard => self.discard(),
        }
    }

    async fn extension(
        &mut self,
        extension: &Extension,
        prepared: &Prepared,
        parameters: &[ScalarValue],
    ) -> Result<Outcome, SqlError> {
        match extension {
            Extension::Subscribe(_) => {
                let rows = self.open_extension(extension, prepared, parameters).await?;
                Ok(Outcome::Rows(rows, "SELECT"))
            }
            Extension::CreateTopic(words)
            | Extension::CreateView(words)
            | Extension::Drop(words) => {
                let tag = run_derive(&*self.server.host, &self.client, words).await?;
                Ok(Outcome::Done(tag.to_owned()))
            }
        }
    }

    fn discard(&mut self) -> Result<Outcome, SqlError> {
        self.cursors.clear();
        self.statements.clear();
        Ok(Outcome::Done("DISCARD ALL".to_owned()))
    }

    async fn tables(&mut self, command: &Command) -> Result<Outcome, SqlError> {
        Ok(Outcome::Done(self.table_command(command).await?.to_owned()))
    }

    /// What is done with a cursor, but for taking rows of it.
    async fn cursor_command(
        &mut self,
        command: &Command,
        prepared: &Prepared,
        parameters: Vec<ScalarValue>,
    ) -> Result<Outcome, SqlError> {
        let done = |tag: &str| Ok(Outcome::Done(tag.to_owned()));
        match command {
            Command::Declare { name, source, format, has_hold } => {
                let rows = self.open(source, prepared, parameters).await?;
                let (format, has_hold) = (*format, *has_hold);
                self.declare(name, Cursor { rows, format, has_hold })
            }
            Command::Move { name, rows_max } => {
                let cursor = self.cursors.get_mut(name).ok_or_else(|| no_cursor(name))?;
                let mut count = 0;
                while count < *rows_max {
                    match cursor.rows.next(*rows_max - count).await? {
                        Some(chunk) => count += chunk.len(),
                        None => break,
                    }
                }
                done(&format!("MOVE {count}"))
            }
            Command::CloseCursor(None) => {
                self.cursors.clear();
                done("CLOSE CURSOR ALL")
            }
            Command::CloseCursor(Some(name)) => {
                self.cursors.remove(name).ok_or_else(|| no_cursor(name))?;
                done("CLOSE CURSOR")
            }
            _ => unreachable!("the caller hands over commands for cursors alone"),
        }
    }

    /// The rows that a cursor or a copy is of.
    async fn open(
        &mut self,
        source: &CursorSource,
        prepared: &Prepared,
        parameters: Vec<ScalarValue>,
    ) -> Result<Rows, SqlError> {
        const PLANNED: &str = "queries are planned when they are prepared";
        match source {
            CursorSource::Query(_) => {
                let plan = prepared.plan.clone().expect(PLANNED);
                Ok(Rows::new(self.session.run(plan, parameters).await?))
            }
            CursorSource::Extension(extension) => {
                self.open_extension(extension, prepared, &parameters).await
            }
        }
    }

    async fn open_extension(
        &mut self,
        extension: &Extension,
        prepared: &Prepared,
        parameters: &[ScalarValue],
    ) -> Result<Rows, SqlError> {
        match (extension, &prepared.live) {
            (Extension::Subscribe(_), Some(live)) => self.subscribe(live, parameters).await,
            _ => Ok(Rows::new(run_extension(extension)?)),
        }
    }

    fn declare(&mut self, name: &str, cursor: Cursor) -> Result<Outcome, SqlError> {
        if self.cursors.contains_key(name) {
            let what = format!("cursor {name:?} already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_CURSOR, what));
        }
        if self.cursors.len() >= self.server.limits.statement_count {
            let count = self.server.limits.statement_count;
            let what = format!("a connection declares {count} cursors at most");
            return Err(SqlError::new(SqlState::TOO_MANY, what));
        }
        self.cursors.insert(name.to_owned(), cursor);
        Ok(Outcome::Done("DECLARE CURSOR".to_owned()))
    }

    fn reset(&mut self, name: &str) -> Result<Outcome, SqlError> {
        let default_time = self.server.limits.statement_time;
        if name == "all" {
            self.variables = Variables::new(default_time);
            return Ok(Outcome::Set("RESET", None));
        }
        let assignment = Assignment { name: name.to_owned(), value: None };
        Ok(Outcome::Set("RESET", self.variables.set(&assignment, default_time)?))
    }

    fn savepoint(&mut self, tag: &'static str) -> Result<Outcome, SqlError> {
        if self.transaction == TransactionState::Idle {
            let what = format!("{tag} can only be used in transaction blocks");
            return Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, what));
        }
        if tag == "ROLLBACK" && !self.inserted.is_empty() {
            let what = "what was inserted cannot be rolled back in part";
            return Err(SqlError::unsupported(what));
        }
        if tag == "ROLLBACK" {
            self.transaction = TransactionState::Open;
        }
        Ok(Outcome::Done(tag.to_owned()))
    }

    /// Publishes what the transaction inserted. Records before one that fails stay.
    async fn commit(&mut self) -> Result<Outcome, SqlError> {
        let inserted = match self.transaction {
            TransactionState::Failed => Vec::new(),
            _ => std::mem::take(&mut self.inserted),
        };
        let tag = match self.transaction {
            TransactionState::Failed => "ROLLBACK",
            _ => "COMMIT",
        };
        self.end_transaction();
        for records in inserted {
            self.server.host.publish(records).await?;
        }
        Ok(Outcome::Done(tag.to_owned()))
    }

    fn end_transaction(&mut self) {
        self.transaction = TransactionState::Idle;
        self.inserted.clear();
        self.inserted_bytes = 0;
        self.cursors.retain(|_, cursor| cursor.has_hold);
    }

    /// Publishes the rows of an INSERT, or keeps them for the end of the transaction.
    async fn insert(
        &mut self,
        insert: &InsertPlan,
        parameters: &[ScalarValue],
    ) -> Result<usize, SqlError> {
        let host = Arc::clone(&self.server.host);
        self.client.check(&*host, Operation::Write, &insert.topic)?;
        if host.topic(&insert.topic).is_none() {
            let what = format!("relation {:?} does not exist", insert.topic);
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, what));
        }
        let plan = self.session.plan(insert.query(parameters)?).await?;
        let mut rows = self.session.run(plan, Vec::new()).await?;
        let mut count = 0;
        let (mut waiting, mut waiting_bytes) = (Vec::new(), 0);
        while let Some(batch) = rows.next().await {
            for record in insert.records(&batch?)? {
                count += 1;
                waiting_bytes += record.size_bytes() + size_of_val(&record);
                waiting.push(record);
                let is_open = self.transaction == TransactionState::Open;
                if is_open && self.inserted_bytes + waiting_bytes > INSERTED_BYTES_MAX {
                    let what = format!("a transaction inserts {INSERTED_BYTES_MAX} bytes at most");
                    return Err(SqlError::new(SqlState::TOO_LARGE, what));
                }
                if !is_open && waiting_bytes >= PUBLISHED_BYTES {
                    let records = std::mem::take(&mut waiting);
                    host.publish(Published { topic: Arc::clone(&insert.topic), records }).await?;
                    waiting_bytes = 0;
                }
            }
        }
        let records = Published { topic: Arc::clone(&insert.topic), records: waiting };
        if self.transaction == TransactionState::Open {
            // Not at the end, where parts of the transaction are there already.
            host.check(&records)?;
            self.inserted.push(records);
            self.inserted_bytes += waiting_bytes;
        } else if !records.records.is_empty() {
            host.publish(records).await?;
        }
        self.count_rows(&self.server.counters.rows_in, count);
        Ok(count)
    }
}
