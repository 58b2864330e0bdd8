//! What a run will do, known before it does anything.

use anyhow::Result;
use results::{Row, Suite};

/// How long and how often: what a run is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Profile {
    /// A smoke test in minutes: not for publication.
    Quick,
    /// Five repeats of enough seconds for intervals that mean something.
    Standard,
    /// The papers' lengths: hours.
    Full,
}

/// What a step takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    pub(crate) written_bytes: u64,
    /// While it runs, over and above what the machine uses already.
    pub(crate) memory_bytes: u64,
}

/// One measurement to be made. Steps run in the order of the plan, which interleaves targets.
pub(crate) struct Step<'plan> {
    pub(crate) suite: Suite,
    /// As in [`Row`]: with `repeat` these name the step, so that a resumed run knows what it has.
    pub(crate) case: String,
    pub(crate) target: String,
    pub(crate) repeat: u32,
    pub(crate) cost: Cost,
    /// Measures. An error becomes an invalid row, unless the run was interrupted.
    pub(crate) measure: Box<dyn FnMut() -> Result<Vec<Row>> + 'plan>,
}

/// All steps of one or more suites.
#[derive(Default)]
pub(crate) struct Plan<'plan> {
    pub(crate) steps: Vec<Step<'plan>>,
}
