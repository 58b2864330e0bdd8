//! Start of a former writer as a standby, on the pool that it had (failback).
//!
//! The journal of the former writer must not be replayed after a later promotion, so it is deleted
//! once the pool is a standby's. A file in the state directory records that this is to be done.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use durable_set::OwnClaim;
use serde::{Deserialize, Serialize};
use standby::{Follower, FollowerSpec};
use state_file::StateFile;

use crate::durable::{SetRecord, open_journal_folder};
use crate::events::EventLog;

const FILE_NAME: &str = "rejoining.json";

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rejoining {}

/// Directories of the daemon.
pub(super) struct Places<'it> {
    pub(super) state_dir: &'it Path,
    pub(super) journal_dir: &'it Path,
}

/// Opens the pool of a standby, also if it is still that of a former writer.
pub(super) fn rejoin(
    spec: FollowerSpec,
    places: &Places<'_>,
    events: &EventLog,
) -> anyhow::Result<Follower> {
    let engine = &spec.engine;
    if engine.is_restoring() || engine.set_id().is_none() && engine.volumes().is_empty() {
        let follower = Follower::open(spec)?;
        // Left by a start that was killed.
        if places.file().exists() {
            places.delete_journal()?;
        }
        return Ok(follower);
    }
    let Some(own) = OwnClaim::read(&open_journal_folder(places.journal_dir)?)? else {
        bail!(
            "the pool cannot become a standby's: without the file claim in {} nobody knows \
             whether another daemon has taken over the image store; to copy the whole image \
             instead, delete the file of the pool and the directory of the journal",
            places.journal_dir.display()
        );
    };
    StateFile::create(places.file(), Rejoining::default())
        .with_context(|| format!("cannot write {}", places.file().display()))?;
    let follower = Follower::rejoin(spec, &mut |claims| own.is_taken_over(claims))?;
    let message = "the pool of this former writer follows the image store as a standby; what it \
                   wrote after its last image is discarded";
    events.info("standby_rejoined", None, message.to_owned());
    places.delete_journal()?;
    Ok(follower)
}

impl Places<'_> {
    fn file(&self) -> PathBuf {
        self.state_dir.join(FILE_NAME)
    }

    /// Deletes the files of the journal, then the record that this is to be done.
    fn delete_journal(&self) -> anyhow::Result<()> {
        let dir = self.journal_dir;
        let attempt =
            || format!("cannot delete the journal of the former writer in {}", dir.display());
        SetRecord::remove(self.state_dir).with_context(attempt)?;
        if dir.exists() {
            for entry in fs::read_dir(dir).with_context(attempt)? {
                fs::remove_file(entry.with_context(attempt)?.path()).with_context(attempt)?;
            }
        }
        fs::remove_file(self.file()).with_context(attempt)
    }
}
