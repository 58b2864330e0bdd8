//! Interface of an export that makes volumes kernel block devices.

use std::fmt;
use std::sync::Arc;

use export_kit::Traffic;
use volumes::Volume;

/// Why the host did not do what it was asked.
#[derive(Debug)]
pub(crate) enum DeviceFailure {
    /// A process has the device open.
    InUse(anyhow::Error),
    Host(anyhow::Error),
    /// This host does not offer it.
    Missing(anyhow::Error),
}

impl fmt::Display for DeviceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::InUse(error) | Self::Host(error) | Self::Missing(error)) = self;
        write!(f, "{error:#}")
    }
}

/// Somebody who uses a volume past its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherUser {
    /// Who it is, and what to do about it.
    pub(crate) words: String,
    pub(crate) writes: bool,
}

/// Kernel block devices for volumes. Administrative calls only, one at a time; they may wait for
/// the kernel.
pub(crate) trait KernelDevices: Send + Sync {
    /// Whether this host offered the driver when it was last looked for.
    fn is_offered(&self) -> bool {
        true
    }

    /// Makes the volume a block device and returns its path. A volume that is one already keeps
    /// its device. `flush_each_write` is for new loop devices alone.
    fn attach(&self, volume: &Arc<Volume>, flush_each_write: bool)
    -> Result<String, DeviceFailure>;

    /// Whether a device that was attached or found is there. A loop device may have been taken away
    /// by hand. Never waits.
    fn has_device(&self, _volume_id: u64) -> bool {
        true
    }

    /// Who uses the volume besides its device in a way that only this driver knows.
    fn other_user(&self, _volume: &Volume) -> Result<Option<OtherUser>, DeviceFailure> {
        Ok(None)
    }

    /// Takes the block device away. Not refused when there is none.
    fn detach(&self, volume: &Volume) -> Result<(), DeviceFailure>;

    /// Whether the kernel could be told another size, if the volume is attached.
    fn check_resizable(&self, _volume: &Volume) -> Result<(), DeviceFailure> {
        Ok(())
    }

    /// Tells the kernel the volume's new size.
    fn resized(&self, volume: &Volume) -> Result<(), DeviceFailure>;

    /// Tells the kernel whether the volume's device takes flushes, after its durability changed.
    /// The change must not be reported as done before: flushes that the kernel was not told of do
    /// not come. On an error the kernel goes on as before, and the change has to be taken back.
    fn write_cache_changed(&self, volume: &Volume) -> Result<(), DeviceFailure>;

    /// The devices there are, by the id of the volume.
    fn devices(&self) -> Vec<(u64, String)>;

    /// Devices of earlier daemons that cannot be served any more, and that are still in use.
    fn dead_devices(&self) -> Vec<String>;

    /// What was served since the start.
    fn traffic(&self) -> Traffic;
}
