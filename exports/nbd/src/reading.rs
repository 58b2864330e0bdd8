//! Reads, from the one block that a database asks for to the gigabytes of a backup.
//!
//! A short read is one call of the device and one reply. A long one looks for holes first, which
//! structured replies describe instead of sending zeros, and goes on piece by piece whenever there
//! is room for more. Pieces end where a block ends, so that none is read in two halves.
//!
//! A reply in one message promises success with its header. So a good part of it is read before the
//! first byte is sent: into the output, or, among many connections, for nothing but errors.

use block_device::{BLOCK_BYTES, BlockDevice, ByteRange, DeviceError, Extent, ExtentKind};

use crate::agreement::Replies;
use crate::buffer::{OUTPUT_STEP_BYTES_MAX, Output};
use crate::failure::Failure;
use crate::replies::{self, Place};
use crate::transport::MessageEnd;
use crate::wire::{CHUNK_HEADER_BYTES, Request, command_flag};

/// Reads up to this length have been done as a whole before the first byte of the reply is sent.
/// That is the limit of a reply that must not be fragmented.
pub(crate) const READ_STAGED_BYTES_MAX: u32 = 1 << 20;

// The data of one step and its headers fit into the output.
const _: () =
    assert!(READ_STAGED_BYTES_MAX as usize + 2 * CHUNK_HEADER_BYTES <= OUTPUT_STEP_BYTES_MAX);

/// Shorter reads do not look for holes: that would cost more than sending the zeros.
const HOLE_SEARCH_BYTES_MIN: u64 = 64 << 10;

/// How far ahead one search for holes looks.
const HOLE_SEARCH_BYTES_MAX: u64 = 1 << 20;

/// Extents that one search finds, at most.
const HOLE_SEARCH_COUNT_MAX: usize = 64;

/// A read that is being answered.
pub(crate) struct LongRead {
    request: Request,
    style: Style,
    next: u64,
    end: u64,
    /// Where the run of data at `next` ends, as far as the last search saw.
    data_end: u64,
    /// Extents that the last search found after `data_end`.
    found: std::vec::IntoIter<Extent>,
}

/// How the reply is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// One header, then all the data.
    Simple,
    /// One chunk.
    Unfragmented,
    /// As many chunks of data and holes as it takes.
    Chunks,
}

/// Result of a step of a read.
pub(crate) enum Step {
    /// To be continued when the output has room for another piece.
    More(LongRead),
    Done,
    /// Nothing of this step is in the output; an error is to be sent.
    Failed(Failure),
    /// Success was promised before the device failed, and the protocol has no way to take it back.
    Broken,
}

impl LongRead {
    /// A read of a range that lies on the device.
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

    /// Adds a piece of the reply to `output`, which has room for [`OUTPUT_STEP_BYTES_MAX`].
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

    /// Where in the stream of replies the last step has ended, if there is another one.
    pub(crate) fn message_end(&self) -> MessageEnd {
        match self.style {
            Style::Simple | Style::Unfragmented => MessageEnd::InsideReply,
            Style::Chunks => MessageEnd::BetweenReplies,
        }
    }

    /// A piece of a reply that is one message.
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

    /// Reads what shall be known to be good and does not fit the first step, and leaves nothing of
    /// it in the output.
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

    /// One chunk with a piece of the run of data that begins at `next`.
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

    /// Moves `next` and `data_end` to the next run of data, with a chunk for the hole before it.
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

/// How much of what lies from `next` to `end` a piece of `bytes_max` takes.
fn piece_bytes(next: u64, end: u64, bytes_max: usize) -> u64 {
    let left = end - next;
    let bytes_max = bytes_max as u64;
    if left <= bytes_max {
        return left;
    }
    bytes_max - (next + bytes_max) % BLOCK_BYTES as u64
}

/// The length of a piece as a number of bytes in memory.
fn bytes_in_memory(count: u64) -> usize {
    usize::try_from(count).expect("a piece fits the output")
}
