//! A run: steps planned first, then done one after the other, each recorded as soon as it is over.
//!
//! A suite is a function that makes a [`Plan`] of what it was told and a [`Session`]. Everything
//! else is the same for all: `--dry-run`, progress, the record on disk, `--resume`, Ctrl-C, the
//! guard of memory and that one run has the machine to itself.

mod alone;
mod execute;
mod host;
mod once;
mod options;
mod plan;
mod probes;
mod progress;
mod session;
mod start;
mod steal;

pub(crate) use execute::unix_ms;
pub(crate) use host::describe as describe_host;
pub(crate) use once::make_once;
pub(crate) use options::Options;
pub(crate) use plan::{Cost, Plan, Profile, Skip, Step};
pub(crate) use probes::probe;
pub(crate) use progress::{duration_text, show_part};
pub(crate) use session::Session;
pub(crate) use start::{Chosen, INTERRUPTED_EXIT_CODE, PlannedSuite, start};
