//! The load generator fio: its jobs, runs and JSON output.

mod job;
mod outcome;
mod run;

pub(crate) use job::access_arguments;
pub use job::{Amount, Contents, FileEngine, Job, Pattern, Starts};
pub use outcome::{Malformed, Outcome, parse};
pub(crate) use run::verify;
pub use run::{command_line, engines, run};
