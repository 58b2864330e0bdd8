//! Snapshots and clones: creation, listing, comparison, restoring and deletion.

use std::sync::Arc;

use api::{
    ChangedRange, CloneCreate, Diff, Problem, ProblemKind, Snapshot, SnapshotCreate, SnapshotPatch,
};
use block_device::{BlockDevice, ByteRange, ChangeKind};
use volumes::{Durability, Volume, VolumeError, VolumeName};

use crate::events::unix_seconds;
use crate::service::volumes::parse_name;
use crate::service::words::EngineWord;
use crate::service::{Ownership, Service};

/// Maximum number of runs in a response. The client requests further ones by offset.
const DIFF_RUN_COUNT_MAX: usize = 10_000;

impl Service {
    /// Lists all snapshots, or those of one volume, by volume and age.
    pub(crate) fn list_snapshots(&self, volume: Option<&str>) -> Result<Vec<Snapshot>, Problem> {
        let mut snapshots = match volume {
            Some(name) => self.engine.snapshots_of(&*self.volume(name)?),
            None => self.engine.snapshots(),
        };
        let volume_of = |snapshot: &Volume| own_names(snapshot).0;
        snapshots.sort_by_key(|it| (volume_of(it), it.created_unix_seconds(), it.id()));
        Ok(snapshots.iter().map(|snapshot| self.describe_snapshot(snapshot)).collect())
    }

    pub(crate) fn show_snapshot(&self, name: &str) -> Result<Snapshot, Problem> {
        Ok(self.describe_snapshot(&*self.snapshot(name)?))
    }

    pub(crate) fn create_snapshots(
        &self,
        request: &SnapshotCreate,
    ) -> Result<Vec<Snapshot>, Problem> {
        let name = name_of_snapshot(&request.snapshot)?;
        if request.volumes.is_empty() {
            let problem = Problem::new(ProblemKind::InvalidField, "no volume given");
            return Err(problem.in_field("volumes"));
        }
        let volumes: Vec<&str> = request.volumes.iter().map(String::as_str).collect();
        let _locked = self.changes.lock(volumes.iter().copied());
        let made = self
            .durable()?
            .set()
            .create_snapshots(&volumes, &name, unix_seconds())
            .map_err(|error| self.refusal(error))?;
        for snapshot in &made {
            tracing::info!(snapshot = snapshot.name(), "snapshot taken");
            self.catalog.add(Arc::clone(snapshot));
        }
        Ok(made.iter().map(|snapshot| self.describe_snapshot(snapshot)).collect())
    }

    pub(crate) fn rename_snapshot(
        &self,
        name: &str,
        request: &SnapshotPatch,
    ) -> Result<Snapshot, Problem> {
        let new_name = name_of_snapshot(&request.snapshot)?;
        self.await_closing(&*self.snapshot(name)?);
        let _locked = self.changes.lock([name]);
        let snapshot = self.snapshot(name)?;
        let user = self.nbd_user_of(&snapshot).or_else(|| self.export_user_of(&snapshot));
        if let Some(user) = user {
            let detail = format!("snapshot {name:?} cannot be renamed: {user}");
            return Err(Problem::new(ProblemKind::InUse, detail));
        }
        let (volume, own_name) = own_names(&snapshot);
        let renamed = self.durable()?.set().rename_snapshot(&volume, &own_name, &new_name);
        let noted = self.made(renamed).map_err(|problem| problem.in_field("snapshot"))?;
        self.note_attached_name(&snapshot);
        tracing::info!(snapshot = name, new_name = snapshot.name(), "snapshot renamed");
        noted?;
        Ok(self.describe_snapshot(&snapshot))
    }

    pub(crate) fn delete_snapshot(&self, name: &str) -> Result<(), Problem> {
        self.await_closing(&*self.snapshot(name)?);
        let _locked = self.changes.lock([name]);
        let snapshot = self.snapshot(name)?;
        if let Some(user) = self.user_of(&snapshot) {
            let detail = format!("snapshot {name:?} cannot be deleted: {user}");
            return Err(Problem::new(ProblemKind::InUse, detail));
        }
        let (volume, own_name) = own_names(&snapshot);
        let noted = self.made(self.durable()?.set().delete_snapshot(&volume, &own_name))?;
        self.catalog.remove(snapshot.id());
        self.usages.forget(snapshot.id());
        tracing::info!(snapshot = name, "snapshot deleted");
        noted
    }

    /// Restores a volume to a snapshot. File systems on the volume must not be mounted.
    pub(crate) fn restore_snapshot(
        &self,
        name: &str,
        ownership: Ownership,
    ) -> Result<api::Volume, Problem> {
        let (volume, noted) = {
            self.await_closing(&*self.volume(&own_names(&*self.snapshot(name)?).0)?);
            let _locked = self.changes.lock([name]);
            let snapshot = self.snapshot(name)?;
            let (volume_name, own_name) = own_names(&snapshot);
            let volume = self.volume(&volume_name)?;
            if let Some(user) = self.user_of(&volume) {
                let detail = format!("volume {volume_name:?} cannot be restored: {user}");
                return Err(Problem::new(ProblemKind::InUse, detail));
            }
            let _away = self.keep_owner_away(&volume, "restored", ownership)?;
            let restored = self.durable()?.set().restore_snapshot(&volume_name, &own_name);
            (volume, self.made(restored)?)
        };
        self.usages.forget(volume.id());
        self.catalog.note_changed(volume.id());
        tracing::info!(snapshot = name, "volume restored from a snapshot");
        self.note_new_contents(&volume);
        noted?;
        Ok(self.describe(&volume))
    }

    pub(crate) fn clone_volume(
        &self,
        name: &str,
        request: &CloneCreate,
    ) -> Result<api::Volume, Problem> {
        let new_name = parse_name(&request.name)?;
        let (clone, noted) = {
            let _locked = self.changes.lock([name, request.name.as_str()]);
            self.volume(name)?;
            let cloned = self.durable()?.set().clone_volume(name, new_name);
            let (clone, noted) = self.created(cloned, &request.name)?;
            self.catalog.add(Arc::clone(&clone));
            (clone, noted)
        };
        tracing::info!(source = name, volume = request.name, "volume cloned");
        self.note_new_contents(&clone);
        noted?;
        Ok(self.describe(&clone))
    }

    /// Compares the snapshot with `to`, by default the current volume, from `offset` on.
    pub(crate) fn diff_snapshot(
        &self,
        name: &str,
        to: Option<&str>,
        offset: u64,
    ) -> Result<Diff, Problem> {
        let from = self.snapshot(name)?;
        let (volume_name, _) = own_names(&from);
        let to_name = to.unwrap_or(&volume_name);
        let to = self.volume(to_name).map_err(|problem| problem.in_field("to"))?;
        let size_bytes = to.geometry().size_bytes;
        let range = ByteRange::new(offset, size_bytes.saturating_sub(offset));
        let runs = self.engine.diff(&from, &to, range, DIFF_RUN_COUNT_MAX).map_err(|error| {
            Problem::new(ProblemKind::HostFailed, format!("cannot compare: {error}"))
        })?;
        let end = runs.last().map_or(size_bytes, |run| run.range.start + run.range.length);
        let is_changed = runs.iter().filter(|run| run.kind == ChangeKind::Changed);
        Ok(Diff {
            from: name.to_owned(),
            to: to_name.to_owned(),
            changed: is_changed
                .map(|run| ChangedRange { offset: run.range.start, length: run.range.length })
                .collect(),
            next_offset: (end < size_bytes).then_some(end),
        })
    }

    /// Requests an image for new contents of a volume that no flush has made durable.
    fn note_new_contents(&self, volume: &Volume) {
        if volume.durability() == Durability::Journal {
            self.want_image();
        }
    }

    fn snapshot(&self, name: &str) -> Result<Arc<Volume>, Problem> {
        let found = self.volume(name).ok().filter(|volume| volume.is_snapshot());
        found.ok_or_else(|| {
            let advice = match name.contains('@') {
                true => "memlane snapshot list shows all",
                false => "snapshot names are VOLUME@SNAPSHOT",
            };
            let detail = format!("no snapshot {name:?}; {advice}");
            Problem::new(ProblemKind::NotFound, detail)
        })
    }

    fn describe_snapshot(&self, snapshot: &Volume) -> Snapshot {
        let name = snapshot.name();
        let (volume, own_name) = own_names(snapshot);
        let geometry = snapshot.geometry();
        let device = self.device_of(snapshot);
        Snapshot {
            volume,
            snapshot: own_name,
            id: snapshot.id(),
            created_unix_seconds: snapshot.created_unix_seconds(),
            size_bytes: geometry.size_bytes,
            sector_bytes: geometry.sector.to_interface(),
            written_bytes: snapshot.written_bytes(),
            ram_bytes: self.usage_of(snapshot).ram_bytes,
            device,
            nbd_uri: self.nbd.as_ref().map(|nbd| nbd.uri_of(&name)),
            nbd_connections: self.nbd_connection_count_of(snapshot) as u64,
            ring_clients: self.ring.client_count_of(snapshot) as u64,
            name,
        }
    }
}

/// Parses the name of a snapshot, without that of its volume.
fn name_of_snapshot(name: &str) -> Result<VolumeName, Problem> {
    name.parse().map_err(|error: VolumeError| {
        let detail = format!("snapshot {name:?}: {}", error.kind);
        Problem::new(ProblemKind::InvalidField, detail).in_field("snapshot")
    })
}

/// Splits the name of a snapshot into the volume's name and its own name.
fn own_names(snapshot: &Volume) -> (String, String) {
    let name = snapshot.name();
    match name.split_once('@') {
        Some((volume, own_name)) => (volume.to_owned(), own_name.to_owned()),
        None => (name, String::new()),
    }
}
