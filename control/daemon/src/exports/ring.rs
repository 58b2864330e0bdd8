//! Volumes over rings in shared memory, with access control by user.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adaptive_polling::{SPIN_MAX_DEFAULT, SpinPermits};
use anyhow::Context;
use api::RingStatus;
use block_device::{BlockDevice, ReadOnly};
use fuse::FileId;
use ring_server::{Access, Config, OpenVolume, Peer, Quota, Refusal, Server, Target, Volumes};
use rustix::io::Errno;
use volumes::Volume;

use crate::exports::{Catalog, KernelDevices};
use crate::http::AccessRule;
use crate::volume_users::VolumeUsers;

/// Limits on the number of clients. A process has one client or more for each volume that it has
/// open.
const QUOTA: Quota = Quota { total: 512, per_user: 256, reserved: 64 };

/// Maximum time for a client to send its open request, which it normally sends right after
/// connecting.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(2);

/// The running server. After [`RingExport::stop`] it reports no clients.
pub(crate) struct RingExport {
    server: Mutex<Option<Server>>,
    socket: String,
}

/// Dependencies of the ring server.
pub(crate) struct RingParts {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) rule: AccessRule,
    pub(crate) users: Arc<VolumeUsers>,
    pub(crate) spin_permits: Arc<SpinPermits>,
    /// Driver of loop devices, and the mount point of its file system. `None` if there is none.
    pub(crate) devices: Option<(Arc<dyn KernelDevices>, PathBuf)>,
    /// Driver of ublk devices.
    pub(crate) ublk: Option<Arc<dyn KernelDevices>>,
}

impl RingExport {
    pub(crate) fn start(socket: &Path, parts: RingParts) -> anyhow::Result<Self> {
        let RingParts { catalog, rule, users, spin_permits, devices, ublk } = parts;
        let config = Config {
            path: socket.to_owned(),
            quota: QUOTA,
            handshake_time_max: HANDSHAKE_TIME_MAX,
            spin_permits,
            spin_max: SPIN_MAX_DEFAULT,
        };
        let door = Arc::new(Door { catalog, rule, users, devices, ublk });
        let server = Server::start(config, door).context("cannot serve rings")?;
        let socket = socket.display().to_string();
        tracing::info!(socket, "serving rings in shared memory");
        Ok(Self { server: Mutex::new(Some(server)), socket })
    }

    pub(crate) fn client_count_of(&self, volume: &Volume) -> usize {
        let server = self.server.lock().expect(NO_PANIC);
        server.as_ref().map_or(0, |server| server.client_count_of(volume.id()))
    }

    /// Returns whether the thread of a disconnected client has not ended yet.
    pub(crate) fn is_closing(&self, volume: &Volume) -> bool {
        let server = self.server.lock().expect(NO_PANIC);
        server.as_ref().is_some_and(|server| server.is_closing(volume.id()))
    }

    /// Disconnects a volume's clients. Returns their number.
    pub(crate) fn disconnect(&self, volume: &Volume) -> usize {
        let server = self.server.lock().expect(NO_PANIC);
        server.as_ref().map_or(0, |server| server.disconnect(volume.id()))
    }

    /// Tells the volume's clients its new size.
    pub(crate) fn resized(&self, volume: &Volume) {
        if let Some(server) = &*self.server.lock().expect(NO_PANIC) {
            server.resized(volume.id());
        }
    }

    pub(crate) fn status(&self) -> RingStatus {
        let clients = self.server_status().client_count() as u64;
        RingStatus { socket: self.socket.clone(), clients }
    }

    /// Disconnects all clients. They reconnect to the next daemon and repeat unanswered requests.
    pub(crate) fn stop(&self, time_max: Duration) {
        let server = self.server.lock().expect(NO_PANIC).take();
        let left_count = server.map_or(0, |server| server.stop(time_max));
        if left_count > 0 {
            tracing::warn!(left_count, "abandoning ring clients that did not disconnect in time");
        }
    }

    /// Traffic of clients since the start.
    pub(crate) fn server_status(&self) -> ring_server::Status {
        self.server.lock().expect(NO_PANIC).as_ref().map(Server::status).unwrap_or_default()
    }
}

const NO_PANIC: &str = "no thread panics with this lock";

/// Access control for clients.
struct Door {
    catalog: Arc<Catalog>,
    rule: AccessRule,
    users: Arc<VolumeUsers>,
    devices: Option<(Arc<dyn KernelDevices>, PathBuf)>,
    ublk: Option<Arc<dyn KernelDevices>>,
}

impl Volumes for Door {
    fn admits(&self, peer: &Peer) -> bool {
        self.rule.admits_peer(peer) || self.users.admits_somewhere(peer.uid)
    }

    fn open(&self, target: &Target, peer: &Peer) -> Result<OpenVolume, Refusal> {
        let volume = match self.rule.admits_peer(peer) {
            true => self.find(target).ok_or_else(|| not_found(target))?,
            false => {
                let may_use = |volume: &Arc<Volume>| self.users.admits(volume.id(), peer.uid);
                self.find(target).filter(may_use).ok_or_else(|| not_for(peer.uid, target))?
            }
        };
        let device: Arc<dyn BlockDevice> = match target {
            Target::Name(_) | Target::VolumeId(_) => self.catalog.device_beside(&volume),
            // The process that opened the device or file is the volume's exclusive user.
            Target::DeviceNumber { .. } | Target::File { .. } => self.catalog.device(&volume),
            // A reconnecting client keeps its access: a later exclusive user does not revoke it,
            // and the end of an earlier one does not extend it.
            Target::Again { access: Access::ReadWrite, .. } => self.catalog.device(&volume),
            Target::Again { access: Access::ReadOnly, .. } => {
                Arc::new(ReadOnly(self.catalog.device(&volume)))
            }
        };
        Ok(OpenVolume { id: volume.id(), name: volume.name(), device })
    }
}

impl Door {
    fn find(&self, target: &Target) -> Option<Arc<Volume>> {
        match target {
            Target::Name(name) => self.catalog.by_name(name),
            Target::VolumeId(id) | Target::Again { volume_id: id, .. } => self.catalog.by_id(*id),
            Target::DeviceNumber { major, minor } => self.by_device(*major, *minor),
            Target::File { device, inode } => self.by_file(*device, *inode),
        }
    }

    fn by_device(&self, major: u32, minor: u32) -> Option<Arc<Volume>> {
        let is_meant = |path: &str| {
            std::fs::metadata(path).is_ok_and(|it| {
                let number = it.rdev();
                (rustix::fs::major(number), rustix::fs::minor(number)) == (major, minor)
            })
        };
        let on_loop = self.devices.as_ref().map(|(devices, _)| devices);
        let mut attached = on_loop.into_iter().chain(&self.ublk).flat_map(|it| it.devices());
        let (id, _) = attached.find(|(_, path)| is_meant(path))?;
        self.catalog.by_id(id)
    }

    fn by_file(&self, device: u64, inode: u64) -> Option<Arc<Volume>> {
        let (_, mount_point) = self.devices.as_ref()?;
        let is_here = std::fs::metadata(mount_point).is_ok_and(|it| it.dev() == device);
        let id = FileId::of_inode(inode).filter(|_| is_here)?;
        self.catalog.by_id(id.0)
    }
}

/// The error is the same for a missing volume and for a volume without permission.
fn not_for(uid: u32, target: &Target) -> Refusal {
    let (errno, message) = match target {
        Target::Name(name) => {
            let message = format!(
                "permission denied: user {uid} may not use volume {name:?}, if it exists; allow \
                 it with: memlane volume set {name} users={uid}"
            );
            (Errno::ACCESS, message)
        }
        Target::VolumeId(id) | Target::Again { volume_id: id, .. } => (
            Errno::NOENT,
            format!("permission denied: user {uid} may not use the volume with id {id}"),
        ),
        Target::DeviceNumber { major, minor } => {
            let message = format!(
                "permission denied: user {uid} may not use the volume attached as device \
                 {major}:{minor}"
            );
            (Errno::NOENT, message)
        }
        Target::File { .. } => (
            Errno::NOENT,
            format!("permission denied: user {uid} may not use the volume of that file"),
        ),
    };
    Refusal { errno: errno.raw_os_error(), message }
}

fn not_found(target: &Target) -> Refusal {
    let message = match target {
        Target::Name(name) => format!("no volume {name:?}; see memlane volume list"),
        Target::VolumeId(id) | Target::Again { volume_id: id, .. } => {
            format!("the volume with id {id} was deleted")
        }
        Target::DeviceNumber { major, minor } => {
            format!("no volume is attached as device {major}:{minor}")
        }
        Target::File { .. } => "the file is not a volume of this daemon".to_owned(),
    };
    Refusal { errno: Errno::NOENT.raw_os_error(), message }
}

#[cfg(test)]
mod tests {
    use block_device::DeviceErrorKind;

    use super::*;

    const STRANGER: u32 = 4_000_001;

    /// Access control for volumes `a`, which another user may use, and `b`.
    fn door(folder: &Path) -> Door {
        let catalog = Arc::new(Catalog::in_folder(folder, &["a", "b"]));
        let users = Arc::new(VolumeUsers::read(folder).expect("an empty list"));
        let a = catalog.by_name("a").expect("it was made");
        users.set(a.id(), vec![STRANGER.to_string()]).expect("it is stored");
        Door { catalog, rule: AccessRule::of_this_host(), users, devices: None, ublk: None }
    }

    fn peer(uid: u32) -> Peer {
        Peer { uid, gid: uid, ..Peer::default() }
    }

    fn by_name(name: &str) -> Target {
        Target::Name(name.to_owned())
    }

    #[test]
    fn who_may_use_one_volume_is_told_of_no_other() {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let door = door(dir.path());
        let stranger = peer(STRANGER);
        assert!(door.admits(&stranger) && !door.admits(&peer(STRANGER + 1)));
        assert_eq!(door.open(&by_name("a"), &stranger).expect("it may").name, "a");
        let b = door.open(&by_name("b"), &peer(0)).expect("root may");
        let refusal = |target: Target| {
            let Refusal { errno, message } =
                door.open(&target, &stranger).err().expect("it may not");
            (errno, message)
        };
        let (of_b, of_none) = (refusal(by_name("b")), refusal(by_name("x")));
        assert_eq!((of_b.0, of_b.1.replace('b', "x")), (of_none.0, of_none.1.replace('b', "x")));
        let (of_b, of_none) = (refusal(Target::VolumeId(b.id)), refusal(Target::VolumeId(1)));
        let id = b.id.to_string();
        assert_eq!((of_b.0, of_b.1.replace(&id, "1")), of_none);
    }

    #[test]
    fn what_others_have_for_themselves_is_only_read_by_those_who_open_it_afterwards() {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let door = door(dir.path());
        let open = |target: Target| door.open(&target, &peer(0)).expect("root may");
        let write = |target: Target, byte: u8| {
            let written = open(target).device.write(0, &[byte; 4096]);
            written.map_err(|error| error.kind)
        };
        let id = open(by_name("a")).id;
        let again = |access| Target::Again { volume_id: id, access };
        assert_eq!(write(by_name("a"), 7), Ok(()), "nobody else has it");
        door.catalog.note_holder(id, Some("a device".to_owned()));
        for beside in [by_name("a"), Target::VolumeId(id), again(Access::ReadOnly)] {
            assert!(open(beside.clone()).device.is_read_only(), "{beside:?}");
            assert_eq!(write(beside, 8), Err(DeviceErrorKind::ReadOnly));
        }
        let mut found = [0; 4096];
        open(by_name("a")).device.read(0, &mut found).expect("it may be read");
        assert_eq!(found, [7; 4096]);
        assert_eq!(write(again(Access::ReadWrite), 9), Ok(()), "it was there before");
        door.catalog.note_holder(id, None);
        assert_eq!(write(by_name("a"), 7), Ok(()), "nobody else has it any more");
        assert_eq!(write(again(Access::ReadOnly), 8), Err(DeviceErrorKind::ReadOnly));
    }
}
