//! Commands of the ublk driver, with timeouts.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use export_kit::{AttachError, AttachErrorKind};
use kernel::{UblkChannel, UblkControl, UblkDevice, UblkFeatures, UblkShape};

use crate::bounded::{until, within};

/// Timeout of commands, including those that wait for requests that this process serves.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(30);

/// Maximum wait for a killed server to be gone. Kernels before 6.15 may detect it only by the
/// timeout of a request, 30 s.
const OLD_SERVER_TIME_MAX: Duration = Duration::from_secs(60);

const NODE_TIME_MAX: Duration = Duration::from_secs(10);

/// Features with which a device outlives its server.
const RECOVERY: UblkFeatures =
    UblkFeatures::USER_RECOVERY.with(UblkFeatures::USER_RECOVERY_REISSUE);

/// The open control device.
#[derive(Clone, Debug)]
pub(crate) struct Driver {
    control: Arc<UblkControl>,
}

impl Driver {
    /// Opens the control device. Fails with [`AttachErrorKind::Unavailable`] if the driver is
    /// missing or access is denied.
    pub(crate) fn open() -> Result<Self, AttachError> {
        let opened = within(COMMAND_TIME_MAX, UblkControl::open);
        let control = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                AttachError::new(AttachErrorKind::Unavailable, "open /dev/ublk-control").with_hint(
                    "this kernel has no ublk driver, or it is not loaded; run modprobe ublk_drv \
                     if the kernel has that module, or use --as loop",
                )
            }
            io::ErrorKind::PermissionDenied => {
                AttachError::new(AttachErrorKind::Unavailable, "open /dev/ublk-control")
                    .with_hint("run as root: unprivileged ublk devices do not survive their server")
            }
            _ => AttachError::of_call("use /dev/ublk-control", error),
        })?;
        let driver = Self { control: Arc::new(control) };
        match driver.control.features() {
            Some(features) if !features.has(RECOVERY) => Err(too_old()),
            _ => Ok(driver),
        }
    }

    /// Returns whether the driver can change the size of a device in use.
    pub(crate) fn can_resize(&self) -> bool {
        self.control.features().is_some_and(|it| it.has(UblkFeatures::UPDATE_SIZE))
    }

    /// Creates a device. Returns the parameters that the driver granted.
    pub(crate) fn add(&self, wanted: UblkDevice) -> Result<UblkDevice, AttachError> {
        let features = wanted.features.with(RECOVERY);
        let wanted = UblkDevice { features, ..wanted };
        let device = self.call("create a ublk device", move |control| control.add(&wanted))?;
        if device.features.has(RECOVERY) {
            return Ok(device);
        }
        self.delete(device.id)?;
        Err(too_old())
    }

    /// Describes a device; `None` if it does not exist.
    pub(crate) fn info(&self, id: u32) -> Result<Option<UblkDevice>, AttachError> {
        self.call(format!("query ublk device {id}"), move |control| match control.info(id) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            result => result.map(Some),
        })
    }

    pub(crate) fn shape(&self, id: u32, shape: UblkShape) -> Result<(), AttachError> {
        self.call(format!("describe ublk device {id}"), move |it| it.shape(id, &shape))
    }

    /// Starts a device that is being served.
    pub(crate) fn start(&self, id: u32) -> Result<(), AttachError> {
        self.call(format!("start ublk device {id}"), move |it| it.start(id))
    }

    /// Stops a device unless a process has it open, if the driver can detect that.
    pub(crate) fn stop_unused(&self, id: u32) -> Result<(), AttachError> {
        let can_tell = self.control.features().is_some_and(|it| it.has(UblkFeatures::SAFE_STOP));
        let stop = move |it: &UblkControl| if can_tell { it.try_stop(id) } else { it.stop(id) };
        self.call(format!("stop ublk device {id}"), stop)
    }

    /// Stops and deletes a device, even if it is in use. It must not be served any more.
    pub(crate) fn delete(&self, id: u32) -> Result<(), AttachError> {
        self.call(format!("delete ublk device {id}"), move |control| {
            match control.stop(id).and_then(|()| control.delete(id)) {
                Err(error) if error.raw_os_error() == Some(ENODEV) => Ok(()),
                result => result,
            }
        })
    }

    /// Starts to take over a device, after its last server has exited.
    pub(crate) fn start_recovery(&self, id: u32) -> Result<(), AttachError> {
        let attempt = || format!("take over ublk device {id}");
        let taken = until(OLD_SERVER_TIME_MAX, || {
            match self.call(attempt(), move |it| it.start_recovery(id)) {
                Err(error) if error.kind == AttachErrorKind::Busy => None,
                // An earlier daemon was killed after this step.
                Err(error) if error.errno() == Some(EINVAL) => Some(Ok(())),
                result => Some(result),
            }
        });
        taken.unwrap_or_else(|| {
            Err(AttachError::new(AttachErrorKind::TimedOut, attempt())
                .with_hint("another process still serves it"))
        })
    }

    /// Completes the takeover, when the device is being served.
    pub(crate) fn end_recovery(&self, id: u32) -> Result<(), AttachError> {
        self.call(format!("take over ublk device {id}"), move |it| it.end_recovery(id))
    }

    pub(crate) fn update_size(&self, id: u32, size_bytes: u64) -> Result<(), AttachError> {
        self.call(format!("resize ublk device {id}"), move |it| it.update_size(id, size_bytes))
    }

    /// Opens the channel through which a device is served. Its device node may appear with a delay.
    pub(crate) fn channel(&self, device: UblkDevice) -> Result<UblkChannel, AttachError> {
        let mut last = io::Error::from(io::ErrorKind::TimedOut);
        let opened = until(NODE_TIME_MAX, || match UblkChannel::open(device) {
            Ok(channel) => Some(channel),
            Err(error) => {
                last = error;
                None
            }
        });
        let id = device.id;
        opened.ok_or_else(|| AttachError::of_call(format!("open /dev/ublkc{id}"), last))
    }

    /// Waits until the device node exists.
    pub(crate) fn wait_for_node(&self, id: u32) -> Result<(), AttachError> {
        let path = format!("/dev/ublkb{id}");
        let there = || std::fs::exists(&path).unwrap_or(false).then_some(());
        until(NODE_TIME_MAX, there).ok_or_else(|| {
            AttachError::new(AttachErrorKind::Kernel, format!("find {path}"))
                .with_hint("the device was started, but its node in /dev did not appear")
        })
    }

    fn call<T: Send + 'static>(
        &self,
        attempt: impl Into<String>,
        call: impl FnOnce(&UblkControl) -> io::Result<T> + Send + 'static,
    ) -> Result<T, AttachError> {
        let control = Arc::clone(&self.control);
        within(COMMAND_TIME_MAX, move || call(&control))
            .map_err(|error| AttachError::of_call(attempt, error))
    }
}

const ENODEV: i32 = 19;
const EINVAL: i32 = 22;

fn too_old() -> AttachError {
    AttachError::new(
        AttachErrorKind::NotSupported,
        "create a device that survives a restart of the daemon",
    )
    .with_hint("this kernel's ublk is too old; use Linux 6.1 or later, or --as loop")
}
