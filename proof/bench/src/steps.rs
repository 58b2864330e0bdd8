//! Each step of the write and read path by itself.

use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds for each step
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
}

pub(crate) fn run(_arguments: &Arguments, _as_json: bool) -> Result<()> {
    Ok(())
}
