//! Exports of volumes as disks of virtual machines, restored after a restart.

use std::sync::Arc;

use api::{Export, ExportCreate, Problem, ProblemKind};
use block_device::BlockDevice;
use volumes::Volume;

use crate::accounts;
use crate::export_list::{ExportEntry, SocketRights};
use crate::exports::VhostUserExports;
use crate::service::{Clients, Service, refusals};

/// Valid numbers of queues of a disk.
const QUEUE_COUNTS: std::ops::RangeInclusive<u16> = 1..=vhost_user::QUEUE_COUNT_MAX;

impl Service {
    /// Lists all exports, by name.
    pub(crate) fn list_exports(&self) -> Vec<Export> {
        let mut list: Vec<_> =
            self.exports.all().into_iter().map(|entry| self.describe_export(entry)).collect();
        list.sort_by(|left, right| left.volume.cmp(&right.volume));
        list
    }

    pub(crate) fn show_export(&self, name: &str) -> Result<Export, Problem> {
        let volume = self.volume(name)?;
        let entry = self.exports.get(volume.id());
        entry.map(|entry| self.describe_export(entry)).ok_or_else(|| not_exported(name))
    }

    pub(crate) fn export_volume(&self, request: &ExportCreate) -> Result<Export, Problem> {
        let name = &request.volume;
        self.durable()?;
        let queues = request.queues.unwrap_or_else(VhostUserExports::queue_count_default);
        if !QUEUE_COUNTS.contains(&queues) {
            let (first, last) = (QUEUE_COUNTS.start(), QUEUE_COUNTS.end());
            let detail = format!("invalid queue count {queues}; use {first} to {last}");
            return Err(Problem::new(ProblemKind::InvalidField, detail).in_field("queues"));
        }
        let rights = rights_of(request)?;
        let _locked = self.changes.lock([name.as_str()]);
        let volume = self.volume(name).map_err(|problem| problem.in_field("volume"))?;
        if self.exports.get(volume.id()).is_some() {
            let detail = format!("volume {name:?} is already exported");
            return Err(Problem::new(ProblemKind::AlreadyExists, detail).in_field("volume"));
        }
        if !(request.share || volume.is_read_only())
            && let Some(device) = self.device_of(&volume)
        {
            let user = format!("attached as {device}");
            return Err(refusals::of_sharing(&volume, &user, "detach it first"));
        }
        if !(request.share || volume.is_read_only()) {
            self.check_unwritten(&volume)?;
        }
        let entry = ExportEntry {
            volume_id: volume.id(),
            volume: volume.name(),
            protocol: request.protocol,
            queues,
            share: request.share,
            rights,
        };
        if !request.share {
            // A machine may use the disk before this returns.
            self.catalog.note_holder(volume.id(), Some("being exported".to_owned()));
        }
        let exported = self.begin_and_list(&entry, &volume);
        self.note_holder(volume.id());
        exported?;
        tracing::info!(volume = name, queues, "volume exported");
        Ok(self.describe_export(entry))
    }

    fn begin_and_list(&self, entry: &ExportEntry, volume: &Arc<Volume>) -> Result<(), Problem> {
        let (name, device) = (&entry.volume, self.catalog.device(volume));
        self.vhost_user.begin(volume, device, entry.queues, entry.rights).map_err(|error| {
            let detail = format!("cannot export volume {name:?}: {error:#}");
            Problem::new(ProblemKind::HostFailed, detail)
        })?;
        self.exports.insert(entry.clone()).map_err(|error| {
            self.vhost_user.end(volume.id());
            not_stored(name, &error)
        })
    }

    pub(crate) fn unexport_volume(&self, name: &str, clients: Clients) -> Result<(), Problem> {
        let _locked = self.changes.lock([name]);
        let volume = self.volume(name)?;
        if self.exports.get(volume.id()).is_none() {
            return Err(not_exported(name));
        }
        if clients == Clients::Respected && self.vhost_user.is_connected(volume.id()) {
            let detail = format!(
                "volume {name:?} is in use as the disk of a running virtual machine; detach the \
                 disk or shut down the machine first"
            );
            return Err(Problem::new(ProblemKind::InUse, detail));
        }
        let stored = self.exports.remove(volume.id());
        stored.map_err(|error| not_stored(name, &error))?;
        self.vhost_user.end(volume.id());
        self.note_holder(volume.id());
        tracing::info!(volume = name, "export deleted");
        Ok(())
    }

    /// Removes the export of a deleted volume.
    pub(super) fn forget_export(&self, volume: &Volume) {
        self.vhost_user.end(volume.id());
        if let Err(error) = self.exports.note_gone(volume.id()) {
            // The next start removes the entry, because the volume does not exist.
            tracing::warn!(volume = volume.name(), %error, "cannot store the list of exports");
        }
        self.note_holder(volume.id());
    }

    /// Exports the volumes that were exported when the last daemon ended. Volumes that cannot be
    /// served stay in the list and in the status. A volume that was lost with its pool is removed
    /// from the list. Must be called before requests are served.
    pub(crate) fn restore_exports(&self) {
        for entry in self.exports.all() {
            let Some(volume) = self.catalog.by_id(entry.volume_id) else {
                tracing::warn!(
                    volume = entry.volume,
                    "removing the export of a volume that no longer exists"
                );
                if let Err(error) = self.exports.note_gone(entry.volume_id) {
                    tracing::error!(%error, "cannot store the list of exports");
                }
                self.note_holder(entry.volume_id);
                continue;
            };
            self.note_holder(volume.id());
            match self.vhost_user.begin(
                &volume,
                self.catalog.device(&volume),
                entry.queues,
                entry.rights,
            ) {
                Ok(()) => tracing::info!(volume = volume.name(), "export restored"),
                Err(error) => {
                    let reason = format!("{error:#}");
                    tracing::error!(volume = volume.name(), reason, "cannot restore the export");
                }
            }
        }
    }

    /// Lists exports that could not be served at the start.
    pub(super) fn failed_exports(&self) -> Vec<String> {
        let is_lost = |entry: &ExportEntry| self.vhost_user.socket_of(entry.volume_id).is_none();
        self.exports.all().into_iter().filter(is_lost).map(|entry| entry.volume).collect()
    }

    fn describe_export(&self, entry: ExportEntry) -> Export {
        Export {
            socket: self.vhost_user.socket_of(entry.volume_id),
            connected: self.vhost_user.is_connected(entry.volume_id),
            volume: entry.volume,
            protocol: entry.protocol,
            queues: entry.queues,
        }
    }
}

/// Resolves the requested owner and group to numeric ids.
fn rights_of(request: &ExportCreate) -> Result<SocketRights, Problem> {
    let wrong = |field: &'static str, detail: String| {
        Problem::new(ProblemKind::InvalidField, detail).in_field(field)
    };
    let ExportCreate { owner, group, mode, .. } = request;
    let no_user = |name: &String| wrong("owner", format!("no user {name:?} on this host"));
    let uid = |name: &String| accounts::uid_named(name).ok_or_else(|| no_user(name));
    let no_group = |name: &String| wrong("group", format!("no group {name:?} on this host"));
    let gid = |name: &String| accounts::gid_named(name).ok_or_else(|| no_group(name));
    let no_mode =
        |text: &String| wrong("mode", format!("invalid socket mode {text:?}; use 660 or 600"));
    let bits = |text: &String| {
        let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o777);
        bits.ok_or_else(|| no_mode(text))
    };
    Ok(SocketRights {
        owner_uid: owner.as_ref().map(uid).transpose()?,
        group_gid: group.as_ref().map(gid).transpose()?,
        mode: mode.as_ref().map(bits).transpose()?,
    })
}

fn not_exported(name: &str) -> Problem {
    Problem::new(ProblemKind::NotFound, format!("volume {name:?} is not exported"))
}

fn not_stored(name: &str, error: &std::io::Error) -> Problem {
    let detail = format!("cannot store the export of volume {name:?}: {error}");
    Problem::new(ProblemKind::HostFailed, detail)
}
