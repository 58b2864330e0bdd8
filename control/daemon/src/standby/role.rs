//! Role of a daemon that is configured to follow: until it was promoted, and from then on.
//!
//! A file in the state directory says that it was promoted, so that it does not follow its own
//! images after a loss of power.

use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use state_file::StateFile;
use volumes::Engine;

use crate::events::unix_seconds;

const FILE_NAME: &str = "promoted.json";

/// Role that a start takes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// It writes.
    Primary,
    /// It writes although it is configured to follow: it was promoted.
    Promoted,
    /// It follows.
    Standby,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Promoted {
    unix_seconds: u64,
}

/// Decides on the role. A pool that is in order is right, whatever the configuration says.
pub(crate) fn role_at_start(
    is_to_follow: bool,
    state_dir: &Path,
    engine: &Engine,
) -> anyhow::Result<Start> {
    if !is_to_follow {
        return Ok(Start::Primary);
    }
    let path = state_dir.join(FILE_NAME);
    let known = StateFile::<Promoted>::open(path)
        .with_context(|| format!("cannot read {FILE_NAME} in {}", state_dir.display()))?;
    if known.is_some() {
        return Ok(Start::Promoted);
    }
    // A kill came between the promotion and its file.
    if engine.set_id().is_some() && !engine.is_restoring() {
        note_promoted(state_dir)?;
        return Ok(Start::Promoted);
    }
    Ok(Start::Standby)
}

/// Notes that this daemon writes from now on.
pub(crate) fn note_promoted(state_dir: &Path) -> anyhow::Result<()> {
    let state = Promoted { unix_seconds: unix_seconds() };
    StateFile::create(state_dir.join(FILE_NAME), state)
        .with_context(|| format!("cannot write {FILE_NAME} in {}", state_dir.display()))?;
    Ok(())
}
