//! Volumes: creation, display, resizing, renaming and deletion.

use std::sync::Arc;

use api::{AttachAs, Problem, ProblemKind, VolumeCreate};
use block_device::BlockDevice;
use durable_set::DurableError;
use volumes::{
    Durability, ShrinkPolicy, Volume, VolumeError, VolumeErrorKind, VolumeName, VolumeSpec,
    VolumeUsage,
};

use crate::service::words::{EngineWord, InterfaceWord};
use crate::service::{Clients, Devices, Ownership, Precondition, Service, refusals};
use crate::volume_labels::Labelled;

/// Outcome of a change: refused or made. If made, the inner result tells whether it was recorded on
/// stable storage and announced to the kernel.
pub(super) type Made = Result<Result<(), Problem>, Problem>;

impl Service {
    /// Lists all volumes, by name.
    pub(crate) fn list_volumes(&self) -> Vec<api::Volume> {
        self.engine.volumes().iter().map(|volume| self.describe(volume)).collect()
    }

    pub(crate) fn show_volume(&self, name: &str) -> Result<api::Volume, Problem> {
        Ok(self.describe(&*self.volume(name)?))
    }

    pub(crate) fn create_volume(&self, request: &VolumeCreate) -> Result<api::Volume, Problem> {
        let spec = VolumeSpec {
            sector: request.sector_bytes.to_engine(),
            reduction: request.reduction.to_engine(),
            durability: request.durability.to_engine(),
            capacity: request.capacity.to_engine(),
            mirror: request.mirror.to_engine(),
            ..VolumeSpec::new(parse_name(&request.name)?, request.size.0)
        };
        let wanted = Labelled::default().changed(Some(&request.owner), &request.labels);
        Self::check_labels(&wanted)?;
        let (volume, noted) = {
            let _locked = self.changes.lock([request.name.as_str()]);
            let created = self.durable()?.set().create_volume(spec);
            let (volume, noted) = self.created(created, &request.name)?;
            let wanted = self.labels.of(volume.id()).changed(Some(&request.owner), &request.labels);
            if let Err(problem) = self.set_labels(&volume, wanted) {
                // No client has seen the volume yet, so it is deleted when its labels are refused.
                self.durable()?
                    .set()
                    .delete_volume(&request.name)
                    .map_err(|it| self.refusal(it))?;
                return Err(problem);
            }
            self.catalog.add(Arc::clone(&volume));
            (volume, noted)
        };
        let (durability, size) = (volume.durability(), request.size);
        tracing::info!(volume = request.name, %size, %durability, "volume created");
        noted?;
        Ok(self.describe(&volume))
    }

    pub(crate) fn delete_volume(
        &self,
        name: &str,
        clients: Clients,
        condition: &Precondition,
    ) -> Result<(), Problem> {
        let (volume, noted) = {
            self.await_closing(&*self.volume(name)?);
            let _locked = self.changes.lock([name]);
            let volume = self.volume(name)?;
            condition.check(|| self.describe(&volume))?;
            let user = match clients {
                Clients::Respected => self.user_of(&volume),
                Clients::Disconnected => self.device_user_of(&volume),
            };
            if let Some(user) = user {
                let detail = format!("volume {name:?} cannot be deleted: {user}");
                return Err(Problem::new(ProblemKind::InUse, detail));
            }
            let ownership = Ownership::of_force(clients == Clients::Disconnected);
            self.check_owner(&volume, "deleted", ownership)?;
            let noted = self.made(self.durable()?.set().delete_volume(name))?;
            self.catalog.remove(volume.id());
            if clients == Clients::Disconnected {
                // No client can open it any more.
                let gone = self.disconnect(&volume);
                tracing::info!(volume = name, ?gone, "clients disconnected");
                self.forget_export(&volume);
            }
            (volume, noted)
        };
        self.usages.forget(volume.id());
        // Ids are never reused, so an entry that remains in the list admits no user.
        if let Err(error) = self.users.set(volume.id(), Vec::new()) {
            tracing::warn!(volume = name, %error, "cannot remove a deleted volume's users");
        }
        if let Err(error) = self.labels.forget(volume.id()) {
            tracing::warn!(volume = name, %error, "cannot remove a deleted volume's labels");
        }
        tracing::info!(volume = name, "volume deleted");
        noted
    }

    /// Converts a change that the engine refused or that could not be made durable.
    pub(super) fn refusal(&self, error: DurableError) -> Problem {
        refusals::of_change(error, self.durable().ok().and_then(|durable| durable.way_on()))
    }

    /// Returns a new volume, also one that stable storage could not record, and the problem to
    /// report in the end. The caller has locked its name.
    pub(super) fn created(
        &self,
        created: Result<Arc<Volume>, DurableError>,
        name: &str,
    ) -> Result<(Arc<Volume>, Result<(), Problem>), Problem> {
        match created {
            Ok(volume) => Ok((volume, Ok(()))),
            Err(error) if error.is_made() => Ok((self.volume(name)?, Err(self.refusal(error)))),
            Err(error) => Err(self.refusal(error)),
        }
    }

    /// Separates refused changes from changes made in memory. For the latter, subsequent steps must
    /// be done, even if stable storage could not record the change; the inner error is reported in
    /// the end.
    pub(super) fn made(&self, changed: Result<(), DurableError>) -> Made {
        match changed {
            Ok(()) => Ok(Ok(())),
            Err(error) if error.is_made() => Ok(Err(self.refusal(error))),
            Err(error) => Err(self.refusal(error)),
        }
    }

    /// Requests an image before a volume changes to class `journal`.
    pub(super) fn prepare_class(&self, volume: &Volume, class: api::Durability) {
        let (before, after) = (volume.durability(), class.to_engine());
        if before != after && after == Durability::Journal {
            self.want_image();
        }
    }

    /// Tells the kernel whether an attached device takes flushes. If this fails, the class is
    /// changed back.
    pub(super) fn tell_write_cache(
        &self,
        volume: &Volume,
        before: Durability,
    ) -> Result<(), Problem> {
        let Some(driver) = self.driver_of(volume) else { return Ok(()) };
        if volume.durability() == before {
            return Ok(());
        }
        driver.write_cache_changed(volume).map_err(|failure| {
            let name = volume.name();
            let durable = self.durable().expect("a class was changed");
            if let Err(error) = durable.set().set_durability(&name, before) {
                tracing::error!(volume = name, %error, "cannot undo a failed change of durability");
            }
            refusals::of_device("set the write cache mode of the device of", &name, &failure)
        })
    }

    /// Checks that the kernel supports changing the size of an attached volume.
    pub(super) fn check_resizable(&self, volume: &Volume) -> Result<(), Problem> {
        let Some(driver) = self.driver_of(volume) else { return Ok(()) };
        let checked = driver.check_resizable(volume);
        checked.map_err(|failure| refusals::of_device("resize", &volume.name(), &failure))
    }

    pub(super) fn resize(&self, volume: &Volume, size_bytes: u64, shrink: ShrinkPolicy) -> Made {
        let name = volume.name();
        let driver = self.driver_of(volume);
        let noted = self.made(self.durable()?.set().resize_volume(&name, size_bytes, shrink))?;
        tracing::info!(volume = name, size_bytes, "volume resized");
        self.ring.resized(volume);
        self.vhost_user.resized(volume.id());
        let refused = |failure| refusals::of_device("set the device size of", &name, &failure);
        // The volume's file also has a size, whether the volume is attached or not.
        let of_file = match &self.devices {
            Devices::On { devices, .. } => devices.resized(volume).map_err(refused),
            Devices::Off { .. } => Ok(()),
        };
        let of_device = match (driver, self.way_of(volume)) {
            (Some(driver), Some(AttachAs::Ublk)) => driver.resized(volume).map_err(refused),
            _ => Ok(()),
        };
        Ok(noted.and(of_file).and(of_device))
    }

    /// Checks that the name is free, and that no client uses the volume by its old name.
    pub(super) fn check_renamable(
        &self,
        volume: &Volume,
        new_name: &VolumeName,
    ) -> Result<(), Problem> {
        let name = volume.name();
        if self.engine.volume(new_name.as_str()).is_ok() {
            let taken = VolumeError::new(VolumeErrorKind::AlreadyExists, new_name.as_str());
            return Err(refusals::of_volume(&taken));
        }
        let snapshots = self.engine.snapshots_of(volume);
        let user = self.nbd_user_of(volume);
        let user = user.or_else(|| snapshots.iter().find_map(|it| self.nbd_user_of(it)));
        let user = user.or_else(|| self.export_user_of(volume));
        let user = user.or_else(|| snapshots.iter().find_map(|it| self.export_user_of(it)));
        if let Some(user) = user {
            let detail = format!("volume {name:?} cannot be renamed: {user}");
            return Err(Problem::new(ProblemKind::InUse, detail).in_field("name"));
        }
        Ok(())
    }

    pub(super) fn rename(&self, volume: &Volume, new_name: VolumeName) -> Made {
        let name = volume.name();
        let noted = self.made(self.durable()?.set().rename_volume(&name, new_name.clone()))?;
        tracing::info!(volume = name, new_name = new_name.as_str(), "volume renamed");
        self.note_attached_name(volume);
        Ok(noted)
    }

    /// Stores the current name of an attached volume or snapshot.
    pub(super) fn note_attached_name(&self, volume: &Volume) {
        if let Some(mut entry) = self.attachments.get(volume.id()) {
            entry.name = volume.name();
            // The next start identifies the volume by its id; the name in the file is only
            // informative.
            if let Err(error) = self.attachments.note(entry) {
                tracing::warn!(%error, "cannot store the new name in the list of attachments");
            }
        }
    }

    pub(super) fn usage_of(&self, volume: &Volume) -> VolumeUsage {
        self.usages.usage(volume, self.catalog.changes(volume.id()))
    }

    pub(super) fn describe(&self, volume: &Volume) -> api::Volume {
        let name = volume.name();
        let geometry = volume.geometry();
        let usage = self.usage_of(volume);
        let device = self.device_of(volume);
        let Labelled { owner, labels, .. } = self.labels.of(volume.id());
        api::Volume {
            id: volume.id(),
            size_bytes: geometry.size_bytes,
            sector_bytes: geometry.sector.to_interface(),
            reduction: volume.reduction().to_interface(),
            durability: volume.durability().to_interface(),
            capacity: volume.capacity_class().to_interface(),
            mirror: volume.mirror().to_interface(),
            written_bytes: usage.written_bytes,
            fill_bytes: usage.fill_bytes,
            ram_bytes: usage.ram_bytes,
            ratio: ratio(usage.written_bytes, usage.ram_bytes),
            device,
            nbd_uri: self.nbd.as_ref().map(|nbd| nbd.uri_of(&name)),
            nbd_connections: self.nbd_connection_count_of(volume) as u64,
            ring_clients: self.ring.client_count_of(volume) as u64,
            users: self.users.of(volume.id()),
            owner: Some(owner).filter(|owner| !owner.is_empty()),
            labels,
            name,
        }
    }
}

/// Ratio of written bytes to RAM, rounded to three decimals. `None` if either is zero.
pub(super) fn ratio(written_bytes: u64, ram_bytes: u64) -> Option<f64> {
    if written_bytes == 0 || ram_bytes == 0 {
        return None;
    }
    let ratio = written_bytes as f64 / ram_bytes as f64;
    Some((ratio * 1000.0).round() / 1000.0)
}

pub(super) fn parse_name(name: &str) -> Result<VolumeName, Problem> {
    name.parse().map_err(|error| refusals::of_volume(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_something_over_something() {
        assert_eq!(ratio(3000, 1000), Some(3.0));
        assert_eq!(ratio(1, 3), Some(0.333));
        assert_eq!(ratio(0, 10), None);
        assert_eq!(ratio(10, 0), None);
    }
}
