//! Serves one connection after its login: messages in turn.

use std::io;
use std::sync::Arc;

use super::io::{Io, Stream, Unread};
use super::shared::stopped;
use super::state::{Connection, Ending, Portal, Prepared, terminated_error};
use crate::engine::ON_BEHALF_OF;
use crate::error::{SqlError, SqlState};
use crate::statements::{Assignment, Words, split};
use crate::wire::{Answers, Formats, Request, TransactionState};

impl Connection {
    /// Tells the client that it is in, and what it asks of a server first.
    pub(super) fn greet(
        &mut self,
        out: &mut Answers,
        minor_version: u16,
        parameters: &[(String, String)],
    ) {
        if minor_version > 0 {
            out.negotiate_protocol();
        }
        out.authentication_ok();
        let default_time = self.server.limits.statement_time;
        for (name, value) in parameters {
            if name == ON_BEHALF_OF {
                continue;
            }
            let (name, value) = (name.clone(), Some(value.clone()));
            let assignment = Assignment { name, value };
            if let Err(error) = self.variables.set(&assignment, default_time) {
                out.notice(&error);
            }
        }
        self.viewer.set_settings(self.variables.all());
        self.variables.reported().for_each(|(name, value)| out.parameter_status(name, &value));
        out.key_data(self.entry.id, self.entry.secret);
        out.ready(self.transaction);
    }

    /// Serves the client until it goes or the server stops.
    pub(super) async fn serve<S: Stream>(&mut self, io: &mut Io<S>) -> io::Result<()> {
        let bytes_max = self.server.limits.message_bytes;
        let mut stops = self.stops.clone();
        let terminated = self.entry.terminated.clone();
        loop {
            // Clients send several messages and wait for the answers to all.
            if !io.has_input() {
                io.send().await?;
            }
            let request = tokio::select! {
                request = io.request(bytes_max) => request,
                () = stopped(&mut stops) => {
                    let what = "the server stops";
                    io.out.error(&SqlError::new(SqlState::SHUTDOWN, what), "FATAL");
                    return io.send().await;
                }
                () = terminated.cancelled() => {
                    io.out.error(&terminated_error(), "FATAL");
                    return io.send().await;
                }
            };
            let request = match request {
                Ok(request) => request,
                Err(Unread::Closed) => return Ok(()),
                Err(Unread::Invalid(error)) => {
                    io.out.error(&error, "FATAL");
                    return io.send().await;
                }
            };
            if matches!(request, Request::Terminate) {
                return io.send().await;
            }
            match self.answer(io, request).await {
                Ok(()) => {}
                Err(Ending::Closed) => return Ok(()),
                Err(Ending::Failed(error)) => {
                    tracing::debug!(%error, "a SQL statement failed");
                    io.out.error(&error, "ERROR");
                    if self.transaction == TransactionState::Open {
                        self.transaction = TransactionState::Failed;
                    }
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
                    if self.transaction == TransactionState::Open {
                        self.transaction = TransactionState::Failed;
                    }
                }
                io.out.ready(self.transaction);
                Ok(())
            }
            Request::Sync => {
                self.skips = false;
                if self.transaction == TransactionState::Idle {
                    self.portals.clear();
                }
                io.out.ready(self.transaction);
                io.send().await.map_err(|_| Ending::Closed)
            }
            _ if self.skips => Ok(()),
            Request::Parse { name, text, types } => self.parse(io, name, &text, &types).await,
            Request::Bind(bind) => self.bind(io, bind),
            Request::Describe(target) => self.describe(io, &target),
            Request::Execute { portal, rows_max } => self.execute(io, &portal, rows_max).await,
            Request::Close(target) => {
                self.close(&target);
                io.out.close_complete();
                Ok(())
            }
            Request::Flush => io.send().await.map_err(|_| Ending::Closed),
            Request::Login(_) => Err(SqlError::protocol("the login is over").into()),
            // What is left of a copy that failed.
            Request::CopyData | Request::CopyDone | Request::CopyFail | Request::Terminate => {
                Ok(())
            }
        }
    }

    /// The simple protocol: all statements of a text, up to the first that fails.
    async fn query<S: Stream>(&mut self, io: &mut Io<S>, text: &str) -> Result<(), Ending> {
        let statements = split(text)?;
        if statements.is_empty() {
            io.out.empty_query();
        }
        for words in &statements {
            self.query_one(io, words).await?;
        }
        Ok(())
    }

    async fn query_one<S: Stream>(&mut self, io: &mut Io<S>, words: &Words) -> Result<(), Ending> {
        let prepared = Arc::new(self.prepare(words, &[]).await?);
        if let Some(index) = (!prepared.parameters.is_empty()).then_some(1) {
            let what = format!("there is no parameter ${index}");
            return Err(SqlError::new(SqlState("42P02"), what).into());
        }
        let formats = self.simple_formats(&prepared);
        if let Some(schema) = self.schema_of(&prepared)? {
            io.out.row_description(&schema, &formats);
        }
        let mut portal = Portal::new(prepared, Vec::new(), formats);
        self.run_portal(io, &mut portal, usize::MAX).await?;
        Ok(())
    }

    fn simple_formats(&self, prepared: &Prepared) -> Formats {
        let cursor = prepared.cursor().and_then(|name| self.cursors.get(name));
        Formats(cursor.map_or_else(Vec::new, |cursor| vec![cursor.format]))
    }
}
