//! Framework for runs: steps are planned first, then run in order, and recorded individually.
//!
//! A suite is a function that creates a [`Plan`] from its arguments and a [`Session`]. Everything
//! else is common: `--dry-run`, progress, the record on disk, `--resume`, Ctrl-C, the memory check,
//! and mutual exclusion of runs.

mod alone;
mod execute;
mod host;
mod once;
mod options;
mod plan;
#[cfg(test)]
mod planned;
mod probes;
mod progress;
mod session;
mod start;

pub(crate) use execute::unix_ms;
pub(crate) use host::describe as describe_host;
pub(crate) use once::make_once;
pub(crate) use options::Options;
pub(crate) use plan::{Cost, Plan, Profile, Skip, Step, skips_text};
#[cfg(test)]
pub(crate) use planned::parsed;
pub(crate) use probes::probe;
pub(crate) use progress::{duration_text, show_part};
pub(crate) use session::Session;
pub(crate) use start::{Chosen, INTERRUPTED_EXIT_CODE, PlannedSuite, start};
