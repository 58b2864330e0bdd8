//! A device that is called directly, without a protocol.

use block_device::{BlockDevice, ByteRange, Zeroes};

use crate::subject::{Abilities, Refusal, Subject};

/// A device as its own client.
#[derive(Debug)]
pub struct Direct<D>(pub D);

impl<D: BlockDevice> Subject for Direct<D> {
    fn abilities(&self) -> Abilities {
        Abilities::ALL
    }

    fn size_bytes(&self) -> u64 {
        self.0.geometry().size_bytes
    }

    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), Refusal> {
        self.0.read(offset_bytes, into).map_err(Refusal::of)
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), Refusal> {
        self.0.write(offset_bytes, from).map_err(Refusal::of)
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), Refusal> {
        self.0.write_zeroes(range, zeroes).map_err(Refusal::of)
    }

    fn discard(&self, range: ByteRange) -> Result<(), Refusal> {
        self.0.discard(range).map_err(Refusal::of)
    }

    fn flush(&self) -> Result<(), Refusal> {
        self.0.flush().map_err(Refusal::of)
    }
}
