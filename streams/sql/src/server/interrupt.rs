//! What ends a statement before its end: its client, its time, or the end of the server.

use std::time::{Duration, Instant};

use datafusion::arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use tokio::sync::watch;
use tokio::task::unconstrained;
use tokio_util::sync::CancellationToken;

use super::io::{Io, Stream};
use super::shared::stopped;
use super::state::{Ending, terminated_error};
use crate::error::{SqlError, SqlState};

/// What ends a statement early.
pub(super) struct Interrupt {
    pub(super) token: CancellationToken,
    pub(super) terminated: CancellationToken,
    pub(super) time_max: Option<Duration>,
    pub(super) begun: Instant,
    pub(super) stops: watch::Receiver<bool>,
}

impl Interrupt {
    async fn come(&self) -> SqlError {
        let mut stops = self.stops.clone();
        let too_long = async {
            match self.time_max {
                Some(time) => tokio::time::sleep_until((self.begun + time).into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.token.cancelled() => {
                let what = "canceling statement due to user request";
                SqlError::new(SqlState::CANCELLED, what)
            }
            () = self.terminated.cancelled() => terminated_error(),
            () = too_long => {
                let what = "canceling statement due to statement timeout";
                SqlError::new(SqlState::CANCELLED, what)
            }
            () = stopped(&mut stops) => {
                SqlError::new(SqlState::SHUTDOWN, "the server stops")
            }
        }
    }

    /// Does the work, unless something comes before its end.
    pub(super) async fn unless<T, S: Stream>(
        &self,
        io: &mut Io<S>,
        work: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, Ending> {
        tokio::select! {
            biased;
            done = work => done.map_err(Ending::Failed),
            // Also where the work has used up what the runtime gives a task for one turn.
            error = unconstrained(self.come()) => Err(Ending::Failed(error)),
            () = unconstrained(io.closed()) => Err(Ending::Closed),
        }
    }

    pub(super) async fn send<S: Stream>(&self, io: &mut Io<S>) -> Result<(), Ending> {
        tokio::select! {
            biased;
            sent = io.send() => sent.map_err(|_| Ending::Closed),
            error = unconstrained(self.come()) => Err(Ending::Failed(error)),
        }
    }
}

pub(super) fn of_arrow(error: ArrowError) -> Ending {
    SqlError::from(DataFusionError::from(error)).into()
}
