//! Reads, from single blocks up to the full range of a backup.
//!
//! A short read takes one call of the device and one reply. A long read first searches for holes,
//! which structured replies describe without sending zeros, and continues in pieces whenever there
//! is room in the output. Pieces end at block boundaries, so that each block is read whole.
//!
//! An unfragmented reply promises success in its header. Therefore the first part of the range is
//! read before the first byte is sent: into the output, or, if there are many connections, only to
//! detect errors.

use block_device::{BLOCK_BYTES, BlockDevice, ByteRange, DeviceError, Extent, ExtentKind};

use crate::agreement::Replies;
use crate::buffer::{OUTPUT_STEP_BYTES_MAX, Output};
use crate::failure::Failure;
use crate::replies::{self, Place};
use crate::transport::MessageEnd;
use crate::wire::{CHUNK_HEADER_BYTES, Request, command_flag};

/// Reads up to this length are complete before the first byte of the reply is sent. It is the
/// protocol's limit on reads that must not be fragmented (`DF`).
pub(crate) const READ_STAGED_BYTES_MAX: u32 = 1 << 20;

// The data of one step and its headers must fit the output.
const _: () =
    assert!(READ_STAGED_BYTES_MAX as usize + 2 * CHUNK_HEADER_BYTES <= OUTPUT_STEP_BYTES_MAX);

/// Minimum length of a read that searches for holes. For shorter reads, sending the zeros is
/// cheaper.
const HOLE_SEARCH_BYTES_MIN: u64 = 64 << 10;

/// Maximum range of one search for holes.
const HOLE_SEARCH_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of extents that one search returns.
const HOLE_SEARCH_COUNT_MAX: usize = 64;

/// A read in progress.
pub(crate) struct LongRead {
    request: Request,
    style: Style,
    next: u64,
    end: u64,
    /// End of the data run at `next`, as far as the last search reached.
    data_end: u64,
    /// Extents after `data_end` that the last search returned.
    found: std::vec::IntoIter<Extent>,
}

/// Layout of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// One header, then all the data.
    Simple,
    /// One chunk (`DF`).
    Unfragmented,
    /// Several chunks of data and holes.
    Chunks,
}

/// Result of a step of a read.
pub(crate) enum Step {
    /// The read continues once the output has room for another piece.
    More(LongRead),
    Done,
    /// Nothing of this step is in the output. The caller sends an error reply.
    Failed(Failure),
    /// The device failed after success was promised. The protocol cannot revoke it, so the
    /// connection must end.
    Broken,
}

impl LongRead {
    /// Starts a read of a range inside the device.
    pub(crate) fn new(request: Request, range: ByteRange, replies: Replies) -> Self {
        let style = match (replies, request.flags & command_flag::DF) {
            (Replies::Simple, _) => Style::Simple,
            (Replies::Structured, 0) => Style::Chunks,
            (Replies::Structured, _) => Style::Unfragmented,
        };
        let start = range.start;
        let searched = style == Style::Chunks && range.length >= HOLE_SEARCH_BYTES_MIN;
        let end = start + range.length;
        Self {
            request,
            style,
            next: start,
            end,
            data_end: if searched { start } else { end },
            found: Vec::new().into_iter(),
        }
    }

    pub(crate) fn request(&self) -> Request {
        self.request
    }

    /// Adds a piece of the reply to `output`, which must have room for [`OUTPUT_STEP_BYTES_MAX`].
    pub(crate) fn step(self, device: &dyn BlockDevice, output: &mut Output) -> Step {
        match self.style {
            Style::Unfragmented if self.next == self.end => {
                replies::put_success_chunk(self.request.cookie, output);
                Step::Done
            }
            Style::Simple | Style::Unfragmented => self.whole_step(device, output),
            Style::Chunks if self.next == self.data_end && self.next < self.end => {
                self.skip_holes(device, output)
            }
            Style::Chunks => self.put_data(device, output),
        }
    }

    /// Returns the position in the stream of replies after the last step, if the read continues.
    pub(crate) fn message_end(&self) -> MessageEnd {
        match self.style {
            Style::Simple | Style::Unfragmented => MessageEnd::InsideReply,
            Style::Chunks => MessageEnd::BetweenReplies,
        }
    }

    /// Adds a piece of an unfragmented reply.
    fn whole_step(mut self, device: &dyn BlockDevice, output: &mut Output) -> Step {
        let is_first = self.next == self.request.offset;
        let mut bytes_max = output.limits().read_piece_bytes;
        let mark = output.mark();
        if is_first {
            bytes_max = output.limits().read_staged_bytes;
            if let Err(error) = self.try_out(device, output) {
                return Step::Failed(error.into());
            }
            self.put_header(output);
        }
        let count = piece_bytes(self.next, self.end, bytes_max);
        if let Err(error) = device.read(self.next, output.reserve(bytes_in_memory(count))) {
            output.take_back(mark);
            return if is_first { Step::Failed(error.into()) } else { Step::Broken };
        }
        self.next += count;
        if self.next == self.end { Step::Done } else { Step::More(self) }
    }

    /// Reads the part that must be known to be readable but does not fit the first step. Leaves the
    /// output unchanged.
    fn try_out(&self, device: &dyn BlockDevice, output: &mut Output) -> Result<(), DeviceError> {
        let bytes_max = output.limits().read_staged_bytes;
        let end = self.end.min(self.next + u64::from(READ_STAGED_BYTES_MAX));
        let mut next = self.next;
        if end - next <= bytes_max as u64 {
            return Ok(());
        }
        while next < end {
            let count = piece_bytes(next, end, bytes_max);
            let mark = output.mark();
            let outcome = device.read(next, output.reserve(bytes_in_memory(count)));
            output.take_back(mark);
            outcome?;
            next += count;
        }
        Ok(())
    }

    fn put_header(&self, output: &mut Output) {
        let cookie = self.request.cookie;
        if self.style == Style::Simple {
            output.put(&replies::simple_reply(cookie, 0));
        } else {
            let range = ByteRange::new(self.next, self.end - self.next);
            replies::put_data_chunk_header(cookie, Place::Last, range, output);
        }
    }

    /// Adds one chunk with a piece of the data run at `next`.
    fn put_data(mut self, device: &dyn BlockDevice, output: &mut Output) -> Step {
        let count = piece_bytes(self.next, self.data_end, output.limits().read_piece_bytes);
        let cookie = self.request.cookie;
        if count == 0 {
            replies::put_success_chunk(cookie, output);
            return Step::Done;
        }
        let place = self.place_of_chunk_to(self.next + count);
        let mark = output.mark();
        replies::put_data_chunk_header(cookie, place, ByteRange::new(self.next, count), output);
        if let Err(error) = device.read(self.next, output.reserve(bytes_in_memory(count))) {
            output.take_back(mark);
            return Step::Failed(error.into());
        }
        self.next += count;
        self.after_chunk(place)
    }

    /// Advances `next` and `data_end` to the next data run, and adds a chunk for the hole before
    /// it.
    fn skip_holes(mut self, device: &dyn BlockDevice, output: &mut Output) -> Step {
        if self.found.len() == 0 {
            let length = (self.end - self.next).min(HOLE_SEARCH_BYTES_MAX);
            match device.extents(ByteRange::new(self.next, length), HOLE_SEARCH_COUNT_MAX) {
                Ok(extents) => self.found = extents.into_iter(),
                Err(error) => return Step::Failed(error.into()),
            }
        }
        let hole_start = self.next;
        let mut data_end = self.next;
        for extent in self.found.by_ref() {
            assert_eq!(extent.range.start, data_end, "extents follow each other");
            data_end += extent.range.length;
            if extent.kind == ExtentKind::Data {
                break;
            }
            self.next = data_end;
        }
        assert!(hole_start < data_end, "a search finds something");
        assert!(data_end <= self.end, "extents end where the search does");
        self.data_end = data_end;
        if hole_start == self.next {
            return Step::More(self);
        }
        let place = self.place_of_chunk_to(self.next);
        let hole = ByteRange::new(hole_start, self.next - hole_start);
        replies::put_hole_chunk(self.request.cookie, place, hole, output);
        self.after_chunk(place)
    }

    fn place_of_chunk_to(&self, chunk_end: u64) -> Place {
        if chunk_end == self.end { Place::Last } else { Place::Inner }
    }

    fn after_chunk(self, place: Place) -> Step {
        match place {
            Place::Inner => Step::More(self),
            Place::Last => Step::Done,
        }
    }
}

/// Returns the length of the next piece of the range from `next` to `end`, at most `bytes_max`.
fn piece_bytes(next: u64, end: u64, bytes_max: usize) -> u64 {
    let left = end - next;
    let bytes_max = bytes_max as u64;
    if left <= bytes_max {
        return left;
    }
    bytes_max - (next + bytes_max) % BLOCK_BYTES as u64
}

/// Converts the length of a piece to `usize`.
fn bytes_in_memory(count: u64) -> usize {
    usize::try_from(count).expect("a piece fits the output")
}
