//! Records that a connection reads for its subscription, as fast as its client takes the rows: the
//! log, or a snapshot of the current values. One step at a time, on a thread that may wait.

mod log;
mod values;

use std::sync::Arc;

use sql::SqlError;

use super::points::Start;
use super::subscriber::{Subscriber, Task};

pub(super) use log::LogFill;
pub(super) use values::ValuesFill;

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// There may be rows; then there is more to read.
    More,
    /// The next record of a replay is due in so many milliseconds.
    Later(u64),
    /// A worker takes over, or it has ended.
    Done,
}

#[derive(Debug)]
pub(super) enum Fill {
    Log(LogFill),
    Values(ValuesFill),
}

impl Fill {
    /// For a subscription that is to be filled, at its beginning from `start`.
    pub(super) fn new(subscriber: &Arc<Subscriber>, task: Task) -> Self {
        match task {
            Task::Log => Self::Log(LogFill::onward(subscriber)),
            Task::LogAgain => Self::Log(LogFill::again(subscriber)),
            Task::Values => Self::Values(ValuesFill::new(subscriber)),
        }
    }

    pub(super) fn from_start(subscriber: &Arc<Subscriber>, start: &Start) -> Self {
        Self::Log(LogFill::new(subscriber, start))
    }

    pub(super) fn step(&mut self, subscriber: &Arc<Subscriber>) -> Result<Filled, SqlError> {
        match self {
            Self::Log(fill) => fill.step(subscriber),
            Self::Values(fill) => fill.step(subscriber),
        }
    }
}
