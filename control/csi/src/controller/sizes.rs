//! Sizes of volumes: whole blocks, within the limits of the daemon and of the request.

use api::{ByteSize, Volume, VolumePatch};
use tonic::Status;

use crate::driver::Driver;
use crate::wire::CapacityRange;

/// A volume has at most so much.
pub(super) const SIZE_BYTES_MAX: u64 = 64 << 40;

pub(super) const BLOCK_BYTES: u64 = 4096;

impl Driver {
    /// The volume with a size of the range; one that is large enough already stays.
    pub(crate) fn enlarge(&self, volume: Volume, range: &CapacityRange) -> Result<Volume, Status> {
        let required = u64::try_from(range.required_bytes).unwrap_or(0);
        let size = fitting_size(required.max(volume.size_bytes), range)?;
        if size == volume.size_bytes {
            return Ok(volume);
        }
        let grown = VolumePatch { size: Some(ByteSize(size)), ..VolumePatch::default() };
        self.daemon.change(&volume.name, &grown)
    }
}

pub(super) fn is_over(size_bytes: u64, range: &CapacityRange) -> bool {
    range.limit_bytes > 0 && size_bytes > range.limit_bytes.cast_unsigned()
}

/// The size in whole blocks, if the range and the daemon allow it.
pub(super) fn fitting_size(wanted_bytes: u64, range: &CapacityRange) -> Result<u64, Status> {
    let size = wanted_bytes.next_multiple_of(BLOCK_BYTES);
    if size > SIZE_BYTES_MAX || is_over(size, range) {
        return Err(Status::out_of_range(format!(
            "invalid size of {size} bytes: the maximum is {SIZE_BYTES_MAX}, and limit_bytes is \
             {}",
            range.limit_bytes
        )));
    }
    Ok(size)
}
