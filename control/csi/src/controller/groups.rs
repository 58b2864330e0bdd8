//! Group snapshots: consistent snapshots of several volumes, which share the name after the `@`.

use std::collections::BTreeSet;

use tonic::Status;

use super::snapshots::describe;
use crate::capability::capabilities;
use crate::driver::Driver;
use crate::names::group_name;
use crate::wire::{
    Capabilities, CreateGroupRequest, GroupAnswer, GroupId, GroupSnapshot, Instant, Nothing, group,
};

impl Driver {
    pub(crate) fn group_capabilities(&self, _: Nothing) -> Result<Capabilities, Status> {
        Ok(capabilities(&[group::CREATE_DELETE_GET]))
    }

    pub(crate) fn create_group(&self, request: CreateGroupRequest) -> Result<GroupAnswer, Status> {
        let name = group_name(&request.name)?;
        let volumes: BTreeSet<String> = request.source_volume_ids.into_iter().collect();
        if volumes.is_empty() || volumes.contains("") {
            return Err(Status::invalid_argument("the request has no volume ids"));
        }
        let _guard = self.busy.begin(&format!("@{name}"))?;
        let mut snapshots = self.members(&name)?;
        if snapshots.is_empty() {
            for volume in &volumes {
                self.daemon.known_volume(volume)?;
                self.write_back(volume)?;
            }
            snapshots = self.daemon.take_snapshots(&volumes, &name)?;
        }
        let found: BTreeSet<String> = snapshots.iter().map(|it| it.volume.clone()).collect();
        if found != volumes {
            let why = format!(
                "a group snapshot of this name already exists, with the volumes \
                               {found:?}"
            );
            return Err(Status::already_exists(why));
        }
        Ok(answer(&name, &snapshots))
    }

    /// Deletes all snapshots of a group. Missing ones are ignored.
    pub(crate) fn delete_group(&self, request: GroupId) -> Result<Nothing, Status> {
        let name = named(&request)?;
        let _guard = self.busy.begin(&format!("@{name}"))?;
        for snapshot in self.checked_members(&request)? {
            self.daemon.delete_snapshot(&snapshot.name)?;
        }
        Ok(Nothing {})
    }

    pub(crate) fn show_group(&self, request: GroupId) -> Result<GroupAnswer, Status> {
        let name = named(&request)?;
        let snapshots = self.checked_members(&request)?;
        if snapshots.is_empty() {
            return Err(Status::not_found(format!("no group snapshot {name:?} on this node")));
        }
        Ok(answer(name, &snapshots))
    }

    fn members(&self, group: &str) -> Result<Vec<api::Snapshot>, Status> {
        let mut snapshots = self.snapshots_of_driver()?;
        snapshots.retain(|snapshot| snapshot.snapshot == group);
        Ok(snapshots)
    }

    /// Returns the snapshots of a group. Fails if the request lists other snapshots.
    fn checked_members(&self, request: &GroupId) -> Result<Vec<api::Snapshot>, Status> {
        let name = &request.group_snapshot_id;
        let suffix = format!("@{name}");
        if let Some(other) = request.snapshot_ids.iter().find(|id| !id.ends_with(&suffix)) {
            let why = format!("snapshot {other:?} does not belong to the group snapshot {name:?}");
            return Err(Status::invalid_argument(why));
        }
        self.members(name)
    }
}

fn named(request: &GroupId) -> Result<&str, Status> {
    match request.group_snapshot_id.as_str() {
        "" => Err(Status::invalid_argument("the request has no group snapshot id")),
        name => Ok(name),
    }
}

fn answer(name: &str, snapshots: &[api::Snapshot]) -> GroupAnswer {
    let created = snapshots.iter().map(|it| it.created_unix_seconds).max().unwrap_or_default();
    GroupAnswer {
        group_snapshot: Some(GroupSnapshot {
            group_snapshot_id: name.to_owned(),
            snapshots: snapshots.iter().map(describe).collect(),
            creation_time: Some(Instant { seconds: created.cast_signed() }),
            ready_to_use: true,
        }),
    }
}
