//! One page that shows recorded runs.

use std::path::PathBuf;

use anyhow::{Result, bail};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Folders of runs
    #[arg(required = true, value_name = "DIR")]
    pub(crate) folders: Vec<PathBuf>,
    /// The page to write
    #[arg(long, value_name = "FILE")]
    pub(crate) html: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    bail!("the report of {} runs is not built yet", arguments.folders.len())
}
