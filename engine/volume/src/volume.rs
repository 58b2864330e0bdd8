//! One volume: the block device that exports serve.

use block_device::{BlockDevice, ByteRange, DeviceError, Extent, Geometry, Zeroes};

use crate::spec::Reduction;
use crate::usage::VolumeUsage;

/// An open volume.
pub struct Volume;

impl Volume {
    pub fn name(&self) -> String {
        unimplemented!()
    }

    /// Never given to another volume of this pool, also after renames and restarts. Not zero.
    pub fn id(&self) -> u64 {
        unimplemented!()
    }

    pub fn reduction(&self) -> Reduction {
        unimplemented!()
    }

    /// Walks the map: takes time in proportion to what is written.
    pub fn usage(&self) -> VolumeUsage {
        unimplemented!()
    }
}

impl BlockDevice for Volume {
    fn geometry(&self) -> Geometry {
        unimplemented!()
    }
    fn read(&self, _offset_bytes: u64, _into: &mut [u8]) -> Result<(), DeviceError> {
        unimplemented!()
    }
    fn read_in_place(
        &self,
        _range: ByteRange,
        _scratch: &mut [u8],
        _visit: &mut dyn FnMut(&[std::io::IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        unimplemented!()
    }
    fn write(&self, _offset_bytes: u64, _from: &[u8]) -> Result<(), DeviceError> {
        unimplemented!()
    }
    fn write_zeroes(&self, _range: ByteRange, _zeroes: Zeroes) -> Result<(), DeviceError> {
        unimplemented!()
    }
    fn discard(&self, _range: ByteRange) -> Result<(), DeviceError> {
        unimplemented!()
    }
    fn flush(&self) -> Result<(), DeviceError> {
        unimplemented!()
    }
    fn extents(&self, _range: ByteRange, _count_max: usize) -> Result<Vec<Extent>, DeviceError> {
        unimplemented!()
    }
}
