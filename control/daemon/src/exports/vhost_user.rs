//! Volumes as vhost-user disks of virtual machines, one socket each.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use adaptive_polling::{SPIN_MAX_DEFAULT, SpinPermits};
use anyhow::Context;
use block_device::BlockDevice;
use vhost_user::{Admission, Config, Export, ThreadBudget, Traffic};
use volumes::Volume;

use crate::accounts;
use crate::export_list::SocketRights;
use crate::http::AccessRule;
use crate::run_dir;
use crate::volume_users::VolumeUsers;

/// Maximum number of threads of all disks together. A disk has three threads and one for each
/// queue, up to the number of cores.
const THREAD_COUNT_MAX: usize = 512;

/// Maximum of the default number of queues of a disk.
const QUEUE_COUNT_DEFAULT_MAX: usize = 4;

/// Maximum time for requests in flight when a disk is removed.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Maximum length of a socket's path: `sun_path` without its terminator.
const SOCKET_PATH_BYTES_MAX: usize = 107;

const NO_PANIC: &str = "no thread panics with this lock";

/// The running exports, by volume id.
pub(crate) struct VhostUserExports {
    folder: PathBuf,
    rule: AccessRule,
    users: Arc<VolumeUsers>,
    threads: Arc<ThreadBudget>,
    spin_permits: Arc<SpinPermits>,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    exports: BTreeMap<u64, Export>,
    /// Traffic of exports that have ended.
    past: Traffic,
}

/// Traffic of machines since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VhostUserCounts {
    pub(crate) exports: u64,
    pub(crate) connected: u64,
    pub(crate) traffic: Traffic,
}

impl VhostUserExports {
    /// Creates `folder` for the sockets.
    pub(crate) fn new(
        folder: PathBuf,
        rule: AccessRule,
        users: Arc<VolumeUsers>,
        spin_permits: Arc<SpinPermits>,
    ) -> anyhow::Result<Self> {
        run_dir::make_dir(&folder, 0o755)?;
        let threads = Arc::new(ThreadBudget::new(THREAD_COUNT_MAX));
        Ok(Self { folder, rule, users, threads, spin_permits, running: Mutex::default() })
    }

    /// Number of queues of a disk if none is configured.
    pub(crate) fn queue_count_default() -> u16 {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        u16::try_from(cores.min(QUEUE_COUNT_DEFAULT_MAX)).expect("a small number")
    }

    /// Starts to serve a volume that is not served yet.
    pub(crate) fn begin(
        &self,
        volume: &Volume,
        device: Arc<dyn BlockDevice>,
        queue_count: u16,
        rights: SocketRights,
    ) -> anyhow::Result<()> {
        let volume_id = volume.id();
        let first_user = || accounts::uid_named(self.users.of(volume_id).first()?);
        let rights = SocketRights { owner_uid: rights.owner_uid.or_else(first_user), ..rights };
        let config = Config {
            socket: socket_path(&self.folder, &volume.name(), volume_id),
            admits: self.admission(volume_id, rights),
            serial: serial_of(volume_id),
            queue_count,
            threads: Arc::clone(&self.threads),
            spin_permits: Arc::clone(&self.spin_permits),
            spin_max: SPIN_MAX_DEFAULT,
        };
        let export =
            Export::start(config, device).context("cannot export the volume over vhost-user")?;
        self.rule.restrict(export.socket())?;
        rights.give_to(export.socket())?;
        self.running().exports.insert(volume.id(), export);
        Ok(())
    }

    /// Access rule of a socket: root, the daemon's user and group, the volume's users, and the
    /// owner and group configured for the socket.
    fn admission(&self, volume_id: u64, rights: SocketRights) -> Admission {
        let (rule, users) = (self.rule.clone(), Arc::clone(&self.users));
        Arc::new(move |peer| {
            let is_named = rights.owner_uid == Some(peer.uid)
                || rights.group_gid.is_some_and(|gid| peer.is_in_group(gid));
            is_named || rule.admits_peer(peer) || users.admits(volume_id, peer.uid)
        })
    }

    /// Closes the connection of a volume's front end. Returns whether there was one.
    pub(crate) fn disconnect(&self, volume_id: u64) -> bool {
        self.running().exports.get(&volume_id).is_some_and(Export::disconnect)
    }

    /// Removes a volume's disk, if it has one.
    pub(crate) fn end(&self, volume_id: u64) {
        let ended = self.running().exports.remove(&volume_id);
        let Some(export) = ended else { return };
        self.running().past += export.traffic();
        if !export.stop(END_PATIENCE) {
            tracing::warn!(volume_id, "removing a vhost-user disk with requests in flight");
        }
    }

    /// Removes all disks concurrently, within `time_max` for all together. Machines wait for the
    /// next daemon.
    pub(crate) fn stop(&self, time_max: Duration) {
        let deadline = Instant::now() + time_max;
        let exports = std::mem::take(&mut self.running().exports);
        exports.values().for_each(Export::end);
        for (volume_id, export) in exports {
            self.running().past += export.traffic();
            if !export.stop(deadline.saturating_duration_since(Instant::now())) {
                tracing::warn!(volume_id, "removing a vhost-user disk with requests in flight");
            }
        }
    }

    /// Announces the new size of a disk to its machine.
    pub(crate) fn resized(&self, volume_id: u64) {
        self.running().exports.get(&volume_id).into_iter().for_each(Export::resized);
    }

    /// Path of a volume's socket, while it is served.
    pub(crate) fn socket_of(&self, volume_id: u64) -> Option<String> {
        let running = self.running();
        running.exports.get(&volume_id).map(|export| export.socket().display().to_string())
    }

    pub(crate) fn is_connected(&self, volume_id: u64) -> bool {
        self.running().exports.get(&volume_id).is_some_and(Export::is_connected)
    }

    pub(crate) fn folder(&self) -> String {
        self.folder.display().to_string()
    }

    pub(crate) fn counts(&self) -> VhostUserCounts {
        let running = self.running();
        let mut traffic = running.past;
        running.exports.values().for_each(|export| traffic += export.traffic());
        let connected = running.exports.values().filter(|export| export.is_connected()).count();
        VhostUserCounts {
            exports: running.exports.len() as u64,
            connected: connected as u64,
            traffic,
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().expect(NO_PANIC)
    }
}

impl SocketRights {
    /// Applies the rights to a socket that has the default ones.
    fn give_to(self, socket: &Path) -> anyhow::Result<()> {
        let doing = |what: &str| format!("cannot change the {what} of {}", socket.display());
        if self.owner_uid.is_some() || self.group_gid.is_some() {
            std::os::unix::fs::chown(socket, self.owner_uid, self.group_gid)
                .with_context(|| doing("owner"))?;
        }
        if let Some(mode) = self.mode {
            std::fs::set_permissions(socket, Permissions::from_mode(mode))
                .with_context(|| doing("mode"))?;
        }
        Ok(())
    }
}

/// Path of a volume's socket. It contains the volume's name, or its id if the path would be too
/// long for the kernel, as with long names of snapshots.
fn socket_path(folder: &Path, name: &str, volume_id: u64) -> PathBuf {
    let path = folder.join(format!("{name}.sock"));
    match path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        true => path,
        false => folder.join(format!("{}.sock", api::numbered_socket(volume_id))),
    }
}

/// Serial number of the disk in the machine: `memlane-` and the volume's id.
fn serial_of(volume_id: u64) -> [u8; 20] {
    let text = format!("memlane-{volume_id:x}");
    let mut serial = [0; 20];
    serial.iter_mut().zip(text.bytes()).for_each(|(place, letter)| *place = letter);
    serial
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_the_name_of_its_volume_if_the_kernel_takes_that() {
        let folder = Path::new("/run/memlane/vhost");
        let name = |length: usize| "v".repeat(length);
        let path = |length| socket_path(folder, &name(length), 0x2a);
        assert_eq!(path(83), folder.join(format!("{}.sock", name(83))));
        assert_eq!(path(83).as_os_str().len(), SOCKET_PATH_BYTES_MAX);
        assert_eq!(path(84), Path::new("/run/memlane/vhost/@2a.sock"));
    }

    #[test]
    fn a_serial_number_names_the_volume() {
        assert_eq!(&serial_of(0x2a), b"memlane-2a\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(&serial_of(u64::MAX), b"memlane-ffffffffffff");
    }
}
