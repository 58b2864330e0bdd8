//! Request execution: what one thread needs to serve any request on the device.

use std::io::IoSlice;
use std::sync::Arc;

use block_device::{BLOCK_BYTES, BlockDevice, ByteRange, DeviceError, Zeroes};
use export_kit::Counters;
use virtio_bindings::virtio_blk::{VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP};
use vm_memory::{Bytes, GuestAddress};

use crate::memory::Ram;
use crate::request::{Cursor, Operation, Request, SERIAL_BYTES, Span};

/// Maximum length of one call of the device. Longer requests take several calls.
const PIECE_BYTES: usize = 1 << 20;

/// Status of a completed request, as the driver reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Done,
    Failed,
    Unsupported,
}

impl Status {
    fn code(self) -> u8 {
        let code = match self {
            Self::Done => VIRTIO_BLK_S_OK,
            Self::Failed => VIRTIO_BLK_S_IOERR,
            Self::Unsupported => VIRTIO_BLK_S_UNSUPP,
        };
        u8::try_from(code).expect("codes are small")
    }

    /// Writes the status byte. If the guest's memory is gone, the status is dropped.
    pub(crate) fn put(self, ram: &Ram, address: GuestAddress) {
        if let Err(error) = ram.write_obj(self.code(), address) {
            tracing::debug!(%error, "cannot write the status of a request");
        }
    }
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) status: Status,
    /// Bytes written to the guest's buffers, without the status byte.
    pub(crate) bytes: u32,
}

/// Serves requests to one device on one thread.
pub(crate) struct Server {
    device: Arc<dyn BlockDevice>,
    serial: [u8; SERIAL_BYTES],
    counters: Arc<Counters>,
    buffer: Vec<u8>,
}

impl Server {
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        serial: [u8; SERIAL_BYTES],
        counters: Arc<Counters>,
    ) -> Self {
        // The kernel allocates the buffer's pages on first use.
        Self { device, serial, counters, buffer: vec![0; PIECE_BYTES] }
    }

    pub(crate) fn device(&self) -> &dyn BlockDevice {
        self.device.as_ref()
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Executes `request`. Blocks as long as the device's calls do.
    pub(crate) fn serve(&mut self, ram: &Ram, request: &Request) -> Outcome {
        let mut bytes = 0;
        let result = match &request.operation {
            Operation::Read(range) => {
                self.counters.reads.add(1);
                let result = self.read(ram, *range, &request.data);
                if result.is_ok() {
                    bytes = range.length;
                    self.counters.read_bytes.add(range.length);
                }
                result
            }
            Operation::Write(range) => {
                self.counters.writes.add(1);
                let result = self.write(ram, *range, &request.data);
                if result.is_ok() {
                    self.counters.written_bytes.add(range.length);
                }
                result
            }
            Operation::Flush => {
                self.counters.flushes.add(1);
                self.device.flush().map_err(Failure::from)
            }
            Operation::Identify => {
                let copied = Cursor::new(&request.data).copy_out(ram, &self.serial);
                bytes = copied.as_ref().map_or(0, |count| *count as u64);
                copied.map(|_| ()).map_err(|_| Failure::MemoryGone)
            }
            Operation::Discard(spans) => {
                self.counters.discards.add(1);
                self.each(spans, |device, span| device.discard(span.range))
            }
            Operation::WriteZeroes(spans) => {
                self.counters.zeroes.add(1);
                self.each(spans, |device, span| {
                    let zeroes = if span.may_unmap { Zeroes::Unmap } else { Zeroes::KeepAllocated };
                    device.write_zeroes(span.range, zeroes)
                })
            }
            Operation::Unsupported => Err(Failure::Unsupported),
            Operation::Invalid(reason) => Err(Failure::Invalid(reason)),
        };
        self.judge(result, bytes)
    }

    /// Flushes the device for `request_count` requests that wait for a flush, and counts them.
    pub(crate) fn flush(&self, request_count: u64) -> Outcome {
        self.counters.flushes.add(request_count);
        self.judge(self.device.flush().map_err(Failure::from), 0)
    }

    fn judge(&self, result: Result<(), Failure>, bytes: u64) -> Outcome {
        let status = match result {
            Ok(()) => Status::Done,
            Err(failure) => {
                self.counters.count_error();
                tracing::debug!(%failure, "a guest's request failed");
                match failure {
                    Failure::Unsupported => Status::Unsupported,
                    Failure::Device(_) | Failure::Invalid(_) | Failure::MemoryGone => {
                        Status::Failed
                    }
                }
            }
        };
        Outcome { status, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) }
    }

    fn read(
        &mut self,
        ram: &Ram,
        range: ByteRange,
        data: &[crate::chain::Segment],
    ) -> Result<(), Failure> {
        let mut cursor = Cursor::new(data);
        for piece in pieces(range) {
            let mut copied = Ok(());
            let mut copy = |slices: &[IoSlice<'_>]| {
                copied =
                    slices.iter().try_for_each(|slice| cursor.copy_out(ram, slice).map(|_| ()));
            };
            let scratch = &mut self.buffer[..piece.scratch_bytes()];
            self.device.read_in_place(piece, scratch, &mut copy)?;
            copied.map_err(|_| Failure::MemoryGone)?;
        }
        Ok(())
    }

    fn write(
        &mut self,
        ram: &Ram,
        range: ByteRange,
        data: &[crate::chain::Segment],
    ) -> Result<(), Failure> {
        let mut cursor = Cursor::new(data);
        for piece in pieces(range) {
            let length = usize::try_from(piece.length).expect("a piece is short");
            // Copied first, so that the device does not see concurrent changes by the guest.
            let bytes = &mut self.buffer[..length];
            let copied = cursor.copy_in(ram, bytes).map_err(|_| Failure::MemoryGone)?;
            assert_eq!(copied, length, "a request has as much data as its range says");
            if ram.is_lost() {
                return Err(Failure::MemoryGone);
            }
            self.device.write(piece.start, bytes)?;
        }
        Ok(())
    }

    fn each(
        &self,
        spans: &[Span],
        act: impl Fn(&dyn BlockDevice, &Span) -> Result<(), DeviceError>,
    ) -> Result<(), Failure> {
        let device = self.device.as_ref();
        spans.iter().try_for_each(|span| act(device, span).map_err(Failure::from))
    }
}

/// Reason for which a request failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("unsupported request type")]
    Unsupported,
    #[error("invalid request: {0}")]
    Invalid(&'static str),
    #[error("its memory is no longer shared")]
    MemoryGone,
}

/// Splits a range into pieces that fit the buffer. Splits are at block boundaries, so that each
/// block is written whole.
fn pieces(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    let (mut start, mut left) = (range.start, range.length);
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let room = PIECE_BYTES as u64 - start % BLOCK_BYTES as u64;
        let piece = ByteRange::new(start, left.min(room));
        // If the range overflows, the device rejects the first piece.
        start = start.wrapping_add(piece.length);
        left -= piece.length;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_pieces(start: u64, length: u64, expected: &[(u64, u64)]) {
        let found: Vec<_> =
            pieces(ByteRange::new(start, length)).map(|it| (it.start, it.length)).collect();
        assert_eq!(found, expected);
        assert!(pieces(ByteRange::new(start, length)).all(|it| it.scratch_bytes() <= PIECE_BYTES));
    }

    #[test]
    fn long_ranges_are_cut_between_blocks() {
        const MIB: u64 = 1 << 20;
        check_pieces(0, 0, &[]);
        check_pieces(512, 512, &[(512, 512)]);
        check_pieces(0, MIB + 512, &[(0, MIB), (MIB, 512)]);
        check_pieces(512, MIB, &[(512, MIB - 512), (MIB, 512)]);
        check_pieces(u64::MAX - 511, 512, &[(u64::MAX - 511, 512)]);
    }
}
