//! Interrupts that end a statement early: cancellation, timeout, disconnect, or shutdown.

use std::time::{Duration, Instant};

use datafusion::arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use tokio::sync::watch;
use tokio::task::unconstrained;
use tokio_util::sync::CancellationToken;

use super::io::{Io, Stream, Unread};
use super::shared::stopped;
use crate::error::{SqlError, SqlState};
use crate::wire::Request;

/// Reason why a statement ended early.
pub(super) enum Ending {
    Failed(SqlError),
    /// The client has disconnected.
    Closed,
}

impl From<SqlError> for Ending {
    fn from(error: SqlError) -> Self {
        Self::Failed(error)
    }
}

/// Events that end a connection regardless of its client: termination and shutdown.
#[derive(Clone)]
pub(super) struct Ends {
    pub(super) terminated: CancellationToken,
    pub(super) stops: watch::Receiver<bool>,
}

impl Ends {
    /// Waits for such an event, and returns its error.
    pub(super) async fn come(&self) -> SqlError {
        let mut stops = self.stops.clone();
        tokio::select! {
            () = self.terminated.cancelled() => terminated_error(),
            () = stopped(&mut stops) => {
                SqlError::new(SqlState::SHUTDOWN, "the database system is shutting down")
            }
        }
    }

    /// Sends pending output, unless such an event occurs first.
    pub(super) async fn send<S: Stream>(&self, io: &mut Io<S>) -> Result<(), Ending> {
        tokio::select! {
            biased;
            sent = io.send() => sent.map_err(|_| Ending::Closed),
            error = unconstrained(self.come()) => Err(Ending::Failed(error)),
        }
    }
}

/// Interrupts of one statement.
pub(super) struct Interrupt {
    pub(super) token: CancellationToken,
    pub(super) ends: Ends,
    pub(super) time_max: Option<Duration>,
    pub(super) begun: Instant,
}

impl Interrupt {
    async fn come(&self) -> SqlError {
        let too_long = async {
            match self.time_max {
                Some(time) => tokio::time::sleep_until((self.begun + time).into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.token.cancelled() => cancelled_error(),
            error = self.ends.come() => error,
            () = too_long => timeout_error(),
        }
    }

    /// Fails if an interrupt has occurred. Needed for work that never yields.
    fn check(&self) -> Result<(), SqlError> {
        if self.token.is_cancelled() {
            return Err(cancelled_error());
        }
        match self.time_max.is_some_and(|it| self.begun.elapsed() >= it) {
            true => Err(timeout_error()),
            false => Ok(()),
        }
    }

    /// Runs the work, unless an interrupt occurs first.
    pub(super) async fn unless<T, S: Stream>(
        &self,
        io: &mut Io<S>,
        work: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, Ending> {
        self.check()?;
        tokio::select! {
            biased;
            done = work => done.map_err(Ending::Failed),
            // Unconstrained, so that it is polled even if the work has used up the task's
            // cooperative budget.
            error = unconstrained(self.come()) => Err(Ending::Failed(error)),
            () = unconstrained(io.closed()) => Err(Ending::Closed),
        }
    }

    /// Receives the next message, unless an interrupt occurs first.
    pub(super) async fn request<S: Stream>(
        &self,
        io: &mut Io<S>,
        bytes_max: usize,
    ) -> Result<Request, Ending> {
        self.check()?;
        tokio::select! {
            biased;
            request = io.request(bytes_max) => request.map_err(|unread| match unread {
                Unread::Closed => Ending::Closed,
                Unread::Invalid(error) => Ending::Failed(error),
            }),
            error = unconstrained(self.come()) => Err(Ending::Failed(error)),
        }
    }

    /// Sends pending output, unless an interrupt occurs first.
    pub(super) async fn send<S: Stream>(&self, io: &mut Io<S>) -> Result<(), Ending> {
        self.check()?;
        tokio::select! {
            biased;
            sent = io.send() => sent.map_err(|_| Ending::Closed),
            error = unconstrained(self.come()) => Err(Ending::Failed(error)),
        }
    }
}

fn terminated_error() -> SqlError {
    let what = "terminating connection due to administrator command";
    SqlError::new(SqlState::SHUTDOWN, what)
}

fn cancelled_error() -> SqlError {
    SqlError::new(SqlState::CANCELLED, "canceling statement due to user request")
}

fn timeout_error() -> SqlError {
    SqlError::new(SqlState::CANCELLED, "canceling statement due to statement timeout")
}

pub(super) fn of_arrow(error: ArrowError) -> Ending {
    SqlError::from(DataFusionError::from(error)).into()
}
