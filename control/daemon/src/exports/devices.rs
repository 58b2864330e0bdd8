//! Interface of a driver that attaches volumes as kernel block devices.

use std::fmt;
use std::sync::Arc;

use export_kit::Traffic;
use volumes::Volume;

/// Error of attaching or detaching a device.
#[derive(Debug)]
pub(crate) enum DeviceFailure {
    /// A process has the device open.
    InUse(anyhow::Error),
    Host(anyhow::Error),
    /// This host does not have the driver.
    Missing(anyhow::Error),
}

impl fmt::Display for DeviceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::InUse(error) | Self::Host(error) | Self::Missing(error)) = self;
        write!(f, "{error:#}")
    }
}

/// User of a volume other than its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherUser {
    /// Description of the user, and what to do about it.
    pub(crate) words: String,
    pub(crate) writes: bool,
}

/// Kernel block devices for volumes. All methods are administrative and are called one at a time;
/// they may wait for the kernel.
pub(crate) trait KernelDevices: Send + Sync {
    /// Returns whether the driver was available at the last check.
    fn is_offered(&self) -> bool {
        true
    }

    /// Attaches the volume as a block device and returns its path. An attached volume keeps its
    /// device. `flush_each_write` applies to new loop devices only.
    fn attach(&self, volume: &Arc<Volume>, flush_each_write: bool)
    -> Result<String, DeviceFailure>;

    /// Returns whether a device that was attached or found still exists. A loop device may have
    /// been removed manually. Does not block.
    fn has_device(&self, _volume_id: u64) -> bool {
        true
    }

    /// Finds a user of the volume, other than its device, that only this driver can detect.
    fn other_user(&self, _volume: &Volume) -> Result<Option<OtherUser>, DeviceFailure> {
        Ok(None)
    }

    /// Removes the block device. Succeeds if there is none.
    fn detach(&self, volume: &Volume) -> Result<(), DeviceFailure>;

    /// Checks that the kernel supports changing the device's size, if the volume is attached.
    fn check_resizable(&self, _volume: &Volume) -> Result<(), DeviceFailure> {
        Ok(())
    }

    /// Tells the kernel the volume's new size.
    fn resized(&self, volume: &Volume) -> Result<(), DeviceFailure>;

    /// Tells the kernel whether the volume's device takes flushes, after its durability changed.
    /// The change must not be reported as done before this succeeds, because the kernel would send
    /// no flushes. On an error the kernel keeps the old setting, and the change has to be undone.
    fn write_cache_changed(&self, volume: &Volume) -> Result<(), DeviceFailure>;

    /// Lists the existing devices, with the ids of their volumes.
    fn devices(&self) -> Vec<(u64, String)>;

    /// Lists devices of earlier daemons that cannot be served any more and are still in use.
    fn dead_devices(&self) -> Vec<String>;

    /// Requests served since the start.
    fn traffic(&self) -> Traffic;
}
