//! Start of a former writer as a standby, on the pool that it had (failback), or on its empty pool.
//!
//! The journal of the former writer must not be replayed after a later promotion, so it is deleted
//! once the pool is a standby's. A file in the state directory records that this is to be done.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use durable_set::OwnClaim;
use serde::{Deserialize, Serialize};
use standby::{Follower, FollowerSpec, StandbyError, StandbyErrorKind};
use state_file::StateFile;
use volumes::Engine;

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

/// Pools of former writers that may become a standby's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormerWriter {
    /// Without volumes.
    Empty,
    /// Also with volumes, if another daemon has taken over the store.
    TakenOver,
}

/// Opens the pool of a standby, also if it is still that of a former writer.
pub(super) fn open_pool(
    spec: FollowerSpec,
    allowed: FormerWriter,
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
    // With volumes it fails without changes, and no later start may delete the journal.
    if engine.volumes().is_empty() {
        places.note_rejoining()?;
    }
    match places.settle_journal(engine, Follower::open(spec.clone()))? {
        Err(error)
            if allowed == FormerWriter::TakenOver
                && matches!(error.kind, StandbyErrorKind::NotEmpty | StandbyErrorKind::OwnSet) =>
        {
            rejoin(spec, places, events)
        }
        Err(error) => Err(error.into()),
        Ok(follower) => {
            let message = "the pool of this former writer has no volumes and follows the image \
                           store as a standby";
            events.info("standby_rejoined", None, message.to_owned());
            Ok(follower)
        }
    }
}

fn rejoin(spec: FollowerSpec, places: &Places<'_>, events: &EventLog) -> anyhow::Result<Follower> {
    let Some(own) = OwnClaim::read(&open_journal_folder(places.journal_dir)?)? else {
        bail!(
            "cannot make the pool that of a standby: the file claim is missing in {}, so it is \
             unknown whether another daemon has taken over the image store; to copy the newest \
             image instead, delete the file of the pool and the directory of the journal",
            places.journal_dir.display()
        );
    };
    let engine = Arc::clone(&spec.engine);
    let mut noted = Ok(());
    let opened = Follower::rejoin(spec, &mut |claims| {
        let is_taken_over = own.is_taken_over(claims);
        if is_taken_over {
            noted = places.note_rejoining();
        }
        is_taken_over && noted.is_ok()
    });
    noted?;
    let follower = places.settle_journal(&engine, opened)??;
    let message = "the pool of this former writer follows the image store as a standby; what it \
                   wrote after its last image is discarded";
    events.info("standby_rejoined", None, message.to_owned());
    Ok(follower)
}

impl Places<'_> {
    fn file(&self) -> PathBuf {
        self.state_dir.join(FILE_NAME)
    }

    /// Records that the journal is to be deleted. A later start does so if the pool is a standby's,
    /// or was lost.
    fn note_rejoining(&self) -> anyhow::Result<()> {
        let file = self.file();
        StateFile::create(file.clone(), Rejoining::default())
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(())
    }

    /// Deletes the journal of a former writer whose pool is a standby's now. If the pool stays the
    /// writer's, its journal does too.
    fn settle_journal(
        &self,
        engine: &Engine,
        opened: Result<Follower, StandbyError>,
    ) -> anyhow::Result<Result<Follower, StandbyError>> {
        let file = self.file();
        if opened.is_ok() {
            self.delete_journal()?;
        } else if !engine.is_restoring() && file.exists() {
            // A later start would delete the journal.
            fs::remove_file(&file).with_context(|| format!("cannot delete {}", file.display()))?;
        }
        Ok(opened)
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
