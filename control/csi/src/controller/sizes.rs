//! Volume sizes: whole blocks, within the limits of the daemon and the request.

use api::{ByteSize, Volume, VolumePatch};
use tonic::Status;

use crate::driver::Driver;
use crate::wire::CapacityRange;

/// Maximum size of a volume.
pub(super) const SIZE_BYTES_MAX: u64 = 64 << 40;

pub(super) const BLOCK_BYTES: u64 = 4096;

impl Driver {
    /// Resizes a volume to satisfy the range. A volume that is large enough is not changed.
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

/// Rounds the size up to whole blocks. Fails if the range or the daemon does not allow the result.
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
