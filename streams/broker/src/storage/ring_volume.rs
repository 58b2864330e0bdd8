//! A volume of a daemon, through the ring, as a block device.

use std::io::IoSlice;
use std::sync::Arc;

use block_device::{
    Action, BlockDevice, ByteRange, DeviceError, DeviceErrorKind, Extent, ExtentKind, Geometry,
    IO_BYTES_MAX, SectorSize, Zeroes,
};
use rustix::io::Errno;
use sdk::{ClientError, Device};

use crate::waiting;

/// A client that reconnects when the daemon comes back, and repeats what was not answered.
#[derive(Debug)]
pub(super) struct RingVolume {
    device: Device,
    size_bytes: u64,
    /// For as long as the volume is in use.
    _held: Arc<()>,
}

impl RingVolume {
    pub(super) fn new(device: Device, held: Arc<()>) -> Self {
        let size_bytes = device.geometry().map_or(super::VOLUME_BYTES, |it| it.size_bytes);
        Self { device, size_bytes, _held: held }
    }
}

impl RingVolume {
    /// Gives the connection back if it was not used since the last call. Returns whether there is
    /// none.
    pub(super) fn rests(&self) -> bool {
        self.device.rest()
    }
}

impl BlockDevice for RingVolume {
    fn geometry(&self) -> Geometry {
        Geometry { size_bytes: self.size_bytes, sector: SectorSize::Bytes4096 }
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset_bytes, into.len() as u64);
        // The ring takes requests of any length in pieces; what is read into them is one copy.
        self.device.read(offset_bytes, into).map_err(|error| failed(Action::Read, range, error))
    }

    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        let length = usize::try_from(range.length).unwrap_or(IO_BYTES_MAX).min(scratch.len());
        self.read(range.start, &mut scratch[..length])?;
        visit(&[IoSlice::new(&scratch[..length])]);
        Ok(())
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset_bytes, from.len() as u64);
        self.device.write(offset_bytes, from).map_err(|error| failed(Action::Write, range, error))
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError> {
        let written = self.device.write_zeroes(range, zeroes);
        written.map_err(|error| failed(Action::WriteZeroes, range, error))
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.device.discard(range).map_err(|error| failed(Action::Discard, range, error))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let range = ByteRange::new(0, self.size_bytes);
        let flushed = waiting::while_flushing(|| self.device.flush());
        flushed.map_err(|error| failed(Action::Flush, range, error))
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    /// The ring says nothing of what is mapped, so all of it counts as data.
    fn extents(&self, range: ByteRange, _: usize) -> Result<Vec<Extent>, DeviceError> {
        Ok(vec![Extent { range, kind: ExtentKind::Data }])
    }
}

fn failed(action: Action, range: ByteRange, error: ClientError) -> DeviceError {
    let kind = match Errno::from_raw_os_error(error.errno()) {
        Errno::NOSPC => DeviceErrorKind::NoSpace,
        Errno::ROFS | Errno::PERM => DeviceErrorKind::ReadOnly,
        Errno::NODEV => DeviceErrorKind::Gone,
        Errno::INVAL => DeviceErrorKind::OutOfRange,
        // What a flush fails with where stable storage did not take it.
        Errno::IO if action == Action::Flush => DeviceErrorKind::NotDurable,
        // Stored bytes are damaged, or the daemon did not come back: the source says which.
        _ => DeviceErrorKind::Corrupt,
    };
    let mut failed = DeviceError::new(kind, action, range);
    failed.source = Some(Box::new(error));
    failed
}
