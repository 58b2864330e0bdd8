//! Clients of volumes: what they are, and how they are sent away.

use api::{Disconnected, Problem};
use volumes::Volume;

use crate::service::Service;

/// What becomes of clients that use something that is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    /// They are a reason to refuse.
    Respected,
    Disconnected,
}

impl Service {
    /// Ends the connections of all clients of a volume. They may come back.
    pub(crate) fn disconnect_volume(&self, name: &str) -> Result<Disconnected, Problem> {
        let volume = self.engine.volume(name).map_err(|e| super::refusals::of_volume(&e))?;
        let gone = self.disconnect(&volume);
        tracing::info!(volume = name, ?gone, "clients disconnected");
        Ok(gone)
    }

    /// The same of a volume at hand.
    pub(super) fn disconnect(&self, volume: &Volume) -> Disconnected {
        let nbd = self.nbd.as_ref().map_or(0, |nbd| nbd.disconnect(volume));
        Disconnected {
            nbd: nbd as u64,
            ring: self.ring.disconnect(volume) as u64,
            vhost_user: u64::from(self.vhost_user.disconnect(volume.id())),
        }
    }

    /// What uses the volume, and what to do about it.
    pub(super) fn user_of(&self, volume: &Volume) -> Option<String> {
        let user = self.device_user_of(volume).or_else(|| self.export_user_of(volume));
        let user = user.or_else(|| self.nbd_user_of(volume));
        user.or_else(|| self.ring_user_of(volume))
    }

    /// A device that is in use cannot be taken from the kernel.
    pub(super) fn device_user_of(&self, volume: &Volume) -> Option<String> {
        let device = self.attachments.get(volume.id())?.device;
        let device = device.as_deref().unwrap_or("a device that failed");
        Some(format!("it is attached as {device}; detach it first"))
    }

    /// The device of an attached volume, if it could be made.
    pub(super) fn device_of(&self, volume: &Volume) -> Option<String> {
        self.attachments.get(volume.id())?.device
    }

    /// An export uses the volume from the time when it is made.
    pub(super) fn export_user_of(&self, volume: &Volume) -> Option<String> {
        let name = volume.name();
        self.exports.get(volume.id()).map(|_| {
            format!("it is exported to virtual machines; delete the export {name:?} first")
        })
    }

    /// Lets others only read a volume that a device or a machine has for itself.
    pub(super) fn note_holder(&self, volume_id: u64) {
        let attached = self.attachments.get(volume_id).filter(|entry| !entry.is_shared);
        let device = attached.and_then(|entry| entry.device);
        let is_exported = self.exports.get(volume_id).is_some_and(|entry| !entry.share);
        let exported = is_exported.then(|| "exported to virtual machines".to_owned());
        let holder = device.map(|device| format!("attached as {device}")).or(exported);
        self.catalog.note_holder(volume_id, holder);
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
}
