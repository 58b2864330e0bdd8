//! Two recorded runs beside each other.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::output::Form;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder of the run that is the measure
    #[arg(value_name = "A")]
    before: PathBuf,
    /// The folder of the run that is compared with it
    #[arg(value_name = "B")]
    after: PathBuf,
}

pub(crate) fn run(arguments: &Arguments, _: Form) -> Result<ExitCode> {
    let (before, after) = (arguments.before.display(), arguments.after.display());
    bail!("comparing {before} with {after} is not built yet")
}
