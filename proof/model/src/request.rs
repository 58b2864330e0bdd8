//! Requests to a block device, as data.

use block_device::{BLOCK_BYTES, BlockDevice, ByteRange, DeviceErrorKind, Extent, Zeroes};

use crate::contents::Contents;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Read { offset: u64, length: usize },
    ReadInPlace(ByteRange),
    Write { offset: u64, length: usize, contents: Contents },
    WriteZeroes(ByteRange, Zeroes),
    Discard(ByteRange),
    Flush,
    Extents { range: ByteRange, count_max: usize },
}

/// Answer of a device to a successful request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Bytes(Vec<u8>),
    Extents(Vec<Extent>),
}

impl Request {
    pub fn run(&self, device: &dyn BlockDevice) -> Result<Answer, DeviceErrorKind> {
        let answer = match *self {
            Self::Read { offset, length } => {
                let mut bytes = vec![0xEE; length];
                device.read(offset, &mut bytes).map(|()| Answer::Bytes(bytes))
            }
            Self::ReadInPlace(range) => {
                let blocks = usize::try_from(range.length).expect("a short range") / BLOCK_BYTES;
                let mut scratch = vec![0xEE; (blocks + 2) * BLOCK_BYTES];
                let mut shown = Vec::new();
                let result = device.read_in_place(range, &mut scratch, &mut |slices| {
                    slices.iter().for_each(|slice| shown.extend_from_slice(slice));
                });
                result.map(|()| Answer::Bytes(shown))
            }
            Self::Write { offset, length, contents } => {
                device.write(offset, &contents.bytes(length)).map(|()| Answer::Done)
            }
            Self::WriteZeroes(range, zeroes) => {
                device.write_zeroes(range, zeroes).map(|()| Answer::Done)
            }
            Self::Discard(range) => device.discard(range).map(|()| Answer::Done),
            Self::Flush => device.flush().map(|()| Answer::Done),
            Self::Extents { range, count_max } => {
                device.extents(range, count_max).map(Answer::Extents)
            }
        };
        answer.map_err(|error| error.kind)
    }

    /// Byte range of the request.
    pub fn range(&self) -> ByteRange {
        match *self {
            Self::Read { offset, length } | Self::Write { offset, length, .. } => {
                ByteRange::new(offset, length as u64)
            }
            Self::ReadInPlace(range)
            | Self::WriteZeroes(range, _)
            | Self::Discard(range)
            | Self::Extents { range, .. } => range,
            Self::Flush => ByteRange::new(0, 0),
        }
    }

    /// Blocks that the request touches.
    pub fn blocks(&self) -> std::ops::Range<u64> {
        let range = self.range();
        let end = range.start.saturating_add(range.length).div_ceil(BLOCK_BYTES as u64);
        range.start / BLOCK_BYTES as u64..end
    }
}
