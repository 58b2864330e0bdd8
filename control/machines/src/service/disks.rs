//! Volumes as disks of machines: volumes, exports and access rights.

use std::collections::BTreeMap;

use api::{
    ByteSize, Capacity, CloneCreate, DiskKind, DiskProtocol, Export, ExportCreate, ExportProtocol,
    Method, Problem, ProblemKind, Reduction, SectorBytes, Volume, VolumeCreate, VolumeMirror,
    VolumePatch,
};
use sdk::Target;

use super::{Service, daemon_problem, libvirt_problem, unless_gone};
use crate::libvirt::{Connection, Domain};
use crate::seed::{SEED_BYTES, Seed};
use crate::template::Disk;

/// Maximum number of queues of a vhost-user disk.
const QUEUE_COUNT_MAX: u32 = 16;

/// Size of the blocks in which a seed volume is written. Zero blocks are skipped.
const BLOCK_BYTES: usize = 4096;

/// A completed step, which is undone if a later one fails.
pub(super) enum Done {
    /// Created volume.
    Made(String),
    Exported(String),
    /// QEMU's user was added to the volume's users.
    Allowed(String),
    Defined(Domain),
    Started(Domain),
}

impl Service {
    /// Prepares a volume as a disk of a machine with `cpus` processors.
    pub(super) fn ready_disk(
        &self,
        volume: &str,
        protocol: DiskProtocol,
        cpus: u32,
        done: &mut Vec<Done>,
    ) -> Result<Disk, Problem> {
        match protocol {
            DiskProtocol::VhostUser => {
                let export = self.export(volume, cpus)?;
                done.push(Done::Exported(volume.to_owned()));
                Ok(Disk::VhostUser { socket: socket_of(&export)?, queues: export.queues })
            }
            DiskProtocol::Nbd => {
                self.allow(volume)?;
                done.push(Done::Allowed(volume.to_owned()));
                let socket = self.sockets.nbd.to_string_lossy().into_owned();
                Ok(Disk::Nbd { socket, volume: volume.to_owned() })
            }
        }
    }

    /// Undoes [`Self::ready_disk`] for a detached volume.
    pub(super) fn release_disk(&self, volume: &str, kind: DiskKind) -> Result<(), Problem> {
        match kind {
            DiskKind::VhostUser => unless_gone(self.delete_export(volume)),
            DiskKind::Nbd => unless_gone(self.disallow(volume)),
            DiskKind::File | DiskKind::Other => Ok(()),
        }
    }

    /// Undoes steps in reverse order.
    pub(super) fn undo(&self, libvirt: &mut Connection, done: Vec<Done>) {
        for step in done.into_iter().rev() {
            let undone = match &step {
                Done::Made(volume) => self.delete_volume(volume),
                Done::Exported(volume) => self.delete_export(volume),
                Done::Allowed(volume) => self.disallow(volume),
                Done::Defined(domain) => {
                    libvirt.undefine(domain).map_err(libvirt_problem(&domain.name))
                }
                Done::Started(domain) => {
                    libvirt.kill(domain).map_err(libvirt_problem(&domain.name))
                }
            };
            if let Err(problem) = undone {
                tracing::warn!(%problem, "cannot undo a part of a failed machine creation");
            }
        }
    }

    /// Fails if a machine uses the volume as a disk.
    pub(super) fn check_unused(
        &self,
        libvirt: &mut Connection,
        volume: &str,
    ) -> Result<(), Problem> {
        for machine in self.all_shown(libvirt)? {
            if machine.volumes.iter().any(|used| used == volume) {
                let detail =
                    format!("volume {volume:?} is in use as a disk of machine {:?}", machine.name);
                return Err(Problem::new(ProblemKind::InUse, detail).in_field("volume"));
            }
        }
        Ok(())
    }

    /// Exports a volume on a socket that QEMU's user may open. If QEMU were not permitted to open
    /// it, QEMU and libvirt would wait forever.
    fn export(&self, volume: &str, cpus: u32) -> Result<Export, Problem> {
        let request = ExportCreate {
            volume: volume.to_owned(),
            protocol: ExportProtocol::VhostUser,
            queues: u16::try_from(cpus.min(QUEUE_COUNT_MAX)).ok(),
            share: false,
            owner: Some(self.machine_user.clone()),
            group: None,
            mode: None,
        };
        self.daemon.ask(Method::Post, api::EXPORTS_PATH, &request).map_err(daemon_problem)
    }

    pub(super) fn delete_export(&self, volume: &str) -> Result<(), Problem> {
        let path = api::path_of(api::EXPORT_PATH, volume);
        let path = api::with_query(&path, &[("force", "true")]);
        self.daemon.delete(&path).map_err(daemon_problem)
    }

    /// Adds QEMU's user to the volume's users.
    fn allow(&self, volume: &str) -> Result<(), Problem> {
        let mut users = self.volume(volume)?.users;
        if !users.contains(&self.machine_user) {
            users.push(self.machine_user.clone());
            self.set_users(volume, users)?;
        }
        Ok(())
    }

    pub(super) fn disallow(&self, volume: &str) -> Result<(), Problem> {
        let mut users = self.volume(volume)?.users;
        users.retain(|user| *user != self.machine_user);
        self.set_users(volume, users)
    }

    fn set_users(&self, volume: &str, users: Vec<String>) -> Result<(), Problem> {
        let path = api::path_of(api::VOLUME_PATH, volume);
        let patch = VolumePatch { users: Some(users), ..VolumePatch::default() };
        let changed: Result<Volume, _> = self.daemon.ask(Method::Patch, &path, &patch);
        changed.map(drop).map_err(daemon_problem)
    }

    fn volume(&self, volume: &str) -> Result<Volume, Problem> {
        self.daemon.get(&api::path_of(api::VOLUME_PATH, volume)).map_err(daemon_problem)
    }

    pub(super) fn clone_volume(&self, source: &str, name: &str) -> Result<(), Problem> {
        let path = api::path_of(api::CLONE_PATH, source);
        let clone = CloneCreate { name: name.to_owned() };
        let made: Result<Volume, _> = self.daemon.ask(Method::Post, &path, &clone);
        made.map(drop).map_err(daemon_problem)
    }

    pub(super) fn create_volume(&self, name: &str, size: ByteSize) -> Result<(), Problem> {
        self.create_volume_as(&volume_request(name, size))
    }

    fn create_volume_as(&self, request: &VolumeCreate) -> Result<(), Problem> {
        let made: Result<Volume, _> = self.daemon.ask(Method::Post, api::VOLUMES_PATH, request);
        made.map(drop).map_err(daemon_problem)
    }

    /// Creates an empty seed volume with the durability class of the volume `beside`.
    pub(super) fn create_seed(&self, name: &str, beside: &str) -> Result<(), Problem> {
        let durability = self.volume(beside)?.durability;
        let request = volume_request(name, ByteSize(SEED_BYTES as u64));
        self.create_volume_as(&VolumeCreate { durability, ..request })
    }

    pub(super) fn fill_seed(
        &self,
        volume: &str,
        machine: &str,
        user_data: &str,
        network_config: Option<&str>,
    ) -> Result<(), Problem> {
        let instance = format!("memlane-{:x}", self.volume(volume)?.id);
        let seed = Seed { name: machine, instance: &instance, user_data, network_config };
        let failed = |error: &dyn std::fmt::Display| {
            let detail = format!("cannot write the cloud-init data to volume {volume}: {error}");
            Problem::new(ProblemKind::HostFailed, detail)
        };
        let image = seed.image().map_err(|error| failed(&error))?;
        let client = sdk::Client::connect(&self.sockets.ring).map_err(|error| failed(&error))?;
        let device = client.open(&Target::Name(volume.to_owned()));
        let device = device.map_err(|error| failed(&error))?;
        for (number, block) in image.chunks(BLOCK_BYTES).enumerate() {
            if block.iter().any(|&byte| byte != 0) {
                let offset = (number * BLOCK_BYTES) as u64;
                device.write(offset, block).map_err(|error| failed(&error))?;
            }
        }
        device.flush().map_err(|error| failed(&error))
    }

    pub(super) fn delete_volume(&self, volume: &str) -> Result<(), Problem> {
        self.daemon.delete(&api::path_of(api::VOLUME_PATH, volume)).map_err(daemon_problem)
    }
}

fn volume_request(name: &str, size: ByteSize) -> VolumeCreate {
    VolumeCreate {
        name: name.to_owned(),
        size,
        sector_bytes: SectorBytes::default(),
        reduction: Reduction::default(),
        durability: api::Durability::default(),
        capacity: Capacity::default(),
        mirror: VolumeMirror::default(),
        owner: String::new(),
        labels: BTreeMap::new(),
    }
}

/// Returns the socket of an export. Fails if the daemon does not currently serve it.
pub(super) fn socket_of(export: &Export) -> Result<String, Problem> {
    export.socket.clone().ok_or_else(|| {
        let detail = format!(
            "memlaned does not serve the vhost-user export of {}; see memlane export list",
            export.volume
        );
        Problem::new(ProblemKind::HostFailed, detail)
    })
}
