//! Executes statements and sends their results.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use datafusion::common::ScalarValue;

use super::counters::Counters;
use super::interrupt::{Ending, Interrupt};
use super::io::{Io, SEND_BYTES, Stream};
use super::outcome::Outcome;
use super::registry::Running;
use super::rows::Rows;
use super::state::{Connection, Cursor, Portal, Prepared, no_cursor, no_statement};
use super::statistics::kept_text;
use crate::engine::text_rows;
use crate::error::{SqlError, SqlState};
use crate::host::Flow;
use crate::panics::{contain, contain_future};
use crate::statements::{
    Access, Assignment, Command, CursorSource, Discarded, Extension, Savepoint, Scope, Variables,
    run_derive, run_extension,
};
use crate::wire::{CopyIn, Formats, TransactionState};

/// Arguments of FETCH.
struct Fetch<'a> {
    name: &'a str,
    rows_max: usize,
    timeout_ms: Option<u64>,
}

/// Progress of sending rows.
struct Sent {
    count: usize,
    /// True if all rows were sent.
    is_all: bool,
}

impl Connection {
    /// Returns the interrupts for a statement of this connection that began at `begun`.
    pub(super) fn interrupt(
        &self,
        running: &Running<'_>,
        time_max: Option<Duration>,
        begun: Instant,
    ) -> Interrupt {
        Interrupt { token: running.token.clone(), ends: self.ends(), time_max, begun }
    }

    /// Continues a portal of a statement that began at `begun`, up to `rows_max` rows.
    pub(super) async fn run_portal<S: Stream>(
        &mut self,
        io: &mut Io<S>,
        portal: &mut Portal,
        (rows_max, begun): (usize, Instant),
    ) -> Result<(), Ending> {
        let prepared = Arc::clone(&portal.prepared);
        let Some(command) = &prepared.command else {
            io.out.empty_query();
            return Ok(());
        };
        self.check_transaction(command)?;
        let (server, entry) = (Arc::clone(&self.server), Arc::clone(&self.entry));
        let running = entry.begin(&prepared.text);
        let is_live = self.is_live(&prepared);
        let time_max = match is_live {
            true => self.variables.live_time(),
            false => self.variables.statement_time(),
        };
        let interrupt = self.interrupt(&running, time_max, begun);
        let is_begun = portal.rows.is_some() || portal.has_ended;
        if !is_begun && !contain(|| Ok(prepared.is_current(&*server.host)))? {
            let renewed = contain_future(Box::pin(self.renewed(&prepared)));
            portal.prepared = interrupt.unless(io, renewed).await?;
        }
        // Live queries run until the client ends them, and have a separate limit.
        let _turn = match is_live {
            true => None,
            false => {
                let permit = async { Ok(server.registry.permit(&entry).await) };
                Some(interrupt.unless(io, permit).await?)
            }
        };
        let is_first = portal.rows.is_none();
        self.work.has_run |= has_snapshot(command);
        // Of a statement that has failed.
        drop(self.viewer.take_assigned());
        let ended = self.run_to_end(io, portal, rows_max, &interrupt).await;
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
            (Err(Ending::Failed(error)), _) => {
                Counters::count(&server.counters.errors);
                self.report(error, &prepared.text);
            }
            _ => {}
        }
        ended
    }

    /// Logs and counts an internal error of a statement.
    pub(super) fn report(&self, error: &SqlError, statement: &str) {
        if error.state == SqlState::INTERNAL {
            Counters::count(&self.server.counters.faults);
            let (statement, user) = (kept_text(statement), &self.client.principal);
            tracing::error!(%user, statement, %error, "internal error (panic) in a SQL statement");
        }
    }

    /// Continues a portal, and ends the implicit transaction if this is its last statement.
    async fn run_to_end<S: Stream>(
        &mut self,
        io: &mut Io<S>,
        portal: &mut Portal,
        rows_max: usize,
        interrupt: &Interrupt,
    ) -> Result<(), Ending> {
        let Some(tag) = self.run_on(io, portal, rows_max, interrupt).await? else {
            io.out.portal_suspended();
            return Ok(());
        };
        self.assign_all()?;
        if self.is_last && self.transaction == TransactionState::Idle {
            interrupt.unless(io, contain_future(self.commit_work())).await?;
        }
        io.out.command_complete(&tag);
        Ok(())
    }

    /// Continues a portal. Returns the command tag when it is complete.
    async fn run_on<S: Stream>(
        &mut self,
        io: &mut Io<S>,
        portal: &mut Portal,
        rows_max: usize,
        interrupt: &Interrupt,
    ) -> Result<Option<String>, Ending> {
        if portal.has_ended {
            return Ok(Some("SELECT 0".to_owned()));
        }
        let prepared = Arc::clone(&portal.prepared);
        if let Some(Command::Fetch { name, rows_max, timeout_ms }) = &prepared.command {
            let fetch = Fetch { name, rows_max: *rows_max, timeout_ms: *timeout_ms };
            let formats = portal.formats.in_style(self.variables.interval_style());
            return self.fetch(io, fetch, &formats, interrupt).await.map(Some);
        }
        if let Some(Command::CopyIn { columns, form, .. }) = &prepared.command {
            let insert = prepared.insert.as_ref().expect("it was looked up");
            let columns = match columns.is_empty() {
                true => insert.declared_names(),
                false => columns.clone(),
            };
            let copy = CopyIn::new(form.clone(), columns);
            return self.copy_in(io, (insert, copy), interrupt).await.map(Some);
        }
        let (mut rows, word) = match portal.rows.take() {
            Some(rows) => (rows, "SELECT"),
            None => {
                let begun = contain_future(self.begin(&prepared, &portal.parameters));
                match interrupt.unless(io, begun).await? {
                    Outcome::Rows(rows, word) => (rows, word),
                    Outcome::Copy(rows, format) => {
                        return self.copy_out(io, (rows, format), interrupt).await.map(Some);
                    }
                    Outcome::Done(tag) => return Ok(Some(tag)),
                    Outcome::Warned(tag, warning) => {
                        io.out.notice(&warning);
                        return Ok(Some(tag.to_owned()));
                    }
                }
            }
        };
        let formats = portal.formats.in_style(self.variables.interval_style());
        let sent = self.send_rows(io, &mut rows, (rows_max, &formats), interrupt).await?;
        if !sent.is_all {
            portal.rows = Some(rows);
            return Ok(None);
        }
        portal.has_ended = true;
        Ok(Some(match word {
            "SELECT" => format!("SELECT {}", sent.count),
            other => other.to_owned(),
        }))
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
            interrupt.unless(io, self.wait_for_rate(Flow::Received)).await?;
            let next = interrupt.unless(io, rows.next(rows_max - count)).await?;
            let Some(chunk) = next else {
                return Ok(Sent { count, is_all: true });
            };
            count += chunk.len();
            self.put_rows(&mut io.out, chunk.len(), |out| chunk.put(&mut out.0, formats))?;
            // Send immediately if no more rows are ready.
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
    ) -> Result<String, Ending> {
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
        Ok(format!("FETCH {count}"))
    }

    /// Rejects commands that a failed, read-only or missing transaction does not allow.
    pub(super) fn check_transaction(&self, command: &Command) -> Result<(), SqlError> {
        let may_always = matches!(
            command,
            Command::Commit(_)
                | Command::Rollback(_)
                | Command::Savepoint(Savepoint::RollBackTo(_))
        );
        if self.transaction == TransactionState::Failed && !may_always {
            let what = "current transaction is aborted, commands ignored until end of \
                        transaction block";
            return Err(SqlError::new(SqlState::FAILED_TRANSACTION, what));
        }
        if let Some(word) = command.change().filter(|_| self.variables.access() == Access::ReadOnly)
        {
            let what = format!("cannot execute {word} in a read-only transaction");
            return Err(SqlError::new(SqlState::READ_ONLY, what));
        }
        let is_alone = matches!(command, Command::Declare { has_hold: false, .. });
        if is_alone && self.transaction == TransactionState::Idle {
            let what = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, what)
                .with_hint("Start a transaction, or declare the cursor WITH HOLD."));
        }
        Ok(())
    }

    async fn begin(
        &mut self,
        prepared: &Prepared,
        parameters: &[ScalarValue],
    ) -> Result<Outcome, SqlError> {
        match &prepared.point_read {
            Some(it) => {
                let rows = Rows::of_batch(it.read(parameters).await?);
                prepared.check_sent(&rows.schema())?;
                Ok(Outcome::Rows(rows, "SELECT"))
            }
            // Boxed: the future has tens of kilobytes, which would be moved for a point read too.
            None => Box::pin(self.begin_command(prepared, parameters)).await,
        }
    }

    async fn begin_command(
        &mut self,
        prepared: &Prepared,
        parameters: &[ScalarValue],
    ) -> Result<Outcome, SqlError> {
        let command = prepared.command.as_ref().expect("the caller looked");
        let plan = prepared.plan.clone().map(|plan| (plan, prepared.held_bytes()));
        let parameters = parameters.to_vec();
        const PLANNED: &str = "queries are planned when they are prepared";
        let done = |tag: &str| Ok(Outcome::Done(tag.to_owned()));
        match command {
            Command::Query(_) => {
                let rows = Rows::new(self.session.run(plan.expect(PLANNED), parameters).await?);
                prepared.check_sent(&rows.schema())?;
                Ok(Outcome::Rows(rows, "SELECT"))
            }
            Command::Explain { analyze, .. } => {
                let plan = plan.expect(PLANNED);
                let rows = self.session.explain(plan, parameters, *analyze).await?;
                Ok(Outcome::Rows(Rows::new(rows), "EXPLAIN"))
            }
            Command::CopyOut { source, form } => {
                let rows = self.open(source, prepared, parameters).await?;
                Ok(Outcome::Copy(rows, form.clone()))
            }
            Command::Extension(extension) => self.extension(extension, prepared, &parameters).await,
            Command::Insert(_) => {
                let insert = prepared.insert.as_ref().expect(PLANNED);
                let insert = (insert, prepared.held_bytes());
                let count = self.insert(insert, &parameters).await?;
                done(&format!("INSERT 0 {count}"))
            }
            Command::Set(assignment) => self.assign("SET", assignment),
            Command::Reset(name) => self.reset(name),
            Command::Show(name) => {
                let rows = text_rows(&Variables::shown_columns(name), self.variables.show(name)?)?;
                Ok(Outcome::Rows(Rows::new(rows), "SHOW"))
            }
            Command::Begin(access, tag) => Ok(self.begin_transaction(*access, tag)),
            Command::Commit(chain) => self.commit(*chain).await,
            Command::Rollback(chain) => self.roll_back(*chain),
            Command::Savepoint(savepoint) => self.savepoint(savepoint),
            Command::Declare { .. }
            | Command::Fetch { .. }
            | Command::Move { .. }
            | Command::CloseCursor(_) => self.cursor_command(command, prepared, parameters).await,
            Command::CopyIn { .. } => unreachable!("what takes rows in is run before"),
            Command::CreateTable { .. } | Command::DropTable { .. } => self.tables(command).await,
            Command::Deallocate(name) => {
                let Some(name) = name else {
                    self.statements.clear();
                    return done("DEALLOCATE ALL");
                };
                self.statements.remove(name).ok_or_else(|| no_statement(name))?;
                done("DEALLOCATE")
            }
            Command::Discard(what) => self.discard(*what),
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

    /// Resets the session to its state after the login.
    fn discard(&mut self, what: Discarded) -> Result<Outcome, SqlError> {
        if let Discarded::Nothing(tag) = what {
            return Ok(Outcome::Done(tag.to_owned()));
        }
        if !self.is_alone() {
            let what = "DISCARD ALL cannot run inside a transaction block";
            return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, what));
        }
        self.cursors.clear();
        self.portals.clear();
        self.statements.clear();
        self.reset_all()?;
        Ok(Outcome::Done("DISCARD ALL".to_owned()))
    }

    async fn tables(&mut self, command: &Command) -> Result<Outcome, SqlError> {
        Ok(Outcome::Done(self.table_command(command).await?.to_owned()))
    }

    /// Executes cursor commands other than FETCH.
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
                let depth = Some(self.work.depth());
                self.declare(name, Cursor { rows, format, has_hold, depth })
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

    /// Opens the query of a cursor or a COPY.
    async fn open(
        &mut self,
        source: &CursorSource,
        prepared: &Prepared,
        parameters: Vec<ScalarValue>,
    ) -> Result<Rows, SqlError> {
        const PLANNED: &str = "queries are planned when they are prepared";
        match source {
            CursorSource::Query(_) => {
                let plan = (prepared.plan.clone().expect(PLANNED), prepared.held_bytes());
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
            let what = format!("too many cursors: at most {count} per connection");
            return Err(SqlError::new(SqlState::TOO_MANY, what));
        }
        self.cursors.insert(name.to_owned(), cursor);
        Ok(Outcome::Done("DECLARE CURSOR".to_owned()))
    }

    fn reset(&mut self, name: &str) -> Result<Outcome, SqlError> {
        if name == "all" {
            self.reset_all()?;
            return Ok(Outcome::Done("RESET".to_owned()));
        }
        let (name, scope) = (name.to_owned(), Scope::Session);
        self.assign("RESET", &Assignment { name, value: None, scope })
    }
}

/// Returns whether a statement reads or writes data, after which the transaction's modes are fixed.
fn has_snapshot(command: &Command) -> bool {
    matches!(
        command,
        Command::Query(_)
            | Command::Explain { .. }
            | Command::Insert(_)
            | Command::CopyIn { .. }
            | Command::CopyOut { .. }
            | Command::Declare { .. }
            | Command::Fetch { .. }
            | Command::Extension(_)
    )
}
