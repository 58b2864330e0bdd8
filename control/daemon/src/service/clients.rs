//! Clients of volumes, and their disconnection.

use std::thread;
use std::time::{Duration, Instant};

use api::{AttachAs, Disconnected, Problem, counted};
use volumes::Volume;

use crate::attachments::{Attached, AttachmentList};
use crate::export_list::{ExportEntry, ExportList};
use crate::exports::{Catalog, KernelDevices, OtherUser};
use crate::service::{Devices, Service};

/// Maximum time that a change waits for connections whose clients have disconnected.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(1);

/// Treatment of clients of a volume that is to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    /// The operation is refused while there are clients.
    Respected,
    Disconnected,
}

impl Service {
    /// Disconnects all clients of a volume. They may reconnect.
    pub(crate) fn disconnect_volume(&self, name: &str) -> Result<Disconnected, Problem> {
        let volume = self.engine.volume(name).map_err(|e| super::refusals::of_volume(&e))?;
        let gone = self.disconnect(&volume);
        tracing::info!(volume = name, ?gone, "clients disconnected");
        Ok(gone)
    }

    /// Disconnects all clients of this volume.
    pub(super) fn disconnect(&self, volume: &Volume) -> Disconnected {
        let nbd = self.nbd.as_ref().map_or(0, |nbd| nbd.disconnect(volume));
        Disconnected {
            nbd: nbd as u64,
            ring: self.ring.disconnect(volume) as u64,
            vhost_user: u64::from(self.vhost_user.disconnect(volume.id())),
        }
    }

    /// Waits until connections whose clients have disconnected are closed, for at most a second.
    /// For changes that a user of the volume prevents: a client that has ended is none. Must not be
    /// called with the volume locked.
    pub(super) fn await_closing(&self, volume: &Volume) {
        let deadline = Instant::now() + CLOSING_TIME_MAX;
        let of_nbd = || self.nbd.as_ref().is_some_and(|nbd| nbd.is_closing(volume));
        while (of_nbd() || self.ring.is_closing(volume)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// User of the volume, with advice.
    pub(super) fn user_of(&self, volume: &Volume) -> Option<String> {
        let user = self.device_user_of(volume).or_else(|| self.export_user_of(volume));
        let user = user.or_else(|| self.nbd_user_of(volume));
        let user = user.or_else(|| self.ring_user_of(volume));
        user.or_else(|| self.file_user_of(volume).map(|user| user.words))
    }

    /// Attached device of the volume, with advice. A device in use cannot be removed.
    pub(super) fn device_user_of(&self, volume: &Volume) -> Option<String> {
        self.attachments.get(volume.id())?;
        let device = self.device_of(volume);
        let device = device.as_deref().unwrap_or("a device that no longer exists");
        Some(format!("it is attached as {device}; detach it first"))
    }

    /// Device of an attached volume, if it exists and was not removed manually.
    pub(super) fn device_of(&self, volume: &Volume) -> Option<String> {
        self.device_in(&self.attachments.get(volume.id())?)
    }

    /// Device of a list entry, if it exists and was not removed manually.
    pub(super) fn device_in(&self, entry: &Attached) -> Option<String> {
        let is_there = self.driver(entry.attach_as)?.has_device(entry.volume_id);
        entry.device.clone().filter(|_| is_there)
    }

    /// Process that has the volume's file open.
    pub(super) fn file_user_of(&self, volume: &Volume) -> Option<OtherUser> {
        let Devices::On { devices, .. } = &self.devices else { return None };
        devices.other_user(volume).unwrap_or_else(|failure| {
            let words = format!("cannot determine which processes have its file open: {failure}");
            Some(OtherUser { words, writes: true })
        })
    }

    /// Export of the volume, with advice. It counts as a user as soon as it is created.
    pub(super) fn export_user_of(&self, volume: &Volume) -> Option<String> {
        let name = volume.name();
        self.exports
            .get(volume.id())
            .map(|_| format!("it is exported over vhost-user; delete the export {name:?} first"))
    }

    /// Makes a volume read-only for other clients while a device or machine uses it exclusively.
    pub(super) fn note_holder(&self, volume_id: u64) {
        let attached = self.attachments.get(volume_id);
        let exported = self.exports.get(volume_id);
        let is_listed = attached.is_some();
        let holder = holder_of(attached, exported);
        let holder = holder.or_else(|| self.left_device_of(volume_id).filter(|_| !is_listed));
        self.catalog.note_holder(volume_id, holder);
    }

    pub(super) fn driver(&self, way: AttachAs) -> Option<&dyn KernelDevices> {
        match (way, &self.devices) {
            (AttachAs::Ublk, _) => self.ublk.as_deref(),
            (AttachAs::Loop | AttachAs::Auto, Devices::On { devices, .. }) => Some(&**devices),
            (AttachAs::Loop | AttachAs::Auto, Devices::Off { .. }) => None,
        }
    }

    /// Device of the volume that is not in the list, because neither storing nor undoing succeeded.
    fn left_device_of(&self, volume_id: u64) -> Option<String> {
        let drivers = [AttachAs::Loop, AttachAs::Ublk].map(|way| self.driver(way));
        let devices = drivers.into_iter().flatten().flat_map(|driver| driver.devices());
        let (_, device) = devices.into_iter().find(|(id, _)| *id == volume_id)?;
        Some(format!("left as {device}"))
    }

    fn ring_user_of(&self, volume: &Volume) -> Option<String> {
        let client_count = self.ring.client_count_of(volume);
        (client_count > 0).then(|| is_open_in(client_count, "ring client", &volume.name()))
    }

    /// NBD connections of the volume, with advice. NBD clients identify a volume by its name.
    pub(super) fn nbd_user_of(&self, volume: &Volume) -> Option<String> {
        let connection_count = self.nbd_connection_count_of(volume);
        (connection_count > 0)
            .then(|| is_open_in(connection_count, "NBD connection", &volume.name()))
    }

    pub(super) fn nbd_connection_count_of(&self, volume: &Volume) -> usize {
        self.nbd.as_ref().map_or(0, |nbd| nbd.connection_count_of(volume))
    }
}

/// Describes clients that have a volume open, with advice.
fn is_open_in(count: usize, client: &str, name: &str) -> String {
    let clients = counted(count as u64, client);
    format!(
        "it is open in {clients}; stop the programs, or run memlane volume disconnect {name}, and \
         try again"
    )
}

/// Records the exclusive users of volumes at the end of the last daemon. `devices` were found, with
/// the ids of their volumes. Those in no list were about to be attached or detached.
pub(crate) fn note_holders(
    catalog: &Catalog,
    attachments: &AttachmentList,
    exports: &ExportList,
    devices: Vec<(u64, String)>,
) {
    for (volume_id, device) in devices {
        if attachments.get(volume_id).is_none() {
            catalog
                .note_holder(volume_id, Some(format!("attached as {device} by an earlier daemon")));
        }
    }
    let attached = attachments.all().into_iter().map(|entry| entry.volume_id);
    let exported = exports.all().into_iter().map(|entry| entry.volume_id);
    for volume_id in attached.chain(exported) {
        let holder = holder_of(attachments.get(volume_id), exports.get(volume_id));
        if let Some(holder) = holder {
            catalog.note_holder(volume_id, Some(holder));
        }
    }
}

/// Exclusive user of a volume according to the lists. A failed device may still exist, with a
/// mounted file system.
fn holder_of(attached: Option<Attached>, exported: Option<ExportEntry>) -> Option<String> {
    let attached = attached.filter(|entry| !entry.is_shared).map(|entry| {
        let device = entry.device.as_deref().unwrap_or("a device that does not exist yet");
        format!("attached as {device}")
    });
    let exported = exported.filter(|entry| !entry.share);
    attached.or_else(|| exported.map(|_| "exported over vhost-user".to_owned()))
}
