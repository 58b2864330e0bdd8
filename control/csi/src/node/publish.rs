//! Publishing: bind-mounts a staged volume at the target path of a pod.

use std::fs;
use std::io;
use std::path::Path;

use api::Volume;
use tonic::Status;

use super::group::give;
use super::mounts::{
    Mount, at, device_at, device_number, is_dead, mounts, unmount_all, unmount_stale,
};
use super::paths::target;
use super::programs::{Held, failed};
use super::stage::not_staged;
use crate::capability::usable;
use crate::driver::Driver;
use crate::wire::{Nothing, PublishRequest, UnpublishRequest, access};

/// A volume and the target to publish it at.
struct Wanted<'a> {
    volume: &'a Volume,
    /// `major:minor` of the device.
    number: String,
    held: Held,
    /// Source of the bind mount.
    source: &'a Path,
    target: &'a Path,
    is_block: bool,
    is_read_only: bool,
}

impl Driver {
    pub(crate) fn publish(&self, request: PublishRequest) -> Result<Nothing, Status> {
        let target_path = target(&request.target_path, "target_path")?;
        let capability = usable(request.volume_capability.as_ref())?;
        let _guard = self.busy.begin(&request.volume_id)?;
        let volume = self.daemon.known_volume(&request.volume_id)?;
        if request.staging_target_path.is_empty() {
            return Err(not_staged(&volume));
        }
        let staging = target(&request.staging_target_path, "staging_target_path")?;
        let device = volume.device.as_deref().ok_or_else(|| not_staged(&volume))?;
        let mode = capability.access_mode.as_ref().map_or(0, |mode| mode.kind);
        let is_block = capability.block.is_some();
        let wanted = Wanted {
            number: device_number(device)?,
            held: Held::of(device)?,
            source: if is_block { Path::new(device) } else { &staging },
            target: &target_path,
            is_block,
            is_read_only: request.readonly || mode == access::SINGLE_NODE_READER_ONLY,
            volume: &volume,
        };
        if !is_block {
            let staged = at(&staging)?.filter(|mount| mount.device == wanted.number);
            staged.filter(|_| !is_dead(&staging)).ok_or_else(|| not_staged(&volume))?;
        }
        if mode == access::SINGLE_NODE_SINGLE_WRITER {
            wanted.check_alone(&staging)?;
        }
        let group = capability.mount.as_ref().map_or("", |mount| &mount.volume_mount_group);
        if !group.is_empty() && !wanted.is_read_only {
            give(&staging, group)?;
        }
        wanted.bind()?;
        Ok(Nothing {})
    }

    /// Unpublishes a volume from a pod. Works even if the volume or the daemon is unavailable.
    pub(crate) fn unpublish(&self, request: UnpublishRequest) -> Result<Nothing, Status> {
        if request.volume_id.is_empty() {
            return Err(Status::invalid_argument("the request has no volume id"));
        }
        let path = target(&request.target_path, "target_path")?;
        let _guard = self.busy.begin(&request.volume_id)?;
        unmount_all(&path)?;
        let removed = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => fs::remove_dir(&path),
            Ok(_) => fs::remove_file(&path),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", &path, &error))
            }
            _ => Ok(Nothing {}),
        }
    }
}

impl Wanted<'_> {
    /// Bind-mounts the target unless it is mounted correctly. Stale mounts are removed.
    fn bind(&self) -> Result<(), Status> {
        if let Some(mounted) = at(self.target)? {
            let is_same = match self.is_block {
                true => device_at(self.target).as_ref() == Some(&self.number),
                false => mounted.device == self.number && !is_dead(self.target),
            };
            if is_same && mounted.is_read_only == self.is_read_only {
                return Ok(());
            }
            if is_same {
                return Err(Status::already_exists(format!(
                    "{} is already published, {}",
                    self.target.display(),
                    if mounted.is_read_only { "read-only" } else { "to be written" }
                )));
            }
            tracing::warn!(path = %self.target.display(), "replacing a dead mount");
            unmount_stale(self.target)?;
        }
        self.make_target().map_err(|error| failed("make", self.target, &error))?;
        let options = if self.is_read_only { "bind,ro" } else { "bind" };
        let (options, source) = (Path::new(options), self.source);
        let bound = self.held.run("mount", [Path::new("-o"), options, source, self.target]);
        bound.inspect_err(|_| {
            // A partial bind mount would be mistaken for a complete one.
            if let Err(status) = unmount_all(self.target) {
                tracing::warn!("cannot clean up a mount that failed: {}", status.message());
            }
        })
    }

    fn make_target(&self) -> io::Result<()> {
        if !self.is_block {
            return fs::create_dir_all(self.target);
        }
        if let Some(folder) = self.target.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::OpenOptions::new().create(true).append(true).open(self.target).map(drop)
    }

    /// Fails if the volume is published at another target.
    fn check_alone(&self, staging: &Path) -> Result<(), Status> {
        let is_of_volume = |it: &&Mount| match self.is_block {
            // Bind mounts of a single device, not of a whole /dev.
            true => it.may_be_device() && device_at(&it.point).as_ref() == Some(&self.number),
            false => it.device == self.number && it.point != staging,
        };
        let mounts = mounts()?;
        let mut others = mounts.iter().filter(|it| it.point != self.target);
        match others.find(is_of_volume) {
            Some(other) => Err(Status::failed_precondition(format!(
                "volume {:?} is ReadWriteOncePod and already published at {}",
                self.volume.name,
                other.point.display()
            ))),
            None => Ok(()),
        }
    }
}
