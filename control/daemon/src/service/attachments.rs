//! Attachments of volumes as kernel block devices, restored after a restart.

use std::collections::HashMap;
use std::sync::Arc;

use api::{AttachAs, Attachment, AttachmentCreate, Problem, ProblemKind, counted};
use block_device::BlockDevice;
use volumes::Volume;

use crate::attachments::Attached;
use crate::exports::{DeviceFailure, KernelDevices};
use crate::service::{Devices, Service, refusals};

impl Service {
    /// Lists all attachments, by name.
    pub(crate) fn list_attachments(&self) -> Vec<Attachment> {
        let mut list: Vec<_> =
            self.attachments.all().into_iter().map(|it| self.describe_attachment(it)).collect();
        list.sort_by(|left, right| left.volume.cmp(&right.volume));
        list
    }

    /// Warns before a stop that attached devices do not answer until the next start.
    pub(crate) fn warn_of_attachments(&self) {
        if let Some(warning) = stop_warning(&self.list_attachments()) {
            tracing::warn!("{warning}");
        }
    }

    pub(crate) fn show_attachment(&self, name: &str) -> Result<Attachment, Problem> {
        let volume = self.volume(name)?;
        let entry = self.attachments.get(volume.id()).ok_or_else(|| not_attached(name))?;
        Ok(self.describe_attachment(entry))
    }

    pub(crate) fn attach_volume(&self, request: &AttachmentCreate) -> Result<Attachment, Problem> {
        let name = &request.volume;
        self.durable()?;
        let _locked = self.changes.lock([name.as_str()]);
        let volume = self.volume(name).map_err(|problem| problem.in_field("volume"))?;
        if let Some(device) = self.device_of(&volume) {
            let detail = format!("volume {name:?} is already attached as {device}");
            return Err(Problem::new(ProblemKind::AlreadyExists, detail).in_field("volume"));
        }
        check_flush_each_write(request, &volume)?;
        if !request.share && !volume.is_read_only() {
            self.check_unshared(&volume)?;
        }
        if !request.share {
            // The kernel may open and mount the device before this returns.
            self.catalog.note_holder(volume.id(), Some("being attached".to_owned()));
        }
        let attached = self.attach_and_list(request, &volume);
        self.note_holder(volume.id());
        let entry = attached?;
        let (device, way) = (&entry.device, entry.attach_as);
        tracing::info!(volume = name, device, ?way, "volume attached");
        Ok(self.describe_attachment(entry))
    }

    fn attach_and_list(
        &self,
        request: &AttachmentCreate,
        volume: &Arc<Volume>,
    ) -> Result<Attached, Problem> {
        let name = &request.volume;
        let (way, device) = self.attach_by_best(request, volume)?;
        let entry = Attached {
            volume_id: volume.id(),
            name: name.clone(),
            attach_as: way,
            is_shared: request.share,
            flush_each_write: request.flush_each_write,
            device: Some(device),
        };
        let stored = self.attachments.insert(entry.clone());
        stored.map_err(|error| {
            if let Some(Err(failure)) = self.driver(way).map(|driver| driver.detach(volume)) {
                tracing::error!(volume = name, %failure, "cannot undo a failed attach");
                // The device still exists, so it is listed and can be detached.
                self.note_attachment(entry.clone());
            }
            not_stored(name, &error)
        })?;
        Ok(entry)
    }

    /// Refuses a volume that others may write to.
    fn check_unshared(&self, volume: &Volume) -> Result<(), Problem> {
        if self.exports.get(volume.id()).is_some() {
            let user = "exported over vhost-user";
            return Err(refusals::of_sharing(volume, user, "delete the export first"));
        }
        self.check_unwritten(volume)
    }

    /// Refuses a volume whose file is open for writing.
    pub(super) fn check_unwritten(&self, volume: &Volume) -> Result<(), Problem> {
        match self.file_user_of(volume).filter(|user| user.writes) {
            Some(user) => Err(refusals::of_sharing(volume, "in use", &user.words)),
            None => Ok(()),
        }
    }

    /// Attaches with the requested driver, or with the best available one.
    fn attach_by_best(
        &self,
        request: &AttachmentCreate,
        volume: &Arc<Volume>,
    ) -> Result<(AttachAs, String), Problem> {
        let name = volume.name();
        let attach_as = if request.flush_each_write { AttachAs::Loop } else { request.attach_as };
        let refused = |failure: &DeviceFailure| {
            let problem = refusals::of_device("attach", &name, failure);
            let is_missing = matches!(failure, DeviceFailure::Missing(_));
            if is_missing { problem.in_field("as") } else { problem }
        };
        if attach_as != AttachAs::Loop
            && let Some(ublk) = &self.ublk
        {
            match ublk.attach(volume, false) {
                Ok(device) => return Ok((AttachAs::Ublk, device)),
                Err(failure) if attach_as == AttachAs::Ublk => return Err(refused(&failure)),
                Err(DeviceFailure::Missing(_)) => {}
                Err(failure) => {
                    tracing::warn!(volume = name, %failure,
                        "cannot attach as a ublk device; using a loop device");
                }
            }
        }
        if attach_as == AttachAs::Ublk {
            return Err(switched_off("disabled by no-fuse"));
        }
        let devices = match &self.devices {
            Devices::On { devices, .. } => devices,
            Devices::Off { reason } => return Err(switched_off(reason)),
        };
        let attached = devices.attach(volume, request.flush_each_write);
        let device = attached.map_err(|failure| refused(&failure))?;
        Ok((AttachAs::Loop, device))
    }

    pub(crate) fn detach_volume(&self, name: &str) -> Result<(), Problem> {
        let _locked = self.changes.lock([name]);
        let volume = self.volume(name)?;
        let Some(way) = self.attachments.get(volume.id()).map(|entry| entry.attach_as) else {
            return Err(not_attached(name));
        };
        if let Some(driver) = self.driver(way) {
            driver
                .detach(&volume)
                .map_err(|failure| refusals::of_device("detach", name, &failure))?;
        }
        // The device is removed, even if the list cannot be stored.
        if let Err(error) = self.attachments.note_gone(volume.id()) {
            self.tell_not_stored(name, &error);
        }
        self.note_holder(volume.id());
        tracing::info!(volume = name, "volume detached");
        Ok(())
    }

    /// Driver of an attached volume's device.
    pub(super) fn driver_of(&self, volume: &Volume) -> Option<&dyn KernelDevices> {
        self.driver(self.way_of(volume)?)
    }

    /// Type of a volume's attachment.
    pub(super) fn way_of(&self, volume: &Volume) -> Option<AttachAs> {
        self.attachments.get(volume.id()).map(|entry| entry.attach_as)
    }

    /// Attaches the volumes that were attached when the last daemon ended: devices that outlived it
    /// are taken over, others are created again. Volumes that the host refuses stay in the list and
    /// in the status. A volume that was lost with its pool is removed from the list. Must be called
    /// before requests are served.
    pub(crate) fn restore_attachments(&self) {
        let volumes: HashMap<u64, Arc<Volume>> = self
            .engine
            .volumes()
            .into_iter()
            .chain(self.engine.snapshots())
            .map(|volume| (volume.id(), volume))
            .collect();
        let mut wanted: Vec<(u64, AttachAs)> =
            self.attachments.all().iter().map(|it| (it.volume_id, it.attach_as)).collect();
        for way in [AttachAs::Loop, AttachAs::Ublk] {
            for (volume_id, device) in self.driver(way).iter().flat_map(|it| it.devices()) {
                if !wanted.iter().any(|(id, _)| *id == volume_id) {
                    tracing::info!(device, "found a device whose attach or detach was interrupted");
                    wanted.push((volume_id, way));
                }
            }
        }
        for (volume_id, way) in wanted {
            let Some(driver) = self.driver(way) else { continue };
            match volumes.get(&volume_id) {
                Some(volume) => self.restore(driver, way, volume),
                None => self.drop_lost(volume_id),
            }
        }
    }

    fn restore(&self, driver: &dyn KernelDevices, way: AttachAs, volume: &Arc<Volume>) {
        let name = volume.name();
        let listed = self.attachments.get(volume.id());
        let (is_shared, flush_each_write) =
            listed.map_or((false, false), |entry| (entry.is_shared, entry.flush_each_write));
        let device = match self.attach_again(driver, volume, (is_shared, flush_each_write)) {
            Ok(device) => {
                tracing::info!(volume = name, device, "attachment restored");
                Some(device)
            }
            Err(failure) => {
                tracing::error!(volume = name, failure, "cannot restore the attachment");
                None
            }
        };
        let entry = Attached {
            volume_id: volume.id(),
            name,
            attach_as: way,
            is_shared,
            flush_each_write,
            device,
        };
        self.note_attachment(entry);
        self.note_holder(volume.id());
    }

    /// Takes over a device, or attaches the volume again, unless another process uses the volume's
    /// file.
    fn attach_again(
        &self,
        driver: &dyn KernelDevices,
        volume: &Arc<Volume>,
        (is_shared, flush_each_write): (bool, bool),
    ) -> Result<String, String> {
        let was_there = driver.devices().iter().any(|(id, _)| *id == volume.id());
        let attached = driver.attach(volume, flush_each_write);
        let device = attached.map_err(|failure| failure.to_string())?;
        if was_there || is_shared || volume.is_read_only() {
            return Ok(device);
        }
        if let Err(problem) = self.check_unwritten(volume) {
            driver.detach(volume).map_err(|failure| failure.to_string())?;
            return Err(problem.detail);
        }
        Ok(device)
    }

    /// Adds an entry to the list in memory, even if the list cannot be stored.
    fn note_attachment(&self, entry: Attached) {
        let name = entry.name.clone();
        if let Err(error) = self.attachments.note(entry) {
            self.tell_not_stored(&name, &error);
        }
    }

    fn tell_not_stored(&self, name: &str, error: &std::io::Error) {
        let problem = not_stored(name, error);
        let message = format!("{}; it is retried with the next change", problem.detail);
        self.events.warning("attachment_not_stored", Some(name), message);
    }

    fn describe_attachment(&self, entry: Attached) -> Attachment {
        let device = self.device_in(&entry);
        let Attached { name, attach_as, flush_each_write, .. } = entry;
        Attachment { volume: name, attach_as, device, flush_each_write }
    }

    fn drop_lost(&self, volume_id: u64) {
        let name = self.attachments.get(volume_id).map(|entry| entry.name);
        tracing::warn!(
            volume = name,
            volume_id,
            "removing the attachment of a volume that no longer exists"
        );
        if let Err(error) = self.attachments.note_gone(volume_id) {
            tracing::error!(%error, "cannot store the list of attachments");
        }
        self.note_holder(volume_id);
    }
}

/// Refuses `flush_each_write` for a read-only volume, and for a ublk device, which does not support
/// it.
fn check_flush_each_write(request: &AttachmentCreate, volume: &Volume) -> Result<(), Problem> {
    let why = match request.attach_as {
        _ if !request.flush_each_write => return Ok(()),
        _ if volume.is_read_only() => "is read-only: there are no writes to flush",
        AttachAs::Ublk => "cannot flush each write as a ublk device; attach it as loop",
        AttachAs::Auto | AttachAs::Loop => return Ok(()),
    };
    let detail = format!("volume {:?} {why}", request.volume);
    Err(Problem::new(ProblemKind::InvalidField, detail).in_field("flush_each_write"))
}

fn switched_off(reason: &str) -> Problem {
    let detail = format!("kernel block devices are not available: {reason}");
    Problem::new(ProblemKind::NotSupported, detail).in_field("as")
}

fn not_attached(name: &str) -> Problem {
    Problem::new(ProblemKind::NotFound, format!("volume {name:?} is not attached"))
}

/// Formats the devices whose programs wait while no daemon runs.
fn stop_warning(attachments: &[Attachment]) -> Option<String> {
    let device = |it: &Attachment| Some(format!("{}: {}", it.volume, it.device.as_ref()?));
    let devices: Vec<_> = attachments.iter().filter_map(device).collect();
    let count = u64::try_from(devices.len()).expect("a list fits in memory");
    (count > 0).then(|| {
        format!(
            "stopping with {} attached ({}): programs that use {} wait until the next start",
            counted(count, "volume"),
            devices.join(", "),
            if count == 1 { "it" } else { "them" }
        )
    })
}

fn not_stored(name: &str, error: &std::io::Error) -> Problem {
    let detail = format!("cannot store the attachment state of volume {name:?}: {error}");
    Problem::new(ProblemKind::HostFailed, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_warns_of_the_devices_that_then_wait() {
        let attachment = |volume: &str, device: Option<&str>| Attachment {
            volume: volume.to_owned(),
            attach_as: AttachAs::Loop,
            device: device.map(str::to_owned),
            flush_each_write: false,
        };
        let (db, log) =
            (attachment("db", Some("/dev/loop0")), attachment("log", Some("/dev/loop1")));
        // The attachment failed at the last start, so no program uses it.
        let failed = attachment("old", None);
        assert_eq!(stop_warning(&[]), None);
        assert_eq!(stop_warning(std::slice::from_ref(&failed)), None);
        let one = "stopping with 1 volume attached (db: /dev/loop0): programs that use it wait \
                   until the next start";
        assert_eq!(stop_warning(&[db.clone(), failed]).as_deref(), Some(one));
        let two = "stopping with 2 volumes attached (db: /dev/loop0, log: /dev/loop1): programs \
                   that use them wait until the next start";
        assert_eq!(stop_warning(&[db, log]).as_deref(), Some(two));
    }
}
