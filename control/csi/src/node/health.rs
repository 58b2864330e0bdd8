//! Health of volumes and their mounts.

use std::path::Path;

use api::Volume;
use tonic::Status;

use super::mounts::{at, device_at, is_dead};
use super::paths::published;
use crate::driver::Driver;
use crate::wire::{HealthAnswer, HealthStatus, NodeHealthRequest, VolumeHealth, health};

impl Driver {
    pub(crate) fn health(&self, request: NodeHealthRequest) -> Result<HealthAnswer, Status> {
        let volume = self.daemon.known_volume(&request.volume_id)?;
        let path = &request.volume_publish_path;
        let path = if path.is_empty() { &request.staging_target_path } else { path };
        match path.as_str() {
            "" => self.health_of(&volume, None),
            path => {
                let path = published(path)?;
                self.health_of(&volume, Some(&path))
            }
        }
    }

    /// Returns the faults of a volume and of its mount at a path. Empty if healthy.
    pub(crate) fn health_of(
        &self,
        volume: &Volume,
        path: Option<&Path>,
    ) -> Result<HealthAnswer, Status> {
        let mut found = Vec::new();
        let mut add = |status, reason: &str, message: String| {
            found.push(HealthStatus { status, reason: reason.to_owned(), message });
        };
        let status = self.daemon.status()?;
        if let Some(lost) = status.damage.lost.iter().find(|lost| lost.name == volume.name) {
            let message = format!("{} bytes are lost; reads of them fail", lost.bytes);
            add(health::DATA_LOSS, "ContentsLost", message);
        }
        let objects = status.durability.images.iter().flat_map(|images| &images.unfetched);
        for object in objects {
            if object.volumes.iter().any(|part| part.name == volume.name) {
                let message = format!(
                    "cannot fetch {} from the image store: {}",
                    object.object, object.cause
                );
                add(health::DEGRADED, "NotFetched", message);
            }
        }
        if let Some(path) = path {
            match at(path)? {
                None => {
                    let message = format!("{} is not mounted", path.display());
                    add(health::INACCESSIBLE, "NotMounted", message);
                }
                Some(_) if device_at(path).is_some() => {}
                Some(_) if is_dead(path) => {
                    let message = format!("{} cannot be read", path.display());
                    add(health::INACCESSIBLE, "NotReadable", message);
                }
                Some(mount) if mount.is_stopped && !mount.is_read_only => {
                    let message = "the kernel has shut down its file system after an error; see \
                                   dmesg"
                        .to_owned();
                    add(health::INACCESSIBLE, "ReadOnly", message);
                }
                Some(_) => {}
            }
        }
        let volume_id = volume.name.clone();
        Ok(HealthAnswer { volume_health: Some(VolumeHealth { volume_id, health_statuses: found }) })
    }
}
