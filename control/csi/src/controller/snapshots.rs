//! Snapshots. Their ids are the daemon's `VOLUME@SNAPSHOT`, with names derived from the cluster's.

use tonic::Status;

use super::pages::page;
use crate::daemon::no_volume;
use crate::driver::Driver;
use crate::names::{is_group, own_name};
use crate::wire::{
    CreateSnapshotRequest, Instant, ListSnapshotsAnswer, ListSnapshotsRequest, Nothing, Snapshot,
    SnapshotAnswer, SnapshotId,
};

impl Driver {
    pub(crate) fn create_snapshot(
        &self,
        request: CreateSnapshotRequest,
    ) -> Result<SnapshotAnswer, Status> {
        let name = own_name(&request.name)?;
        let volume = request.source_volume_id;
        if volume.is_empty() {
            return Err(Status::invalid_argument("the request has no volume id"));
        }
        let _guard = self.busy.begin(&format!("@{name}"))?;
        let found = self.snapshots_of_driver()?.into_iter().find(|it| it.snapshot == name);
        let snapshot = match found {
            Some(found) if found.volume == volume => found,
            Some(found) => {
                let why = format!("a snapshot of this name already exists: {:?}", found.name);
                return Err(Status::already_exists(why));
            }
            None => {
                self.daemon.known_volume(&volume)?;
                self.write_back(&volume)?;
                self.daemon.take_snapshot(&volume, &name)?
            }
        };
        Ok(SnapshotAnswer { snapshot: Some(describe(&snapshot)) })
    }

    /// Deletes an unused snapshot. Succeeds if it does not exist.
    pub(crate) fn delete_snapshot(&self, request: SnapshotId) -> Result<Nothing, Status> {
        let name = named(&request)?;
        let _guard = self.busy.begin(name)?;
        if self.daemon.snapshot(name)?.is_some() {
            self.daemon.delete_snapshot(name)?;
        }
        Ok(Nothing {})
    }

    pub(crate) fn show_snapshot(&self, request: SnapshotId) -> Result<SnapshotAnswer, Status> {
        let name = named(&request)?;
        let snapshot = self
            .daemon
            .snapshot(name)?
            .ok_or_else(|| Status::not_found(format!("no snapshot {name:?} on this node")))?;
        Ok(SnapshotAnswer { snapshot: Some(describe(&snapshot)) })
    }

    pub(crate) fn list_snapshots(
        &self,
        request: ListSnapshotsRequest,
    ) -> Result<ListSnapshotsAnswer, Status> {
        let mut snapshots = self.snapshots_of_driver()?;
        let (id, source) = (&request.snapshot_id, &request.source_volume_id);
        snapshots.retain(|it| id.is_empty() || it.name == *id);
        snapshots.retain(|it| source.is_empty() || it.volume == *source);
        snapshots.sort_by(|one, other| one.name.cmp(&other.name));
        let (snapshots, next_token) =
            page(snapshots, |it| &it.name, request.max_entries, &request.starting_token)?;
        let entry = |it: &api::Snapshot| SnapshotAnswer { snapshot: Some(describe(it)) };
        Ok(ListSnapshotsAnswer { entries: snapshots.iter().map(entry).collect(), next_token })
    }

    /// Returns the snapshots of the driver's volumes, including those that other tools took.
    pub(super) fn snapshots_of_driver(&self) -> Result<Vec<api::Snapshot>, Status> {
        let volumes = self.daemon.volumes()?;
        let is_known = |name: &String| volumes.binary_search_by(|it| it.name.cmp(name)).is_ok();
        let mut snapshots = self.daemon.snapshots()?;
        snapshots.retain(|snapshot| is_known(&snapshot.volume));
        Ok(snapshots)
    }

    /// Writes the kernel's dirty pages of a volume's file system to the volume, so that a snapshot
    /// or clone contains all earlier writes, flushed or not.
    pub(super) fn write_back(&self, volume: &str) -> Result<(), Status> {
        let volume = self.daemon.volume(volume)?.ok_or_else(|| no_volume(volume))?;
        match volume.device {
            Some(device) => crate::node::write_back(&device),
            None => Ok(()),
        }
    }
}

fn named(request: &SnapshotId) -> Result<&str, Status> {
    match request.snapshot_id.as_str() {
        "" => Err(Status::invalid_argument("the request has no snapshot id")),
        name => Ok(name),
    }
}

pub(super) fn describe(snapshot: &api::Snapshot) -> Snapshot {
    Snapshot {
        size_bytes: snapshot.size_bytes.cast_signed(),
        snapshot_id: snapshot.name.clone(),
        source_volume_id: snapshot.volume.clone(),
        creation_time: Some(Instant { seconds: snapshot.created_unix_seconds.cast_signed() }),
        ready_to_use: true,
        group_snapshot_id: match is_group(&snapshot.snapshot) {
            true => snapshot.snapshot.clone(),
            false => String::new(),
        },
    }
}
