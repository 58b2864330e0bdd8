//! Reads that a connection performs for its subscription, as fast as its client takes the rows: of
//! the log, or of a snapshot of the current values. Steps run on a thread that may block.

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
    /// Rows may be available. More remains to be read.
    More,
    /// The next record of a replay is due in this number of milliseconds.
    Later(u64),
    /// A worker takes over, or the subscription has ended.
    Done,
}

#[derive(Debug)]
pub(super) enum Fill {
    Log(LogFill),
    Values(ValuesFill),
}

impl Fill {
    /// Creates a read for a task. A new subscription to a log uses `from_start` instead.
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
