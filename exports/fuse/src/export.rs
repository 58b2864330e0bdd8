//! The export as the daemon uses it: started once, then volumes are attached and detached, then
//! stopped.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use block_device::{BlockDevice, WriteCache};
use export_kit::{AttachError, AttachErrorKind, Traffic};
use kernel::LoopDevice;

use crate::config::Config;
use crate::connection::Connection;
use crate::file_users::{FileUser, OpenFiles};
use crate::files::{FileId, Files, is_file_name};
use crate::helper_command::{Bound, DeviceShape, HelperCommand, Outcome};
use crate::kept::{Channel, KeptDescriptors, mount_new, take_over};
use crate::loop_devices::{Listed, Whose, bound_below, sequence_of};
use crate::mount;
use crate::schedule::WORKER_COUNT_MAX;
use crate::worker_pool::{WorkerPool, WorkerPoolOptions};

/// Maximum number of stale mounts that are removed from one mount point.
const STALE_MOUNTS_MAX: u32 = 16;

/// Maximum time for the kernel to report that a file was closed.
const CLOSING_PATIENCE: Duration = Duration::from_secs(1);

/// Polling interval during that time.
const CLOSING_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// State that is kept when an export stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The connection, by the fd store. Devices wait for the next process without errors.
    Connection,
    /// The connection, if any file is open or a process uses the directory; otherwise nothing.
    WhatIsUsed,
    /// Nothing. Requests of devices that are still attached fail.
    Nothing,
}

/// A volume attached as a loop device of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub file: FileId,
    pub device: PathBuf,
    number: u32,
}

/// A device whose connection is permanently lost. All its requests fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadDevice {
    pub device: PathBuf,
    /// Backing file of the device.
    pub file: PathBuf,
    number: u32,
    /// Sequence number of the dead binding.
    sequence: Option<u64>,
}

/// Origin of the export's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Mounted by this process.
    Mounted,
    /// Taken over from an earlier process. Its attached devices continue to work.
    TakenOver,
}

/// Volumes as files and loop devices of this host.
///
/// Dropping it has the effect of [`Keep::Connection`].
pub struct Export {
    config: Config,
    files: Arc<dyn Files>,
    connection: Arc<Connection>,
    /// Memory file of the requests in flight, and the identity of the connection in it.
    requests: OwnedFd,
    identity: u64,
    workers: WorkerPool,
    kept: KeptDescriptors,
    origin: Origin,
    open: Arc<OpenFiles>,
    /// Devices that were attached or found. They may have been removed since.
    known: Mutex<HashMap<FileId, Bound>>,
    dead: Vec<DeadDevice>,
    /// Held while devices are attached or detached, so that they are not removed concurrently.
    devices: Mutex<()>,
}

impl Export {
    /// Takes over the connection of an earlier process, or mounts a new one, and serves it. The
    /// caller ensures that only one process at a time exports to a mount point.
    pub fn start(mut config: Config, files: Arc<dyn Files>) -> Result<Self, AttachError> {
        assert!((1..=WORKER_COUNT_MAX).contains(&config.worker_count), "one to 64 workers");
        config.mount_point = mount::prepare(&config.mount_point).map_err(|error| {
            AttachError::at_path("use as mount point", &config.mount_point, error)
        })?;
        let kept = KeptDescriptors::new(&config);
        let mut dead = Vec::new();
        let (channel, origin) = match take_over(&config, &kept)? {
            Some(channel) => (channel, Origin::TakenOver),
            None => {
                dead = remove_stale_mounts(&config)?;
                (mount_new(&config, &kept)?, Origin::Mounted)
            }
        };
        let Channel { connection, requests, in_flight } = channel;
        let identity = in_flight.identity;
        let connection = Arc::new(connection);
        let plan = WorkerPoolOptions {
            worker_count: config.worker_count,
            permits: Arc::clone(&config.permits),
            spin_max: config.spin_max,
            stop_patience: config.stop_patience,
            thread_start: Arc::clone(&config.thread_start),
        };
        let open = Arc::new(OpenFiles::new());
        let workers = WorkerPool::start(
            &plan,
            Arc::clone(&connection),
            Arc::clone(&files),
            Arc::clone(&open),
            in_flight,
        );
        let workers = workers.map_err(|error| AttachError::of_call("start FUSE threads", error))?;
        let mut known = HashMap::new();
        match origin {
            Origin::TakenOver => (known, dead) = look_at_devices(&config, &*files)?,
            Origin::Mounted => tell_of_others(&config, &dead),
        }
        let (devices, known) = (Mutex::default(), Mutex::new(known));
        Ok(Self {
            config,
            files,
            connection,
            requests,
            identity,
            workers,
            kept,
            origin,
            open,
            known,
            dead,
            devices,
        })
    }

    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Dead devices that could not be removed because they are in use. A device is dead when the
    /// connection of an earlier process was lost with its fd store, or a volume with its pool. Its
    /// requests fail. An open device is removed when it is closed; a mounted one after it is
    /// unmounted, by [`Export::remove_dead_devices`].
    pub fn dead_devices(&self) -> Vec<&DeadDevice> {
        let is_there =
            |it: &&DeadDevice| it.sequence.is_some() && sequence_of(it.number) == it.sequence;
        self.dead.iter().filter(is_there).collect()
    }

    /// Removes dead devices that are no longer in use. Must be called periodically.
    pub fn remove_dead_devices(&self) {
        for dead in self.dead_devices() {
            let command = HelperCommand::Detach { number: dead.number, sequence: dead.sequence };
            let _alone = self.lock_devices();
            // A device that is still in use is retried by the next call.
            if self.config.helpers.send(&command).is_ok() {
                tracing::info!(device = %dead.device.display(), "removed a dead loop device");
            }
        }
    }

    /// Attaches a volume as a loop device, or returns its existing device. With `flush_each_write`
    /// a new device flushes each write and the kernel sends it no flushes; an existing device keeps
    /// its setting.
    pub fn attach(&self, name: &str, flush_each_write: bool) -> Result<Attachment, AttachError> {
        let (file, device) = self.find(name)?;
        let _alone = self.lock_devices();
        self.refresh_fd_store()?;
        let command = HelperCommand::Attach {
            mount_point: self.config.mount_point.clone(),
            name: name.to_owned(),
            shape: DeviceShape {
                sector_bytes: device.geometry().sector.bytes(),
                write_cache: loop_cache(device.as_ref()),
                is_read_only: device.is_read_only(),
                flush_each_write: flush_each_write && !device.is_read_only(),
                is_at_hand: !device.data_may_be_away(),
            },
        };
        let sent = self.open.letting_in(file.node(), || self.config.helpers.send(&command));
        let Outcome::Attached(bound) = sent? else { unreachable!("it was asked to attach") };
        {
            let mut known = self.lock_known();
            let before = known.get(&file).filter(|it| it.sequence == bound.sequence);
            let is_new = bound.is_new || before.is_some_and(|it| it.is_new);
            known.insert(file, Bound { is_new, ..bound });
        }
        if bound.is_new && device.data_may_be_away() {
            self.look_for_partitions_later(bound);
        }
        Ok(Attachment::new(file, bound.number))
    }

    /// Loop device of a volume, if it exists. Does not block.
    pub fn device_of(&self, file: FileId) -> Option<PathBuf> {
        Some(LoopDevice::path(self.bound(file)?.number))
    }

    /// Finds a process that has the volume's file open, other than its own device, preferably a
    /// writer. Waits briefly for the kernel to report a recent close.
    pub fn file_user(&self, file: FileId) -> Result<Option<FileUser>, AttachError> {
        let bound = self.bound(file);
        let own_count = u64::from(bound.is_some_and(|it| it.is_new));
        let has_more = || self.open.count(file.node()) > own_count;
        // All opens since the mount were counted.
        if self.origin == Origin::Mounted && !has_more() {
            return Ok(None);
        }
        let command = HelperCommand::Users {
            mount_point: self.config.mount_point.clone(),
            node: file.node(),
            besides: bound.map(|it| it.number),
        };
        let Outcome::Users(users) = self.config.helpers.send(&command)? else {
            unreachable!("it was asked for users")
        };
        let named = users.iter().find(|user| user.writes).or_else(|| users.first());
        if named.is_some() {
            return Ok(named.cloned());
        }
        let deadline = Instant::now() + CLOSING_PATIENCE;
        while has_more() && Instant::now() < deadline {
            thread::sleep(CLOSING_POLL_INTERVAL);
        }
        let words =
            "the kernel, or a process in another namespace, has its file open; close it first";
        Ok(has_more().then(|| FileUser { words: words.to_owned(), writes: true }))
    }

    /// Scans for partitions in the background, because reading the first block may have to fetch
    /// contents.
    fn look_for_partitions_later(&self, bound: Bound) {
        let helpers = self.config.helpers.clone();
        let look = move || {
            let Bound { number, sequence, .. } = bound;
            if let Err(error) = helpers.send(&HelperCommand::Scan { number, sequence }) {
                tracing::warn!(error = error.chain(), "cannot scan for partitions");
            }
        };
        if let Err(error) = thread::Builder::new().name("fuse-partitions".into()).spawn(look) {
            tracing::warn!(%error, "cannot start a thread to scan for partitions");
        }
    }

    /// Detaches the loop device. Fails with `Busy` while it is in use, and with `NotFound` if there
    /// is none.
    pub fn detach(&self, file: FileId) -> Result<(), AttachError> {
        let _alone = self.lock_devices();
        let Some(Bound { number, sequence, .. }) = self.bound(file) else {
            return Err(AttachError::new(AttachErrorKind::NotFound, "detach the volume")
                .with_hint("it is not attached as a loop device"));
        };
        self.config.helpers.send(&HelperCommand::Detach { number, sequence })?;
        self.lock_known().remove(&file);
        Ok(())
    }

    /// Updates the size of the volume's loop device, if it has one.
    pub fn resized(&self, name: &str) -> Result<(), AttachError> {
        let (file, _) = self.find(name)?;
        let _alone = self.lock_devices();
        let Some(Bound { number, .. }) = self.bound(file) else {
            return Ok(());
        };
        self.config.helpers.send(&HelperCommand::Resize {
            mount_point: self.config.mount_point.clone(),
            name: name.to_owned(),
            number,
        })?;
        Ok(())
    }

    /// Tells the kernel whether the volume's loop device, if it has one, takes flushes. Must be
    /// called after [`BlockDevice::write_cache`] has changed, because the kernel may otherwise send
    /// no flushes. On an error the kernel keeps the old setting.
    pub fn write_cache_changed(&self, file: FileId) -> Result<(), AttachError> {
        let Some(device) = self.files.by_id(file) else {
            return Ok(());
        };
        let _alone = self.lock_devices();
        let Some(Bound { number, flushes_each_write: false, .. }) = self.bound(file) else {
            return Ok(());
        };
        let write_cache = loop_cache(device.as_ref());
        self.config.helpers.send(&HelperCommand::SetCache { number, write_cache })?;
        Ok(())
    }

    /// All loop devices of this export, also those that earlier processes attached. Devices that
    /// other programs bound to its files are not included. Does not block.
    pub fn attachments(&self) -> Vec<Attachment> {
        let known = self.lock_known();
        let bound = known.iter().filter(|(_, it)| sequence_of(it.number) == it.sequence);
        bound.map(|(&file, it)| Attachment::new(file, it.number)).collect()
    }

    /// Starts a new fd store if the old one has died. Must be called periodically, because devices
    /// do not survive this process without an fd store.
    pub fn refresh_fd_store(&self) -> Result<(), AttachError> {
        if self.kept.are_kept() {
            return Ok(());
        }
        tracing::warn!(socket = %self.config.fd_store_socket.display(), "starting a new fd store");
        self.kept.keep(&self.connection, &self.requests, &self.config)
    }

    /// Returns whether the connection exists. It ends when it is unmounted or aborted; devices then
    /// fail until a new export is started.
    pub fn is_serving(&self) -> bool {
        self.workers.is_serving()
    }

    pub fn traffic(&self) -> Traffic {
        self.workers.traffic()
    }

    /// Answers the requests that were read, and stops. If the connection is kept, later requests
    /// wait for the next process.
    pub fn stop(self, keep: Keep) -> Result<(), AttachError> {
        if keep == Keep::Connection || (keep == Keep::WhatIsUsed && self.is_used()?) {
            return Ok(());
        }
        let mount_point = &self.config.mount_point;
        let failed = |error| AttachError::at_path("unmount", mount_point, error);
        if mount::is_mounted(mount_point).map_err(failed)? {
            mount::detach(mount_point).map_err(failed)?;
        }
        drop(self.workers);
        self.kept.release()
    }

    fn find(&self, name: &str) -> Result<(FileId, Arc<dyn BlockDevice>), AttachError> {
        let found = is_file_name(name).then(|| self.files.by_name(name)).flatten();
        found.ok_or_else(|| {
            AttachError::new(AttachErrorKind::NotFound, format!("find volume {name}"))
        })
    }

    /// Unmounts the file system if it is unused, and returns whether it is used. If it is mounted
    /// in other places too, such as in a container, it counts as used.
    fn is_used(&self) -> Result<bool, AttachError> {
        let mount_point = &self.config.mount_point;
        let failed = |error| AttachError::at_path("unmount", mount_point, error);
        if !mount::is_mounted(mount_point).map_err(failed)? {
            return Ok(false);
        }
        if !mount::remove_unused(mount_point).map_err(failed)? {
            return Ok(true);
        }
        let is_alive = self.connection.is_alive().map_err(failed)?;
        if is_alive {
            mount::mount(self.connection.as_fd(), self.identity, mount_point).map_err(failed)?;
        }
        Ok(is_alive)
    }

    fn bound(&self, file: FileId) -> Option<Bound> {
        let bound = *self.lock_known().get(&file)?;
        (sequence_of(bound.number) == bound.sequence).then_some(bound)
    }

    fn lock_known(&self) -> MutexGuard<'_, HashMap<FileId, Bound>> {
        // Each change is complete, also after a panic.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_devices(&self) -> MutexGuard<'_, ()> {
        // The lock guards no memory that a panic could leave inconsistent.
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A read-only loop device takes no flushes.
fn loop_cache(device: &dyn BlockDevice) -> WriteCache {
    if device.is_read_only() { WriteCache::Absent } else { device.write_cache() }
}

impl Attachment {
    fn new(file: FileId, number: u32) -> Self {
        Self { file, device: LoopDevice::path(number), number }
    }
}

/// Removes stale mounts, which an earlier process left and no process keeps. Returns the devices on
/// them that could not be removed.
fn remove_stale_mounts(config: &Config) -> Result<Vec<DeadDevice>, AttachError> {
    let mount_point = &config.mount_point;
    let failed = |error| AttachError::at_path("remove the stale mount at", mount_point, error);
    let mut dead = Vec::new();
    for _ in 0..STALE_MOUNTS_MAX {
        if !mount::is_mounted(mount_point).map_err(failed)? {
            return Ok(dead);
        }
        // Requests that wait for the lost connection fail now, and so do later ones.
        mount::abort(mount_point).map_err(failed)?;
        if mount::is_mounted(mount_point).map_err(failed)? {
            dead.extend(remove_dead_devices(config)?);
            mount::detach(mount_point).map_err(failed)?;
        }
    }
    Err(AttachError::new(AttachErrorKind::Busy, format!("free {}", mount_point.display()))
        .with_hint("another file system is mounted there repeatedly"))
}

fn remove_dead_devices(config: &Config) -> Result<Vec<DeadDevice>, AttachError> {
    // Attributes of some may still be cached, but their connection is lost too.
    let all = list_devices(config)?.into_iter();
    Ok(all.filter_map(|device| remove_device(config, device)).collect())
}

/// Lists the devices that an earlier process attached, and those that are dead because their volume
/// was lost with its pool and could not be removed. Reads attributes of served files, so the
/// connection must be served.
fn look_at_devices(
    config: &Config,
    files: &dyn Files,
) -> Result<(HashMap<FileId, Bound>, Vec<DeadDevice>), AttachError> {
    let (mut known, mut dead) = (HashMap::new(), Vec::new());
    for device in list_devices(config)? {
        let (number, file, flushes_each_write) = match device {
            Listed::Alive { number, node, whose: Whose::Ours, flushes_each_write, .. } => {
                (number, FileId::of_node(node), flushes_each_write)
            }
            // Devices of other programs fail too, but are left for them to remove.
            Listed::Alive { .. } => continue,
            Listed::Dead { number, .. } => (number, None, false),
            Listed::Elsewhere { number, file } => {
                tell_of_other(number, &file);
                continue;
            }
        };
        match file.filter(|&id| files.by_id(id).is_some()) {
            Some(file) => {
                let sequence = sequence_of(number);
                let bound = Bound { number, sequence, is_new: false, flushes_each_write };
                known.insert(file, bound);
            }
            None => dead.extend(remove_device(config, device)),
        }
    }
    Ok((known, dead))
}

/// Reports devices on other mounts with the path of this one, which was mounted just now.
fn tell_of_others(config: &Config, dead: &[DeadDevice]) {
    match bound_below(&config.mount_point) {
        Ok(bound) => {
            let others =
                bound.iter().filter(|(number, _)| dead.iter().all(|it| it.number != *number));
            others.for_each(|(number, file)| tell_of_other(*number, file));
        }
        Err(error) => tracing::warn!(error = error.chain(), "cannot list loop devices"),
    }
}

fn tell_of_other(number: u32, file: &Path) {
    let device = LoopDevice::path(number);
    let (device, file) = (device.display(), file.display());
    tracing::warn!(
        "{device} has the backing file {file}, but not of this daemon: another daemon serves it in \
         another mount namespace, or was killed there; if nothing uses the device, detach it \
         (losetup -d {device})"
    );
}

/// Removes a device. Returns it if it is in use and remains.
fn remove_device(config: &Config, device: Listed) -> Option<DeadDevice> {
    let (number, file) = match device {
        Listed::Elsewhere { .. } => return None,
        Listed::Dead { number, file } => (number, file),
        Listed::Alive { number, node, .. } => {
            (number, config.mount_point.join(format!("node {node}")))
        }
    };
    let device = LoopDevice::path(number);
    let sequence = sequence_of(number);
    let Err(error) = config.helpers.send(&HelperCommand::Detach { number, sequence }) else {
        tracing::warn!(device = %device.display(), "removed a dead loop device");
        return None;
    };
    let (device_name, why) = (device.display(), error.chain());
    tracing::error!(device = %device_name, %why, "cannot remove a dead loop device that is in use");
    Some(DeadDevice { device, file, number, sequence })
}

fn list_devices(config: &Config) -> Result<Vec<Listed>, AttachError> {
    match config.helpers.send(&HelperCommand::List { mount_point: config.mount_point.clone() })? {
        Outcome::Listed(devices) => Ok(devices),
        outcome => unreachable!("listing came to {outcome:?}"),
    }
}
