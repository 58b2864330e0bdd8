//! Staging: attaches a volume, and formats and mounts it at the staging path of the node.

use std::path::Path;

use api::Volume;
use tonic::Status;

use super::filesystem::{grow, grow_unmounted, mount};
use super::mounts::{at, device_at, device_number, is_dead, unmount_all, unmount_stale};
use super::paths::{check_path, published, target};
use super::programs::{Held, failed};
use crate::capability::usable;
use crate::class::{FILESYSTEM_LABEL, Filesystem};
use crate::driver::Driver;
use crate::wire::{
    MountVolume, NodeExpandAnswer, NodeExpandRequest, Nothing, StageRequest, UnstageRequest,
};

impl Driver {
    pub(crate) fn stage(&self, request: StageRequest) -> Result<Nothing, Status> {
        let staging = target(&request.staging_target_path, "staging_target_path")?;
        let capability = usable(request.volume_capability.as_ref())?;
        let _guard = self.busy.begin(&request.volume_id)?;
        let volume = self.daemon.known_volume(&request.volume_id)?;
        let device = self.daemon.attach(&volume)?;
        if let Some(wanted) = &capability.mount {
            self.mount_staged(&volume, &device, &staging, wanted)?;
        }
        Ok(Nothing {})
    }

    fn mount_staged(
        &self,
        volume: &Volume,
        device: &str,
        staging: &Path,
        wanted: &MountVolume,
    ) -> Result<(), Status> {
        let label = volume.labels.get(FILESYSTEM_LABEL).map_or("", String::as_str);
        let word = if wanted.fs_type.is_empty() { label } else { &wanted.fs_type };
        let filesystem = Filesystem::of_word(word)?;
        let (number, held) = (device_number(device)?, Held::of(device)?);
        if let Some(mounted) = at(staging)? {
            let is_same = mounted.device == number && !is_dead(staging);
            match is_same {
                true if mounted.kind == filesystem.word() => return Ok(()),
                true => {
                    let why = format!("{} is already staged as {}", volume.name, mounted.kind);
                    return Err(Status::already_exists(why));
                }
                false => {
                    tracing::warn!(path = %staging.display(), "replacing a dead mount");
                    unmount_stale(staging)?;
                }
            }
        }
        self.make_filesystem(volume, device, &held, filesystem)?;
        std::fs::create_dir_all(staging).map_err(|error| failed("make", staging, &error))?;
        // A clone may be larger than its source.
        grow_unmounted(&held, volume, device)?;
        mount(&held, filesystem, device, staging, &wanted.mount_flags)?;
        grow(&held, volume, device, staging)
    }

    pub(crate) fn unstage(&self, request: UnstageRequest) -> Result<Nothing, Status> {
        let staging = target(&request.staging_target_path, "staging_target_path")?;
        let name = &request.volume_id;
        if name.is_empty() {
            return Err(Status::invalid_argument("the request has no volume id"));
        }
        let _guard = self.busy.begin(name)?;
        unmount_all(&staging)?;
        // Missing volumes, as after a loss of memory, must not block the termination of pods.
        if self.daemon.volume(name)?.is_some_and(|volume| volume.device.is_some()) {
            self.daemon.detach(name)?;
        }
        Ok(Nothing {})
    }

    /// Grows the file system of a volume to the volume's size, and the volume itself if requested.
    pub(crate) fn grow_filesystem(
        &self,
        request: NodeExpandRequest,
    ) -> Result<NodeExpandAnswer, Status> {
        if request.volume_id.is_empty() {
            return Err(Status::invalid_argument("the request has no volume id"));
        }
        check_path(&request.volume_path, "volume_path")?;
        let _guard = self.busy.begin(&request.volume_id)?;
        let volume = self.daemon.known_volume(&request.volume_id)?;
        let path = published(&request.volume_path)?;
        let device = volume.device.clone().ok_or_else(|| not_staged(&volume))?;
        let is_block = device_at(&path).is_some();
        if !is_block {
            let mounted = at(&path)?.filter(|mounted| !is_dead(&mounted.point));
            let mounted = mounted
                .ok_or_else(|| Status::not_found(format!("{} is not mounted", path.display())))?;
            if mounted.device != device_number(&device)? {
                let why = format!("{} is not a mount of {:?}", path.display(), volume.name);
                return Err(Status::failed_precondition(why));
            }
        }
        let volume = self.enlarge(volume, &request.capacity_range.unwrap_or_default())?;
        if !is_block {
            grow(&Held::of(&device)?, &volume, &device, &path)?;
        }
        Ok(NodeExpandAnswer { capacity_bytes: volume.size_bytes.cast_signed() })
    }
}

pub(super) fn not_staged(volume: &Volume) -> Status {
    Status::failed_precondition(format!("volume {:?} is not staged on this node", volume.name))
}
