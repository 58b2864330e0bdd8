//! Attachments: volumes made kernel block devices, and brought back after a restart.

use std::collections::HashMap;
use std::sync::Arc;

use api::{AttachAs, Attachment, AttachmentCreate, Problem, ProblemKind};
use volume::Volume;

use crate::attachments::Entry;
use crate::exports::KernelDevices;
use crate::service::{Devices, Service, refusals};

impl Service {
    /// All attachments, by name.
    pub(crate) fn list_attachments(&self) -> Vec<Attachment> {
        let attachments = self.attachments();
        let mut list: Vec<_> = attachments.iter().map(|(_, entry)| describe(entry)).collect();
        list.sort_by(|left, right| left.volume.cmp(&right.volume));
        list
    }

    pub(crate) fn attach_volume(&self, request: &AttachmentCreate) -> Result<Attachment, Problem> {
        if request.attach_as == AttachAs::Ublk {
            let detail = "ublk is not available in this version; use loop";
            return Err(Problem::new(ProblemKind::NotSupported, detail).in_field("as"));
        }
        let devices = self.devices_on()?;
        let name = &request.volume;
        let _turn = self.turn();
        let volume = self.volume(name).map_err(|problem| problem.in_field("volume"))?;
        let known = self.attachments().get(volume.id()).and_then(|entry| entry.device.clone());
        if let Some(device) = known {
            let detail = format!("the volume {name:?} is attached as {device} already");
            return Err(Problem::new(ProblemKind::AlreadyExists, detail).in_field("volume"));
        }
        let device = devices
            .attach(&volume)
            .map_err(|failure| refusals::of_device("attach", name, &failure))?;
        let entry = loop_entry(name.clone(), Some(device.clone()));
        let stored = self.attachments().insert(volume.id(), entry.clone());
        stored.map_err(|error| {
            if let Err(failure) = devices.detach(&volume) {
                tracing::error!(volume = name, %failure, "cannot take back a half-made attachment");
            }
            not_stored(name, &error)
        })?;
        tracing::info!(volume = name, device, "volume attached");
        Ok(describe(&entry))
    }

    pub(crate) fn detach_volume(&self, name: &str) -> Result<(), Problem> {
        let _turn = self.turn();
        let volume = self.volume(name)?;
        if self.attachments().get(volume.id()).is_none() {
            let detail = format!("the volume {name:?} is not attached");
            return Err(Problem::new(ProblemKind::NotFound, detail));
        }
        if let Devices::On { devices, .. } = &self.devices {
            devices
                .detach(&volume)
                .map_err(|failure| refusals::of_device("detach", name, &failure))?;
        }
        let stored = self.attachments().remove(volume.id());
        stored.map_err(|error| not_stored(name, &error))?;
        tracing::info!(volume = name, "volume detached");
        Ok(())
    }

    /// Brings back what was attached when the last daemon ended: devices that outlived it are
    /// taken over, others are made again. What the host refuses stays in the list, and the status
    /// tells of it; a volume that is gone with its pool is dropped from the list.
    pub(crate) fn restore_attachments(&self) {
        let _turn = self.turn();
        let Devices::On { devices, .. } = &self.devices else { return };
        let volumes: HashMap<u64, Arc<Volume>> = self
            .engine
            .volumes()
            .into_iter()
            .chain(self.engine.snapshots())
            .map(|volume| (volume.id(), volume))
            .collect();
        let mut wanted: Vec<u64> = self.attachments().iter().map(|(id, _)| id).collect();
        for (volume_id, device) in devices.devices() {
            if !wanted.contains(&volume_id) {
                tracing::info!(device, "device found that was about to be attached or detached");
                wanted.push(volume_id);
            }
        }
        for volume_id in wanted {
            match volumes.get(&volume_id) {
                Some(volume) => self.restore(devices.as_ref(), volume),
                None => self.drop_lost(volume_id),
            }
        }
    }

    fn restore(&self, devices: &dyn KernelDevices, volume: &Volume) {
        let name = volume.name();
        let device = match devices.attach(volume) {
            Ok(device) => {
                tracing::info!(volume = name, device, "attachment restored");
                Some(device)
            }
            Err(failure) => {
                tracing::error!(volume = name, %failure, "cannot restore the attachment");
                None
            }
        };
        if let Err(error) = self.attachments().insert(volume.id(), loop_entry(name, device)) {
            tracing::error!(%error, "cannot store the list of attachments");
        }
    }

    fn drop_lost(&self, volume_id: u64) {
        let mut attachments = self.attachments();
        let name = attachments.get(volume_id).map(|entry| entry.name.clone());
        tracing::warn!(volume = name, volume_id, "attached volume is gone; forgetting it");
        if let Err(error) = attachments.remove(volume_id) {
            tracing::error!(%error, "cannot store the list of attachments");
        }
    }

    fn devices_on(&self) -> Result<&dyn KernelDevices, Problem> {
        match &self.devices {
            Devices::On { devices, .. } => Ok(devices.as_ref()),
            Devices::Off { reason } => {
                let detail = format!("kernel block devices are not available: {reason}");
                Err(Problem::new(ProblemKind::NotSupported, detail).in_field("as"))
            }
        }
    }
}

fn loop_entry(name: String, device: Option<String>) -> Entry {
    Entry { name, attach_as: AttachAs::Loop, device }
}

fn describe(entry: &Entry) -> Attachment {
    Attachment {
        volume: entry.name.clone(),
        attach_as: entry.attach_as,
        device: entry.device.clone(),
    }
}

fn not_stored(name: &str, error: &std::io::Error) -> Problem {
    let detail = format!("cannot store that the volume {name:?} is attached or detached: {error}");
    Problem::new(ProblemKind::HostFailed, detail)
}
