//! Volumes as ublk block devices of the kernel.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use adaptive_polling::SpinPermits;
use anyhow::anyhow;
use block_device::BlockDevice;
use export_kit::{AttachError, AttachErrorKind, Traffic};
use ublk::{Config, Export, Transfer, VolumeId, Volumes};
use volumes::Volume;

use crate::exports::{Catalog, DeviceFailure, KernelDevices};

/// Maximum number of queues. More are not faster for one client, and each has a thread.
const QUEUE_COUNT_MAX: usize = 4;

const QUEUE_DEPTH: u16 = 128;

/// The devices, once the driver is available. It may be loaded while the daemon runs.
pub(crate) struct UblkDevices {
    config: Config,
    catalog: Arc<Catalog>,
    export: Mutex<State>,
}

enum State {
    /// Cause for which there are no devices.
    Missing(AttachError),
    Running(Box<Export>),
    Stopped,
}

impl UblkDevices {
    /// Takes over the devices of an earlier daemon, and waits for them for a bounded time.
    pub(crate) fn start(
        registry: PathBuf,
        catalog: Arc<Catalog>,
        permits: Arc<SpinPermits>,
    ) -> Self {
        let core_count = thread::available_parallelism().map_or(1, usize::from);
        let queue_count = core_count.min(QUEUE_COUNT_MAX);
        let config = Config {
            registry,
            queue_count: u16::try_from(queue_count).expect("it is small"),
            queue_depth: QUEUE_DEPTH,
            transfer: Transfer::ByServer,
            permits,
        };
        let state = State::started(&config, &catalog);
        if let State::Missing(error) = &state {
            let is_normal = error.kind == AttachErrorKind::Unavailable;
            let reason = error.chain();
            match is_normal {
                true => tracing::info!(reason, "ublk devices are not available"),
                false => tracing::error!(reason, "ublk devices are not available"),
            }
        }
        Self { config, catalog, export: Mutex::new(state) }
    }

    /// Stops serving. Devices remain for the next daemon.
    pub(crate) fn stop(&self) {
        let state = std::mem::replace(&mut *self.state(), State::Stopped);
        if let State::Running(export) = state {
            export.stop();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.export.lock().expect(NO_PANIC)
    }

    fn on_export<T>(
        &self,
        act: impl FnOnce(&Export) -> Result<T, AttachError>,
    ) -> Result<T, DeviceFailure> {
        match &*self.state() {
            State::Running(export) => act(export).map_err(failure_of),
            State::Missing(error) => Err(DeviceFailure::Missing(anyhow!(error.chain()))),
            State::Stopped => Err(DeviceFailure::Host(anyhow!("the daemon is stopping"))),
        }
    }
}

impl State {
    fn started(config: &Config, catalog: &Arc<Catalog>) -> Self {
        match Export::start(config.clone(), &**catalog) {
            Ok(export) => Self::Running(Box::new(export)),
            Err(error) => Self::Missing(error),
        }
    }
}

const NO_PANIC: &str = "no thread panics with this lock";

impl KernelDevices for UblkDevices {
    fn is_offered(&self) -> bool {
        matches!(&*self.state(), State::Running(_))
    }

    fn attach(
        &self,
        volume: &Arc<Volume>,
        _flush_each_write: bool,
    ) -> Result<String, DeviceFailure> {
        {
            let mut state = self.state();
            if let State::Missing(_) = &*state {
                *state = State::started(&self.config, &self.catalog);
            }
        }
        let device = self.catalog.device(volume);
        let attached = self.on_export(|export| export.attach(VolumeId(volume.id()), device))?;
        Ok(attached.device.display().to_string())
    }

    fn detach(&self, volume: &Volume) -> Result<(), DeviceFailure> {
        match self.on_export(|export| match export.detach(VolumeId(volume.id())) {
            Err(error) if error.kind == AttachErrorKind::NotFound => Ok(()),
            result => result,
        }) {
            // Without the driver there is no device.
            Err(DeviceFailure::Missing(_)) => Ok(()),
            result => result,
        }
    }

    fn check_resizable(&self, volume: &Volume) -> Result<(), DeviceFailure> {
        self.on_export(|export| export.check_resizable(VolumeId(volume.id())))
    }

    fn resized(&self, volume: &Volume) -> Result<(), DeviceFailure> {
        self.on_export(|export| export.resized(VolumeId(volume.id())))
    }

    fn write_cache_changed(&self, volume: &Volume) -> Result<(), DeviceFailure> {
        self.on_export(|export| export.write_cache_changed(VolumeId(volume.id())))
    }

    fn devices(&self) -> Vec<(u64, String)> {
        match &*self.state() {
            State::Running(export) => {
                let attachments = export.attachments().into_iter();
                attachments.map(|it| (it.volume.0, it.device.display().to_string())).collect()
            }
            State::Missing(_) | State::Stopped => Vec::new(),
        }
    }

    fn dead_devices(&self) -> Vec<String> {
        Vec::new()
    }

    fn traffic(&self) -> Traffic {
        match &*self.state() {
            State::Running(export) => export.traffic(),
            State::Missing(_) | State::Stopped => Traffic::default(),
        }
    }
}

impl Volumes for Catalog {
    fn by_id(&self, id: VolumeId) -> Option<Arc<dyn BlockDevice>> {
        self.device_by_id(id.0)
    }
}

fn failure_of(error: AttachError) -> DeviceFailure {
    match error.kind {
        AttachErrorKind::Busy => DeviceFailure::InUse(error.into()),
        AttachErrorKind::Unavailable | AttachErrorKind::NotSupported => {
            DeviceFailure::Missing(error.into())
        }
        _ => DeviceFailure::Host(error.into()),
    }
}
