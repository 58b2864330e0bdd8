//! The daemon's log: lines on standard error, for the journal or a terminal.

use anyhow::Context;
use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};

/// Starts logging. Called once.
pub(crate) fn start(config: &LogConfig) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.filter).with_context(|| {
        format!("log = {:?} is no filter; try info or nbd=debug", config.filter)
    })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match config.format {
        LogFormat::Text => lines.with_ansi(false).with_target(false).init(),
        LogFormat::Json => lines.json().init(),
    }
    Ok(())
}
