//! Snapshots and clones.

use api::{CloneCreate, Diff, Problem, ProblemKind, Snapshot, SnapshotCreate};

use crate::service::Service;

impl Service {
    /// All snapshots, or those of one volume.
    pub(crate) fn list_snapshots(&self, volume: Option<&str>) -> Result<Vec<Snapshot>, Problem> {
        volume.map(|name| self.volume(name)).transpose()?;
        Ok(Vec::new())
    }

    pub(crate) fn show_snapshot(&self, name: &str) -> Result<Snapshot, Problem> {
        Err(no_snapshot(name))
    }

    pub(crate) fn create_snapshots(
        &self,
        request: &SnapshotCreate,
    ) -> Result<Vec<Snapshot>, Problem> {
        request.volumes.iter().try_for_each(|name| self.volume(name).map(drop))?;
        Err(not_available("snapshots are"))
    }

    pub(crate) fn delete_snapshot(&self, name: &str) -> Result<(), Problem> {
        Err(no_snapshot(name))
    }

    pub(crate) fn restore_snapshot(&self, name: &str) -> Result<api::Volume, Problem> {
        Err(no_snapshot(name))
    }

    pub(crate) fn diff_snapshot(
        &self,
        name: &str,
        _to: Option<&str>,
        _offset: u64,
    ) -> Result<Diff, Problem> {
        Err(no_snapshot(name))
    }

    pub(crate) fn clone_volume(
        &self,
        name: &str,
        _request: &CloneCreate,
    ) -> Result<api::Volume, Problem> {
        self.volume(name)?;
        Err(not_available("clones are"))
    }
}

fn no_snapshot(name: &str) -> Problem {
    Problem::new(ProblemKind::NotFound, format!("there is no snapshot {name:?}"))
}

pub(super) fn not_available(what: &str) -> Problem {
    let detail = format!("{what} not available in this version");
    Problem::new(ProblemKind::NotSupported, detail)
}
