//! Role of a daemon that is configured as a standby, before and after its promotion.
//!
//! A file in the state directory records the promotion, so that the daemon does not follow its own
//! images after a power loss, and answers repeated promotion requests. It is written twice: as
//! pending before the pool is marked as promoted, and again afterwards.

use std::path::Path;

use anyhow::Context;
use api::Promotion;
use serde::{Deserialize, Serialize};
use state_file::StateFile;
use volumes::Engine;

use crate::events::unix_seconds;

const FILE_NAME: &str = "promoted.json";

/// Role of the daemon at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Writer.
    Primary,
    /// Writer, although configured as a standby, because it was promoted.
    Promoted,
    /// Standby.
    Standby,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Promoted {
    unix_seconds: u64,
    /// Result of the promotion request.
    #[serde(default)]
    promotion: Option<Promotion>,
    /// The pool was not marked as promoted yet.
    #[serde(default)]
    is_pending: bool,
}

/// Determines the role. If an intact pool that was not promoted here has volumes of its own, it
/// cannot be a standby's, and the start is refused later for that reason.
pub(crate) fn role_at_start(
    is_to_follow: bool,
    state_dir: &Path,
    engine: &Engine,
) -> anyhow::Result<Start> {
    if !is_to_follow {
        return Ok(Start::Primary);
    }
    let known = read(state_dir)?;
    if known.as_ref().is_some_and(|known| !known.is_pending) {
        return Ok(Start::Promoted);
    }
    // The daemon was killed after the promotion and before the file was completed.
    let is_in_order = engine.set_id().is_some() && !engine.is_restoring();
    match known {
        Some(pending) if is_in_order => {
            write(state_dir, Promoted { is_pending: false, ..pending })?;
            Ok(Start::Promoted)
        }
        _ => Ok(Start::Standby),
    }
}

/// Promotion of a writer that was a standby. If the file cannot be read, the daemon still runs.
pub(crate) fn promotion_at_start(state_dir: &Path) -> Option<Promotion> {
    match read(state_dir) {
        Ok(known) => known.filter(|known| !known.is_pending)?.promotion,
        Err(error) => {
            tracing::warn!(
                error = %format!("{error:#}"), "cannot read the record of an earlier promotion"
            );
            None
        }
    }
}

/// Records a promotion before its last step.
pub(crate) fn note_pending(state_dir: &Path, promotion: &Promotion) -> anyhow::Result<()> {
    note(state_dir, promotion, true)
}

/// Records a completed promotion.
pub(crate) fn note_promoted(state_dir: &Path, promotion: &Promotion) -> anyhow::Result<()> {
    note(state_dir, promotion, false)
}

fn note(state_dir: &Path, promotion: &Promotion, is_pending: bool) -> anyhow::Result<()> {
    let promotion = Some(promotion.clone());
    write(state_dir, Promoted { unix_seconds: unix_seconds(), promotion, is_pending })
}

fn read(state_dir: &Path) -> anyhow::Result<Option<Promoted>> {
    let known = StateFile::<Promoted>::open(state_dir.join(FILE_NAME))
        .with_context(|| format!("cannot read {FILE_NAME} in {}", state_dir.display()))?;
    Ok(known.map(|known| known.state().clone()))
}

fn write(state_dir: &Path, state: Promoted) -> anyhow::Result<()> {
    StateFile::create(state_dir.join(FILE_NAME), state)
        .with_context(|| format!("cannot write {FILE_NAME} in {}", state_dir.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promotion() -> Promotion {
        Promotion {
            image: 7,
            saved_unix_seconds: 1_700_000_000,
            lost_seconds: Some(1.5),
            journal_lost_seconds: Some(0.25),
            is_complete: true,
            unmirrored: vec!["scratch".to_owned()],
            replayed_transactions: 3,
            replay_ended: None,
            to_fetch_bytes: 4096,
            guarantees_lost: vec!["db".to_owned()],
            is_repeated: false,
        }
    }

    #[test]
    fn a_promotion_is_told_of_from_its_end_on() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        assert_eq!(promotion_at_start(folder.path()), None);
        note_pending(folder.path(), &promotion()).expect("there is room");
        assert_eq!(promotion_at_start(folder.path()), None);
        note_promoted(folder.path(), &promotion()).expect("there is room");
        assert_eq!(promotion_at_start(folder.path()), Some(promotion()));
    }

    #[test]
    fn a_file_that_says_no_more_than_the_time_is_read() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let text = r#"{"version": 1, "unix_seconds": 5}"#;
        std::fs::write(folder.path().join(FILE_NAME), text).expect("there is room");
        let known = read(folder.path()).expect("it is whole").expect("it is there");
        assert_eq!(known, Promoted { unix_seconds: 5, ..Promoted::default() });
    }
}
