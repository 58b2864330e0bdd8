//! Volumes: created, shown, changed and deleted.

use std::sync::Arc;

use api::{AttachAs, Problem, ProblemKind, SectorBytes, VolumeCreate, VolumePatch};
use block_device::{BlockDevice, SectorSize};
use durable_set::{DurableError, DurableErrorKind};
use volume::{CapacityClass, Durability, Reduction, ShrinkPolicy, Volume, VolumeName, VolumeSpec};

use crate::service::images::{api_durability, engine_durability};
use crate::service::{Devices, Service, refusals};
use crate::volume_users;

impl Service {
    /// All volumes, by name.
    pub(crate) fn list_volumes(&self) -> Vec<api::Volume> {
        self.engine.volumes().iter().map(|volume| self.describe(volume)).collect()
    }

    pub(crate) fn show_volume(&self, name: &str) -> Result<api::Volume, Problem> {
        Ok(self.describe(&*self.volume(name)?))
    }

    pub(crate) fn create_volume(&self, request: &VolumeCreate) -> Result<api::Volume, Problem> {
        let spec = VolumeSpec {
            sector: sector_size(request.sector_bytes),
            reduction: engine_reduction(request.reduction),
            durability: engine_durability(request.durability),
            capacity: engine_capacity(request.capacity),
            ..VolumeSpec::new(parse_name(&request.name)?, request.size.0)
        };
        let volume = {
            let _turn = self.turn();
            let created = self.durable.set().create_volume(spec);
            let volume = created.map_err(|error| self.refusal(error))?;
            self.catalog.add(Arc::clone(&volume));
            volume
        };
        let (durability, size) = (volume.durability(), request.size);
        tracing::info!(volume = request.name, %size, %durability, "volume created");
        Ok(self.describe(&volume))
    }

    pub(crate) fn change_volume(
        &self,
        name: &str,
        request: &VolumePatch,
    ) -> Result<api::Volume, Problem> {
        if request.force && request.size.is_none() {
            let detail = "force goes with a new size only";
            return Err(Problem::new(ProblemKind::InvalidField, detail).in_field("force"));
        }
        let new_name = request.name.as_deref().map(parse_name).transpose()?;
        if let Some(refusal) = request.users.as_deref().and_then(volume_users::refusal) {
            return Err(Problem::new(ProblemKind::InvalidField, refusal).in_field("users"));
        }
        let volume = self.volume(name)?;
        if let Some(class) = request.durability {
            self.prepare_class(&volume, class);
        }
        let changed = self.change(&volume, request, new_name);
        self.usages.forget(volume.id());
        changed?;
        Ok(self.describe(&volume))
    }

    /// Makes the changes in their order, up to the first that is refused.
    fn change(
        &self,
        volume: &Volume,
        request: &VolumePatch,
        new_name: Option<VolumeName>,
    ) -> Result<(), Problem> {
        let _turn = self.turn();
        let name = &volume.name();
        let durability_before = volume.durability();
        if let Some(reduction) = request.reduction {
            self.durable
                .set()
                .set_reduction(name, engine_reduction(reduction))
                .map_err(|error| self.refusal(error))?;
            tracing::info!(volume = name, ?reduction, "reduction changed");
        }
        if let Some(class) = request.durability {
            let changed = self.durable.set().set_durability(name, engine_durability(class));
            let noted = self.made(changed)?;
            self.tell_write_cache(volume, durability_before)?;
            noted?;
            tracing::info!(volume = name, ?class, "durability changed");
        }
        if let Some(class) = request.capacity {
            self.durable
                .set()
                .set_capacity(name, engine_capacity(class))
                .map_err(|error| self.refusal(error).in_field("capacity"))?;
            tracing::info!(volume = name, ?class, "capacity changed");
        }
        if let Some(users) = &request.users {
            self.users.set(volume.id(), users.clone()).map_err(|error| {
                let detail = format!("cannot store the users of the volume {name:?}: {error}");
                Problem::new(ProblemKind::HostFailed, detail)
            })?;
            tracing::info!(volume = name, ?users, "users changed");
        }
        if let Some(size) = request.size {
            let shrink =
                if request.force { ShrinkPolicy::DropData } else { ShrinkPolicy::KeepData };
            self.resize(volume, size.0, shrink)?;
        }
        new_name.map_or(Ok(()), |new_name| self.rename(volume, new_name))
    }

    pub(crate) fn delete_volume(&self, name: &str) -> Result<(), Problem> {
        let (volume, noted) = {
            let _turn = self.turn();
            let volume = self.volume(name)?;
            if let Some(user) = self.user_of(&volume) {
                let detail = format!("the volume {name:?} cannot be deleted: {user}");
                return Err(Problem::new(ProblemKind::InUse, detail));
            }
            let noted = self.made(self.durable.set().delete_volume(name))?;
            self.catalog.remove(volume.id());
            (volume, noted)
        };
        self.usages.forget(volume.id());
        // Ids are never given again: what stays in the list lets nobody in.
        if let Err(error) = self.users.set(volume.id(), Vec::new()) {
            tracing::warn!(volume = name, %error, "cannot strike the volume's users off the list");
        }
        tracing::info!(volume = name, "volume deleted");
        noted
    }

    /// A change that the engine refuses, or that cannot be made durable.
    pub(super) fn refusal(&self, error: DurableError) -> Problem {
        refusals::of_change(error, self.durable.way_on())
    }

    /// Whether a change was made: what it takes besides has to be done then, also if stable storage
    /// could not be told of it, which is to be answered in the end.
    pub(super) fn made(
        &self,
        changed: Result<(), DurableError>,
    ) -> Result<Result<(), Problem>, Problem> {
        match changed {
            Ok(()) => Ok(Ok(())),
            Err(error) if error.kind == DurableErrorKind::NotNoted => Ok(Err(self.refusal(error))),
            Err(error) => Err(self.refusal(error)),
        }
    }

    /// What has to be done before a volume's class changes.
    fn prepare_class(&self, volume: &Volume, class: api::Durability) {
        let (before, after) = (volume.durability(), engine_durability(class));
        if before != after && after == Durability::Journal {
            self.durable.want_image();
        }
    }

    /// The kernel has to know whether an attached device takes flushes. If it cannot be told, the
    /// class is what it was.
    fn tell_write_cache(&self, volume: &Volume, before: Durability) -> Result<(), Problem> {
        let Some(driver) = self.driver_of(volume) else { return Ok(()) };
        if volume.durability() == before {
            return Ok(());
        }
        driver.write_cache_changed(volume).map_err(|failure| {
            let name = volume.name();
            if let Err(error) = self.durable.set().set_durability(&name, before) {
                tracing::error!(volume = name, %error, "cannot take back a change of durability");
            }
            refusals::of_device("tell the kernel the durability of", &name, &failure)
        })
    }

    fn resize(
        &self,
        volume: &Volume,
        size_bytes: u64,
        shrink: ShrinkPolicy,
    ) -> Result<(), Problem> {
        let name = volume.name();
        let driver = self.driver_of(volume);
        if let Some(driver) = driver {
            driver
                .check_resizable(volume)
                .map_err(|failure| refusals::of_device("resize", &name, &failure))?;
        }
        let noted = self.made(self.durable.set().resize_volume(&name, size_bytes, shrink))?;
        tracing::info!(volume = name, size_bytes, "volume resized");
        self.ring.resized(volume);
        self.vhost_user.resized(volume.id());
        let refused =
            |failure| refusals::of_device("tell the kernel the new size of", &name, &failure);
        // The file of a volume has a size, too, whether it is attached or not.
        if let Devices::On { devices, .. } = &self.devices {
            devices.resized(volume).map_err(refused)?;
        }
        if let (Some(driver), Some(AttachAs::Ublk)) = (driver, self.way_of(volume)) {
            driver.resized(volume).map_err(refused)?;
        }
        noted
    }

    fn rename(&self, volume: &Volume, new_name: VolumeName) -> Result<(), Problem> {
        let name = volume.name();
        let snapshots = volume.snapshot_list();
        let user = self.nbd_user_of(volume);
        let user = user.or_else(|| snapshots.iter().find_map(|it| self.nbd_user_of(it)));
        let user = user.or_else(|| self.export_user_of(volume));
        let user = user.or_else(|| snapshots.iter().find_map(|it| self.export_user_of(it)));
        if let Some(user) = user {
            let detail = format!("the volume {name:?} cannot be renamed: {user}");
            return Err(Problem::new(ProblemKind::InUse, detail).in_field("name"));
        }
        let noted = self.made(self.durable.set().rename_volume(&name, new_name.clone()))?;
        tracing::info!(volume = name, new_name = new_name.as_str(), "volume renamed");
        self.note_attached_name(volume);
        noted
    }

    /// Stores the name that an attached volume or snapshot has now.
    pub(super) fn note_attached_name(&self, volume: &Volume) {
        let mut attachments = self.attachments();
        if let Some(mut entry) = attachments.get(volume.id()).cloned() {
            entry.name = volume.name();
            // The id is what counts at the next start; the old name in the file misleads nobody
            // but people.
            if let Err(error) = attachments.insert(volume.id(), entry) {
                tracing::warn!(%error, "cannot store the new name in the list of attachments");
            }
        }
    }

    /// Who uses the volume, and what to do about it.
    pub(super) fn user_of(&self, volume: &Volume) -> Option<String> {
        if let Some(entry) = self.attachments().get(volume.id()) {
            let device = entry.device.as_deref().unwrap_or("a device that failed");
            return Some(format!("it is attached as {device}; detach it first"));
        }
        let user = self.export_user_of(volume).or_else(|| self.nbd_user_of(volume));
        user.or_else(|| self.ring_user_of(volume))
    }

    fn ring_user_of(&self, volume: &Volume) -> Option<String> {
        let client_count = self.ring.client_count_of(volume);
        (client_count > 0)
            .then(|| format!("{client_count} ring client(s) have it open; end them first"))
    }

    /// NBD clients know the volume by its name.
    pub(super) fn nbd_user_of(&self, volume: &Volume) -> Option<String> {
        let connection_count = self.nbd_connection_count_of(volume);
        (connection_count > 0).then(|| {
            format!("{connection_count} NBD connection(s) have it open; disconnect them first")
        })
    }

    pub(super) fn nbd_connection_count_of(&self, volume: &Volume) -> usize {
        self.nbd.as_ref().map_or(0, |nbd| nbd.connection_count_of(volume))
    }

    pub(super) fn describe(&self, volume: &Volume) -> api::Volume {
        let name = volume.name();
        let geometry = volume.geometry();
        let usage = self.usages.usage(volume);
        let device = self.attachments().get(volume.id()).and_then(|entry| entry.device.clone());
        api::Volume {
            id: volume.id(),
            size_bytes: geometry.size_bytes,
            sector_bytes: sector_bytes(geometry.sector),
            reduction: api_reduction(volume.reduction()),
            durability: api_durability(volume.durability()),
            capacity: api_capacity(volume.capacity_class()),
            written_bytes: usage.written_bytes,
            fill_bytes: usage.fill_bytes,
            ram_bytes: usage.ram_bytes,
            ratio: ratio(usage.written_bytes, usage.ram_bytes),
            device,
            nbd_uri: self.nbd.as_ref().map(|nbd| nbd.uri_of(&name)),
            nbd_connections: self.nbd_connection_count_of(volume) as u64,
            ring_clients: self.ring.client_count_of(volume) as u64,
            users: self.users.of(volume.id()),
            name,
        }
    }
}

/// Data over the RAM that it takes, to three decimals; nothing over nothing is no ratio.
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

fn sector_size(sector: SectorBytes) -> SectorSize {
    match sector {
        SectorBytes::Bytes512 => SectorSize::Bytes512,
        SectorBytes::Bytes4096 => SectorSize::Bytes4096,
    }
}

pub(super) fn sector_bytes(sector: SectorSize) -> SectorBytes {
    match sector {
        SectorSize::Bytes512 => SectorBytes::Bytes512,
        SectorSize::Bytes4096 => SectorBytes::Bytes4096,
    }
}

fn engine_capacity(class: api::Capacity) -> CapacityClass {
    match class {
        api::Capacity::Thin => CapacityClass::Thin,
        api::Capacity::Guaranteed => CapacityClass::Guaranteed,
    }
}

fn api_capacity(class: CapacityClass) -> api::Capacity {
    match class {
        CapacityClass::Thin => api::Capacity::Thin,
        CapacityClass::Guaranteed => api::Capacity::Guaranteed,
    }
}

fn engine_reduction(reduction: api::Reduction) -> Reduction {
    match reduction {
        api::Reduction::Full => Reduction::Full,
        api::Reduction::Compress => Reduction::Compress,
        api::Reduction::Dedup => Reduction::Dedup,
        api::Reduction::None => Reduction::None,
    }
}

fn api_reduction(reduction: Reduction) -> api::Reduction {
    match reduction {
        Reduction::Full => api::Reduction::Full,
        Reduction::Compress => api::Reduction::Compress,
        Reduction::Dedup => api::Reduction::Dedup,
        Reduction::None => api::Reduction::None,
    }
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
