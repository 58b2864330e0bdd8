//! The export as the daemon uses it: started once, asked to attach and detach, stopped.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
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
use crate::helper_command::{
    Bound, DeviceShape, HelperCommand, Listed, Outcome, Whose, sequence_of,
};
use crate::kept::{Channel, KeptDescriptors, mount_new, take_over};
use crate::mount;
use crate::schedule::WORKER_COUNT_MAX;
use crate::worker_pool::{WorkerPool, WorkerPoolOptions};

/// File systems of former processes that are removed from one mount point.
const STALE_MOUNTS_MAX: u32 = 16;

/// How long the kernel may take to tell of a file that was closed.
const CLOSING_PATIENCE: Duration = Duration::from_secs(1);

/// How often it is looked meanwhile.
const CLOSING_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Parts that remain when an export stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The connection, with the fd store: devices wait for the next process, and fail nothing.
    Connection,
    /// The connection, if anybody has a file open, or stays in the directory; else nothing.
    WhatIsUsed,
    /// Nothing: devices that are still attached fail from then on.
    Nothing,
}

/// A volume that is attached as a loop device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub file: FileId,
    pub device: PathBuf,
    number: u32,
}

/// A device whose connection is lost for good: every request fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadDevice {
    pub device: PathBuf,
    /// File to which it was bound.
    pub file: PathBuf,
    number: u32,
    /// Of the binding that is dead.
    sequence: Option<u64>,
}

/// Origin of the export's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Mounted by this process.
    Mounted,
    /// Taken over; devices that former processes attached go on.
    TakenOver,
}

/// Volumes as files and loop devices of this machine.
///
/// Dropping it is stopping it with [`Keep::Connection`].
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
    /// The devices that were attached or found. They may have gone since.
    known: Mutex<HashMap<FileId, Bound>>,
    dead: Vec<DeadDevice>,
    /// Held while devices are attached or detached, so that they do not vanish in between.
    devices: Mutex<()>,
}

impl Export {
    /// Takes over the connection that a former process left, or mounts a new one, and serves it.
    /// The caller makes sure that no two processes export to the same mount point at a time.
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
        if origin == Origin::TakenOver {
            (known, dead) = look_at_devices(&config, &*files)?;
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

    /// Dead devices that are still in use, so that they could not be removed: left when a former
    /// connection was lost with its file descriptor store, or a volume with its pool. They fail
    /// every request. Those that were open disappear when they are closed, those that were mounted
    /// when they are unmounted and [`Export::remove_dead_devices`] is called.
    pub fn dead_devices(&self) -> Vec<&DeadDevice> {
        let is_there =
            |it: &&DeadDevice| it.sequence.is_some() && sequence_of(it.number) == it.sequence;
        self.dead.iter().filter(is_there).collect()
    }

    /// Removes dead devices that are no longer in use. To be called periodically.
    pub fn remove_dead_devices(&self) {
        for dead in self.dead_devices() {
            let command = HelperCommand::Detach { number: dead.number, sequence: dead.sequence };
            let _alone = self.lock_devices();
            // One that is still in use is tried again the next time.
            if self.config.helpers.send(&command).is_ok() {
                tracing::info!(device = %dead.device.display(), "removed a dead loop device");
            }
        }
    }

    /// Attaches a volume as a loop device, or returns the one that it has. With `flush_each_write`
    /// a new device flushes each write and takes no flushes; an existing device keeps its setting.
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

    /// Loop device of a volume, if it has one that still exists. Never waits.
    pub fn device_of(&self, file: FileId) -> Option<PathBuf> {
        Some(LoopDevice::path(self.bound(file)?.number))
    }

    /// A process that has the volume's file open, besides its own device: preferably one that may
    /// write. Waits for a moment if somebody has just closed it.
    pub fn file_user(&self, file: FileId) -> Result<Option<FileUser>, AttachError> {
        let bound = self.bound(file);
        let own_count = u64::from(bound.is_some_and(|it| it.is_new));
        let has_more = || self.open.count(file.node()) > own_count;
        // Everything that was ever opened was counted.
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

    /// Contents that have to be fetched first hold up nobody who attaches.
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

    /// Detaches the loop device. Fails with `Busy` while it is in use, and with `NotFound` when
    /// there is none.
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

    /// Tells the kernel whether the volume's loop device, if it has one, takes flushes. To be
    /// called after [`BlockDevice::write_cache`] has changed, because the kernel would send no
    /// flushes. On an error the kernel keeps the old setting.
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

    /// All loop devices of this export, whichever process attached them. Devices that others bound
    /// to its files are not included.
    pub fn attachments(&self) -> Result<Vec<Attachment>, AttachError> {
        let listed = list_devices(&self.config)?;
        Ok(listed
            .into_iter()
            .filter_map(|device| match device {
                Listed::Alive { number, node, whose: Whose::Ours, .. } => {
                    Some(Attachment::new(FileId::of_node(node)?, number))
                }
                Listed::Alive { .. } | Listed::Dead { .. } => None,
            })
            .collect())
    }

    /// Starts a new file descriptor store if the old one has died. To be called periodically:
    /// without one, devices do not survive this process.
    pub fn refresh_fd_store(&self) -> Result<(), AttachError> {
        if self.kept.are_kept() {
            return Ok(());
        }
        tracing::warn!(socket = %self.config.fd_store_socket.display(), "starting a new fd store");
        self.kept.keep(&self.connection, &self.requests, &self.config)
    }

    /// Returns false once the kernel has ended the connection, because it was unmounted or aborted.
    /// Devices fail then, until a new export is started.
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

    /// Unmounts what nobody uses; the kernel knows. Where it is mounted in other places too, as in
    /// a container's, it is used there.
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
        // Each change is whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_devices(&self) -> MutexGuard<'_, ()> {
        // It guards nothing in memory that a panic could have left half-done.
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A loop device that takes no writes takes no flushes either.
fn loop_cache(device: &dyn BlockDevice) -> WriteCache {
    if device.is_read_only() { WriteCache::Absent } else { device.write_cache() }
}

impl Attachment {
    fn new(file: FileId, number: u32) -> Self {
        Self { file, device: LoopDevice::path(number), number }
    }
}

/// Takes away what former processes left mounted and no process keeps. Returns the devices on it
/// that could not be removed with it.
fn remove_stale_mounts(config: &Config) -> Result<Vec<DeadDevice>, AttachError> {
    let mount_point = &config.mount_point;
    let failed = |error| AttachError::at_path("remove the stale mount at", mount_point, error);
    let mut dead = Vec::new();
    for _ in 0..STALE_MOUNTS_MAX {
        if !mount::is_mounted(mount_point).map_err(failed)? {
            return Ok(dead);
        }
        // What waits for the lost connection gets an error now, the following included.
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
    // Attributes of some may still be remembered; their connection is lost all the same.
    let all = list_devices(config)?.into_iter();
    Ok(all.filter_map(|device| remove_device(config, device)).collect())
}

/// The devices that a former process attached, and those that could not be removed although their
/// volume is gone, as with a pool that was lost: they fail every request. Asks the kernel about
/// files, so it must be served.
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
            // Those of others fail, too, and are for those to remove who made them.
            Listed::Alive { .. } => continue,
            Listed::Dead { number, .. } => (number, None, false),
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

/// Returns the device if it is in use and stays.
fn remove_device(config: &Config, device: Listed) -> Option<DeadDevice> {
    let (number, file) = match device {
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
