//! A sequence (row) of bytes on a device, in frames of a mebibyte. Each frame has a checksum over
//! its contents and its position in the row.
//!
//! ```text
//! byte 0  CRC-32C of all that follows  u32     8  number of the row    u64    24  contents …
//!      4  bytes of contents            u32    16  number of the frame  u64
//! ```

use block_device::{BLOCK_BYTES, BlockDevice};
use record_batch::crc32c;

use crate::error::ValuesError;

pub(super) const FRAME_BYTES: usize = 1 << 20;
const HEAD_BYTES: usize = 24;

/// Maximum size of one item.
pub(super) const ITEM_BYTES_MAX: usize = FRAME_BYTES - HEAD_BYTES;

/// Writes items to a row.
#[derive(Debug)]
pub(super) struct FrameWriter {
    row: u64,
    /// Position of the next frame in bytes.
    at: u64,
    number: u64,
    frame: Vec<u8>,
}

impl FrameWriter {
    pub(super) fn new(row: u64, at: u64) -> Self {
        Self { row, at, number: 0, frame: vec![0; HEAD_BYTES] }
    }

    /// Appends an item. Items never span two frames.
    pub(super) fn put(&mut self, device: &dyn BlockDevice, item: &[u8]) -> Result<(), ValuesError> {
        assert!(item.len() <= ITEM_BYTES_MAX, "items have a limit");
        if self.frame.len() + item.len() > FRAME_BYTES {
            self.write_frame(device)?;
        }
        self.frame.extend_from_slice(item);
        Ok(())
    }

    /// Writes the last frame. Returns the number of frames.
    pub(super) fn finish(&mut self, device: &dyn BlockDevice) -> Result<u64, ValuesError> {
        self.write_frame(device)?;
        Ok(self.number)
    }

    fn write_frame(&mut self, device: &dyn BlockDevice) -> Result<(), ValuesError> {
        let length = u32::try_from(self.frame.len() - HEAD_BYTES).expect("frames have a limit");
        self.frame[4..8].copy_from_slice(&length.to_le_bytes());
        self.frame[8..16].copy_from_slice(&self.row.to_le_bytes());
        self.frame[16..24].copy_from_slice(&self.number.to_le_bytes());
        let sum = crc32c(&self.frame[4..]);
        self.frame[..4].copy_from_slice(&sum.to_le_bytes());
        // Padded to whole blocks, which the device writes without reading them first.
        self.frame.resize(self.frame.len().next_multiple_of(BLOCK_BYTES), 0);
        device.write(self.at, &self.frame).map_err(ValuesError::writing)?;
        self.at += FRAME_BYTES as u64;
        self.number += 1;
        self.frame.truncate(HEAD_BYTES);
        Ok(())
    }
}

/// Reads the items of a row.
pub(super) struct FrameReader<'a> {
    device: &'a dyn BlockDevice,
    row: u64,
    at: u64,
    number: u64,
    frame_count: u64,
    frame: Vec<u8>,
    /// Range of the frame that was not consumed yet.
    rest: std::ops::Range<usize>,
}

impl<'a> FrameReader<'a> {
    pub(super) fn new(device: &'a dyn BlockDevice, row: u64, at: u64, frame_count: u64) -> Self {
        Self { device, row, at, number: 0, frame_count, frame: Vec::new(), rest: 0..0 }
    }

    /// Reads an item of `length` bytes. Returns `None` if the row is damaged or ends.
    pub(super) fn take(&mut self, length: usize) -> Option<&[u8]> {
        if self.rest.is_empty() {
            self.read_frame()?;
        }
        let item = self.rest.start..self.rest.start.checked_add(length)?;
        self.rest.start = item.end;
        (item.end <= self.rest.end).then(|| &self.frame[item])
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// Returns whether all items were consumed.
    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty() && self.number == self.frame_count
    }

    fn read_frame(&mut self) -> Option<()> {
        if self.number >= self.frame_count {
            return None;
        }
        self.frame.resize(FRAME_BYTES, 0);
        self.device.read(self.at, &mut self.frame).ok()?;
        let word = |at: usize| -> [u8; 4] { self.frame[at..at + 4].try_into().expect("4 bytes") };
        let long = |at: usize| -> [u8; 8] { self.frame[at..at + 8].try_into().expect("8 bytes") };
        let length = usize::try_from(u32::from_le_bytes(word(4))).ok()?;
        let end = HEAD_BYTES.checked_add(length).filter(|end| *end <= FRAME_BYTES)?;
        let is_it =
            u64::from_le_bytes(long(8)) == self.row && u64::from_le_bytes(long(16)) == self.number;
        let sum = u32::from_le_bytes(word(0));
        if !is_it || sum != crc32c(&self.frame[4..end]) {
            return None;
        }
        self.rest = HEAD_BYTES..end;
        self.at += FRAME_BYTES as u64;
        self.number += 1;
        Some(())
    }
}
