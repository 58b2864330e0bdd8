//! Serves one connection after its login, message by message.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::interrupt::Ending;
use super::io::{Io, Stream, Unread};
use super::state::{Connection, Portal, Prepared};
use crate::engine::ON_BEHALF_OF;
use crate::error::{SqlError, SqlState};
use crate::panics::contain_future;
use crate::statements::{Assignment, Scope, Words, split};
use crate::wire::{Answers, Formats, Request, SYNC, TransactionState};

/// Time limit for a client to receive the reason why its connection ends.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(3);

/// Lower-case names of startup parameters whose invalid values are ignored.
const OF_ENVIRONMENT: &[&str] = &["client_encoding", "timezone"];

/// Sends the client the reason why its connection ends, unless the client stops reading.
async fn say_farewell<S: Stream>(io: &mut Io<S>, error: &SqlError) -> io::Result<()> {
    io.out.error(error, "FATAL");
    match tokio::time::timeout(FAREWELL_TIME_MAX, io.send()).await {
        Ok(sent) => sent,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

impl Connection {
    /// Sends the messages that follow a successful login, and applies the client's startup
    /// parameters.
    ///
    /// # Errors
    /// A startup parameter is invalid.
    pub(super) fn greet(
        &mut self,
        out: &mut Answers,
        minor_version: u16,
        parameters: &[(String, String)],
    ) -> Result<(), SqlError> {
        let mut notices = Vec::new();
        for (name, value) in parameters {
            if name == ON_BEHALF_OF {
                continue;
            }
            let (name, value) = (name.clone(), Some(value.clone()));
            let assignment = Assignment { name, value, scope: Scope::Session };
            match self.variables.set(&assignment) {
                Ok(_) => {}
                // Clients send these by themselves, according to their terminal or program.
                Err(error) if OF_ENVIRONMENT.contains(&assignment.name.as_str()) => {
                    notices.push(error);
                }
                Err(error) => return Err(error),
            }
        }
        self.variables.begin_session();
        if minor_version > 0 {
            out.negotiate_protocol();
        }
        out.authentication_ok();
        notices.iter().for_each(|it| out.notice(it));
        self.viewer.set_settings(self.variables.all());
        for (name, value) in self.variables.reported() {
            out.parameter_status(name, &value);
            self.told.push(value);
        }
        out.key_data(self.entry.id, self.entry.secret);
        out.ready(self.transaction);
        Ok(())
    }

    /// Serves the client until it disconnects or the server stops.
    pub(super) async fn serve<S: Stream>(&mut self, io: &mut Io<S>) -> io::Result<()> {
        let bytes_max = self.server.limits.message_bytes;
        let ends = self.ends();
        loop {
            // Clients may pipeline messages and wait for all responses together.
            if !io.has_input() {
                self.entry.rest();
                match ends.send(io).await {
                    Ok(()) => {}
                    Err(Ending::Closed) => return Ok(()),
                    Err(Ending::Failed(error)) => return say_farewell(io, &error).await,
                }
            }
            let request = tokio::select! {
                request = io.request(bytes_max) => request,
                error = ends.come() => return say_farewell(io, &error).await,
            };
            let request = match request {
                Ok(request) => request,
                Err(Unread::Closed) => return Ok(()),
                Err(Unread::Invalid(error)) => return say_farewell(io, &error).await,
            };
            if matches!(request, Request::Terminate) {
                return Ok(());
            }
            match self.answer(io, request).await {
                Ok(()) => {}
                Err(Ending::Closed) => return Ok(()),
                Err(Ending::Failed(error)) => {
                    tracing::debug!(%error, "a SQL statement failed");
                    io.out.error(&error, "ERROR");
                    self.fail_transaction();
                    self.skips = true;
                }
            }
        }
    }

    async fn answer<S: Stream>(&mut self, io: &mut Io<S>, request: Request) -> Result<(), Ending> {
        match request {
            Request::Query(text) => {
                self.skips = false;
                let answered = self.query(io, &text).await;
                if let Err(Ending::Closed) = answered {
                    return answered;
                }
                if let Err(Ending::Failed(error)) = answered {
                    io.out.error(&error, "ERROR");
                    self.fail_transaction();
                }
                self.tell_settings(&mut io.out);
                io.out.ready(self.transaction);
                self.entry.rest();
                Ok(())
            }
            Request::Sync => {
                self.skips = false;
                match self.sync(io).await {
                    Ok(()) => {}
                    Err(Ending::Closed) => return Err(Ending::Closed),
                    Err(Ending::Failed(error)) => {
                        io.out.error(&error, "ERROR");
                        self.fail_transaction();
                    }
                }
                self.tell_settings(&mut io.out);
                io.out.ready(self.transaction);
                self.entry.rest();
                self.ends().send(io).await
            }
            _ if self.skips => Ok(()),
            Request::Parse { name, text, types } => self.parse(io, name, &text, &types).await,
            Request::Bind(bind) => self.bind(io, bind),
            Request::Describe(target) => self.describe(io, &target),
            Request::Execute { portal, rows_max } => {
                // If a Sync follows, commit here what it would commit.
                self.is_last = io.next_kind() == Some(SYNC);
                self.is_of_several = false;
                self.execute(io, &portal, rows_max).await
            }
            Request::Close(target) => {
                self.close(&target);
                io.out.close_complete();
                Ok(())
            }
            Request::Flush => self.ends().send(io).await,
            Request::Login(_) => {
                Err(SqlError::protocol("unexpected password message after authentication").into())
            }
            // Remainder of a failed COPY.
            Request::CopyData(_)
            | Request::CopyDone
            | Request::CopyFail(_)
            | Request::Terminate => Ok(()),
        }
    }

    /// Simple query protocol: runs all statements of a text, up to the first that fails.
    async fn query<S: Stream>(&mut self, io: &mut Io<S>, text: &str) -> Result<(), Ending> {
        let statements = split(text)?;
        if statements.is_empty() {
            io.out.empty_query();
        }
        self.is_of_several = statements.len() > 1;
        for (index, words) in statements.iter().enumerate() {
            self.is_last = index + 1 == statements.len();
            self.query_one(io, words).await?;
        }
        Ok(())
    }

    /// Ends the implicit transaction of the messages before a Sync.
    async fn sync<S: Stream>(&mut self, io: &mut Io<S>) -> Result<(), Ending> {
        if self.transaction != TransactionState::Idle {
            return Ok(());
        }
        self.portals.clear();
        if !self.work.has_inserted() {
            return Ok(contain_future(self.commit_work()).await?);
        }
        let entry = Arc::clone(&self.entry);
        let running = entry.begin("COMMIT");
        let time_max = self.variables.statement_time();
        let interrupt = self.interrupt(&running, time_max, Instant::now());
        interrupt.unless(io, contain_future(self.commit_work())).await
    }

    async fn query_one<S: Stream>(&mut self, io: &mut Io<S>, words: &Words) -> Result<(), Ending> {
        let begun = Instant::now();
        let prepared = Arc::new(self.prepare_unless(io, (words, &[]), begun).await?);
        if let Some(index) = (!prepared.parameters.is_empty()).then_some(1) {
            let what = format!("there is no parameter ${index}");
            return Err(SqlError::new(SqlState("42P02"), what).into());
        }
        let formats = self.simple_formats(&prepared);
        if let Some(schema) = self.schema_of(&prepared)? {
            io.out.row_description(&schema, &formats);
        }
        let mut portal = Portal::new(prepared, Vec::new(), formats);
        self.run_portal(io, &mut portal, (usize::MAX, begun)).await?;
        Ok(())
    }

    fn simple_formats(&self, prepared: &Prepared) -> Formats {
        let cursor = prepared.cursor().and_then(|name| self.cursors.get(name));
        Formats(cursor.map_or_else(Vec::new, |cursor| vec![cursor.format]))
    }
}
