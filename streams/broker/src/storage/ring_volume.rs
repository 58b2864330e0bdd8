//! Block device for a volume of a daemon, through the ring.

use std::io::IoSlice;
use std::sync::{Arc, OnceLock};

use block_device::{
    Action, BlockDevice, ByteRange, DeviceError, DeviceErrorKind, Extent, ExtentKind, Geometry,
    IO_BYTES_MAX, SectorSize, Zeroes,
};
use rustix::io::Errno;
use sdk::{ClientError, Device};

/// Ring client that reconnects when the daemon returns, and repeats unanswered requests.
#[derive(Debug)]
pub(super) struct RingVolume {
    device: Device,
    size_bytes: u64,
    /// Marks the volume as in use.
    held: OnceLock<Arc<()>>,
}

impl RingVolume {
    pub(super) fn new(device: Device) -> Self {
        let size_bytes = device.geometry().map_or(super::VOLUME_BYTES, |it| it.size_bytes);
        Self { device, size_bytes, held: OnceLock::new() }
    }

    /// Keeps the mark that the volume is in use.
    pub(super) fn hold(&self, held: Arc<()>) {
        self.held.get_or_init(|| held);
    }

    /// Disconnects if the connection was not used since the last call. Returns whether it is
    /// disconnected.
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
        // The ring client splits long requests. Reading takes one copy.
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
        let flushed = self.device.flush();
        flushed.map_err(|error| failed(Action::Flush, range, error))
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    /// The ring does not report mapped extents, so everything counts as data.
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
        // Error of a flush when stable storage failed.
        Errno::IO if action == Action::Flush => DeviceErrorKind::NotDurable,
        // Stored data is damaged, or the daemon did not return: see the source.
        _ => DeviceErrorKind::Corrupt,
    };
    let mut failed = DeviceError::new(kind, action, range);
    failed.source = Some(Box::new(error));
    failed
}
