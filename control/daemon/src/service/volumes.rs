//! Volumes: created, shown, changed and deleted.

use std::sync::Arc;

use api::{Problem, ProblemKind, SectorBytes, VolumeCreate, VolumePatch};
use block_device::{BlockDevice, SectorSize};
use volume::{Reduction, ShrinkPolicy, Volume, VolumeName, VolumeSpec};

use crate::service::{Devices, Service, refusals};

impl Service {
    /// All volumes, by name.
    pub(crate) fn list_volumes(&self) -> Vec<api::Volume> {
        self.engine.volumes().iter().map(|volume| self.describe(volume)).collect()
    }

    pub(crate) fn show_volume(&self, name: &str) -> Result<api::Volume, Problem> {
        Ok(self.describe(&*self.volume(name)?))
    }

    pub(crate) fn create_volume(&self, request: &VolumeCreate) -> Result<api::Volume, Problem> {
        refusals::check_classes(Some(request.durability), Some(request.capacity))?;
        let spec = VolumeSpec {
            sector: sector_size(request.sector_bytes),
            reduction: engine_reduction(request.reduction),
            ..VolumeSpec::new(parse_name(&request.name)?, request.size.0)
        };
        let _turn = self.turn();
        let volume = self.engine.create_volume(spec).map_err(|e| refusals::of_volume(&e))?;
        self.catalog.add(Arc::clone(&volume));
        tracing::info!(volume = request.name, size = %request.size, "volume created");
        Ok(self.describe(&volume))
    }

    pub(crate) fn change_volume(
        &self,
        name: &str,
        request: &VolumePatch,
    ) -> Result<api::Volume, Problem> {
        refusals::check_classes(request.durability, request.capacity)?;
        if request.force && request.size.is_none() {
            let detail = "force goes with a new size only";
            return Err(Problem::new(ProblemKind::InvalidField, detail).in_field("force"));
        }
        let new_name = request.name.as_deref().map(parse_name).transpose()?;
        let _turn = self.turn();
        let volume = self.volume(name)?;
        if let Some(reduction) = request.reduction {
            self.engine
                .set_reduction(name, engine_reduction(reduction))
                .map_err(|error| refusals::of_volume(&error))?;
            tracing::info!(volume = name, ?reduction, "reduction changed");
        }
        if let Some(size) = request.size {
            let shrink =
                if request.force { ShrinkPolicy::DropData } else { ShrinkPolicy::KeepData };
            self.resize(&volume, size.0, shrink)?;
        }
        if let Some(new_name) = new_name {
            self.rename(&volume, new_name)?;
        }
        self.usages.forget(volume.id());
        Ok(self.describe(&volume))
    }

    pub(crate) fn delete_volume(&self, name: &str) -> Result<(), Problem> {
        let _turn = self.turn();
        let volume = self.volume(name)?;
        if let Some(user) = self.user_of(&volume) {
            let detail = format!("the volume {name:?} cannot be deleted: {user}");
            return Err(Problem::new(ProblemKind::InUse, detail));
        }
        self.engine.delete_volume(name).map_err(|error| refusals::of_volume(&error))?;
        self.catalog.remove(volume.id());
        self.usages.forget(volume.id());
        tracing::info!(volume = name, "volume deleted");
        Ok(())
    }

    fn resize(
        &self,
        volume: &Volume,
        size_bytes: u64,
        shrink: ShrinkPolicy,
    ) -> Result<(), Problem> {
        let name = volume.name();
        self.engine
            .resize_volume(&name, size_bytes, shrink)
            .map_err(|error| refusals::of_volume(&error))?;
        tracing::info!(volume = name, size_bytes, "volume resized");
        if let Devices::On { devices, .. } = &self.devices {
            devices.resized(volume).map_err(|failure| {
                refusals::of_device("tell the kernel the new size of", &name, &failure)
            })?;
        }
        Ok(())
    }

    fn rename(&self, volume: &Volume, new_name: VolumeName) -> Result<(), Problem> {
        let name = volume.name();
        if let Some(user) = self.nbd_user_of(volume) {
            let detail = format!("the volume {name:?} cannot be renamed: {user}");
            return Err(Problem::new(ProblemKind::InUse, detail).in_field("name"));
        }
        self.engine
            .rename_volume(&name, new_name.clone())
            .map_err(|error| refusals::of_volume(&error))?;
        tracing::info!(volume = name, new_name = new_name.as_str(), "volume renamed");
        let mut attachments = self.attachments();
        if let Some(mut entry) = attachments.get(volume.id()).cloned() {
            entry.name = new_name.as_str().to_owned();
            // The id is what counts at the next start; the old name in the file misleads nobody
            // but people.
            if let Err(error) = attachments.insert(volume.id(), entry) {
                tracing::warn!(%error, "cannot store the new name in the list of attachments");
            }
        }
        Ok(())
    }

    /// Who uses the volume, and what to do about it.
    fn user_of(&self, volume: &Volume) -> Option<String> {
        if let Some(entry) = self.attachments().get(volume.id()) {
            let device = entry.device.as_deref().unwrap_or("a device that failed");
            return Some(format!("it is attached as {device}; detach it first"));
        }
        self.nbd_user_of(volume)
    }

    /// NBD clients know the volume by its name.
    fn nbd_user_of(&self, volume: &Volume) -> Option<String> {
        let connection_count = self.nbd_connection_count_of(volume);
        (connection_count > 0).then(|| {
            format!("{connection_count} NBD connection(s) have it open; disconnect them first")
        })
    }

    fn nbd_connection_count_of(&self, volume: &Volume) -> usize {
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
            durability: api::Durability::Ram,
            capacity: api::Capacity::Thin,
            written_bytes: usage.written_bytes,
            fill_bytes: usage.fill_bytes,
            ram_bytes: usage.ram_bytes,
            ratio: ratio(usage.written_bytes, usage.ram_bytes),
            device,
            nbd_uri: self.nbd.as_ref().map(|nbd| nbd.uri_of(&name)),
            nbd_connections: self.nbd_connection_count_of(volume) as u64,
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

fn parse_name(name: &str) -> Result<VolumeName, Problem> {
    name.parse().map_err(|error| refusals::of_volume(&error))
}

fn sector_size(sector: SectorBytes) -> SectorSize {
    match sector {
        SectorBytes::Bytes512 => SectorSize::Bytes512,
        SectorBytes::Bytes4096 => SectorSize::Bytes4096,
    }
}

fn sector_bytes(sector: SectorSize) -> SectorBytes {
    match sector {
        SectorSize::Bytes512 => SectorBytes::Bytes512,
        SectorSize::Bytes4096 => SectorBytes::Bytes4096,
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
