//! Creation and deletion of ublk devices for volumes.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use adaptive_polling::SpinPermits;
use block_device::{BLOCK_BYTES, BlockDevice};
use export_kit::{AttachError, AttachErrorKind, Traffic};
use kernel::{UblkAccess, UblkDevice, UblkFeatures, UblkShape, UblkState};

use crate::adoption;
use crate::driver::Driver;
use crate::openers;
use crate::registry::Registry;
use crate::served::Served;
use crate::serving::REQUEST_BYTES_MAX;
use crate::sysfs;
use crate::volumes::{VolumeId, Volumes};

/// Maximum length of a discard or write of zeros.
const ZEROING_BYTES_MAX: u32 = 1 << 30;

/// Limits if the driver copies the data. It then needs a buffer for each request of each queue.
const COPIED_BYTES_MAX: u32 = 256 << 10;
const COPIED_DEPTH_MAX: u16 = 64;

/// Method by which the data of requests is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The server copies directly from and to where the data is stored, if the driver supports it
    /// (6.5 or later).
    ByServer,
    /// The driver copies, which every version supports.
    ByDriver,
}

/// Settings of ublk devices.
#[derive(Clone, Debug)]
pub struct Config {
    /// File that lists the devices, in a directory that survives restarts.
    pub registry: PathBuf,
    /// Number of queues of each device. Each queue has a thread.
    pub queue_count: u16,
    /// Maximum number of requests in each queue.
    pub queue_depth: u16,
    pub transfer: Transfer,
    pub permits: Arc<SpinPermits>,
}

/// A volume that is attached as a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub volume: VolumeId,
    pub device: PathBuf,
}

/// The ublk devices of this process. Dropping it leaves the devices without a server, until the
/// next process takes them over.
pub struct Export {
    config: Config,
    driver: Driver,
    state: Mutex<State>,
}

struct State {
    registry: Registry,
    devices: HashMap<VolumeId, Served>,
    /// Traffic of deleted devices.
    past_traffic: Traffic,
}

impl Export {
    /// Takes over the devices of an earlier process, and waits for each of them for a bounded time.
    /// Devices that cannot be taken over are logged. Fails with [`AttachErrorKind::Unavailable`] on
    /// hosts without the driver.
    pub fn start(config: Config, volumes: &dyn Volumes) -> Result<Self, AttachError> {
        let driver = Driver::open()?;
        let registry = Registry::open(&config.registry).map_err(|error| {
            let path = config.registry.display();
            AttachError::new(AttachErrorKind::Registry, format!("read {path}"))
                .with_hint("delete it if it is damaged; devices of an earlier daemon are then lost")
                .with_source(error)
        })?;
        let mut state =
            State { registry, devices: HashMap::new(), past_traffic: Traffic::default() };
        let permits = &config.permits;
        let adopted = adoption::adopt_all(&driver, &mut state.registry, volumes, permits);
        state.devices.extend(adopted);
        Ok(Self { config, driver, state: Mutex::new(state) })
    }

    /// Attaches a volume as a device. An attached volume keeps its device.
    pub fn attach(
        &self,
        volume: VolumeId,
        device: Arc<dyn BlockDevice>,
    ) -> Result<Attachment, AttachError> {
        let mut state = self.lock();
        if let Some(served) = state.devices.get(&volume) {
            return Ok(attachment(volume, served));
        }
        let made = self.driver.add(self.wanted(state.registry.mark()))?;
        let started = self.start_device(&mut state, made, volume, device);
        let served = started.inspect_err(|_| self.take_back(&mut state, made.id))?;
        let attachment = attachment(volume, &served);
        state.devices.insert(volume, served);
        Ok(attachment)
    }

    /// Detaches the device of a volume. Fails while a process uses it.
    pub fn detach(&self, volume: VolumeId) -> Result<(), AttachError> {
        let mut state = self.lock();
        let Some(served) = state.devices.get(&volume) else {
            return Err(AttachError::new(
                AttachErrorKind::NotFound,
                "find the device of the volume",
            ));
        };
        let id = served.id();
        // The error's class is not used: a missing sysfs file does not mean a missing device.
        let failed = |error| {
            AttachError::new(
                AttachErrorKind::Kernel,
                format!("find the processes that use /dev/ublkb{id}"),
            )
            .with_source(error)
        };
        if let Some(opener) = openers::opener_of(id).map_err(failed)? {
            let attempt = format!("detach /dev/ublkb{id}");
            return Err(AttachError::new(AttachErrorKind::Busy, attempt)
                .with_hint(format!("{opener}; unmount it or close it first")));
        }
        self.driver.stop_unused(id)?;
        if let Some(served) = state.devices.remove(&volume) {
            state.past_traffic += served.traffic();
            served.finish();
        }
        self.driver.delete(id)?;
        state.registry.remove(id).map_err(not_stored)
    }

    /// Checks that a volume can be resized while it is attached.
    pub fn check_resizable(&self, volume: VolumeId) -> Result<(), AttachError> {
        let state = self.lock();
        let Some(served) = state.devices.get(&volume) else { return Ok(()) };
        if self.driver.can_resize() {
            return Ok(());
        }
        let attempt = format!("change the size of /dev/ublkb{} while it is attached", served.id());
        Err(AttachError::new(AttachErrorKind::NotSupported, attempt).with_hint(
            "this requires Linux 6.16 or later; detach the volume, resize it, and attach it \
             again, or attach it as loop",
        ))
    }

    /// Announces the new size of a volume to the kernel.
    pub fn resized(&self, volume: VolumeId) -> Result<(), AttachError> {
        let state = self.lock();
        let Some(served) = state.devices.get(&volume) else { return Ok(()) };
        let (id, size_bytes) = (served.id(), served.device().geometry().size_bytes);
        self.driver.update_size(id, size_bytes)
    }

    /// Tells the kernel whether a device needs flushes, after a change.
    pub fn write_cache_changed(&self, volume: VolumeId) -> Result<(), AttachError> {
        let state = self.lock();
        match state.devices.get(&volume) {
            Some(served) => sysfs::set_write_cache(served.id(), served.device().write_cache()),
            None => Ok(()),
        }
    }

    pub fn attachments(&self) -> Vec<Attachment> {
        let state = self.lock();
        state.devices.iter().map(|(&volume, served)| attachment(volume, served)).collect()
    }

    /// Requests served since the start.
    pub fn traffic(&self) -> Traffic {
        let state = self.lock();
        let mut sum = state.past_traffic;
        state.devices.values().for_each(|served| sum += served.traffic());
        sum
    }

    /// Stops serving. The devices remain, and their users wait for the next process.
    pub fn stop(self) {
        let state = self.state.into_inner().expect(NO_PANIC);
        // Concurrent, so that a device that hangs does not delay the others.
        state.devices.values().for_each(Served::begin_to_leave);
        state.devices.into_values().for_each(Served::leave);
    }

    fn wanted(&self, mark: u64) -> UblkDevice {
        let Config { queue_count, queue_depth, transfer, .. } = self.config;
        let (features, queue_depth, request_bytes_max) = match transfer {
            Transfer::ByServer => (UblkFeatures::USER_COPY, queue_depth, REQUEST_BYTES_MAX),
            Transfer::ByDriver => {
                (UblkFeatures::default(), queue_depth.min(COPIED_DEPTH_MAX), COPIED_BYTES_MAX)
            }
        };
        UblkDevice {
            id: UblkDevice::ANY_ID,
            queue_count,
            queue_depth,
            state: UblkState::Dead,
            request_bytes_max,
            server: 0,
            features,
            owner_mark: mark,
        }
    }

    fn start_device(
        &self,
        state: &mut State,
        made: UblkDevice,
        volume: VolumeId,
        device: Arc<dyn BlockDevice>,
    ) -> Result<Served, AttachError> {
        let id = made.id;
        self.driver.shape(id, shape_of(&*device, made.request_bytes_max))?;
        state.registry.insert(id, volume).map_err(not_stored)?;
        let cache = device.write_cache();
        let channel = self.driver.channel(made)?;
        let served = Served::start(channel, made, device, Arc::clone(&self.config.permits))?;
        let started = self
            .driver
            .start(id)
            .and_then(|()| self.driver.wait_for_node(id))
            .and_then(|()| sysfs::set_write_cache(id, cache));
        match started {
            Ok(()) => {
                sysfs::tune(id, made.queue_depth);
                Ok(served)
            }
            Err(error) => {
                served.leave();
                Err(error)
            }
        }
    }

    /// Deletes a device whose creation failed.
    fn take_back(&self, state: &mut State, id: u32) {
        if let Err(error) = self.driver.delete(id) {
            tracing::error!(id, %error, "cannot delete an incomplete ublk device");
        }
        if let Err(error) = state.registry.remove(id) {
            tracing::error!(id, %error, "cannot store the list of ublk devices");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(NO_PANIC)
    }
}

const NO_PANIC: &str = "no thread panics with this lock";

fn attachment(volume: VolumeId, served: &Served) -> Attachment {
    Attachment { volume, device: PathBuf::from(format!("/dev/ublkb{}", served.id())) }
}

fn shape_of(device: &dyn BlockDevice, request_bytes_max: u32) -> UblkShape {
    let geometry = device.geometry();
    UblkShape {
        size_bytes: geometry.size_bytes,
        logical_block_bytes: geometry.sector.bytes(),
        physical_block_bytes: u32::try_from(BLOCK_BYTES).expect("a block is short"),
        request_bytes_max,
        zeroing_bytes_max: ZEROING_BYTES_MAX,
        access: match device.is_read_only() {
            true => UblkAccess::ReadOnly,
            false => UblkAccess::ReadWrite,
        },
    }
}

fn not_stored(error: std::io::Error) -> AttachError {
    AttachError::new(AttachErrorKind::Registry, "store the list of devices").with_source(error)
}
