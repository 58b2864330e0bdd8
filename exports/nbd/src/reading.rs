//! Reads, from the one block that a database asks for to the gigabytes of a backup.
//!
//! A short read is one call of the device and one reply. A long one looks for holes first, which
//! structured replies describe instead of sending zeros, and goes on piece by piece whenever there
//! is room for more.

use block_device::{BlockDevice, ByteRange, Extent, ExtentKind};

use crate::agreement::Replies;
use crate::buffer::{OUTPUT_STEP_BYTES_MAX, Output};
use crate::failure::Failure;
use crate::replies::{self, Place};
use crate::wire::{self, CHUNK_HEADER_BYTES, Request, command_flag};

/// Reads up to this length are in the output as a whole before the first byte of the reply is
/// sent. That is the limit of a reply that must not be fragmented.
pub(crate) const READ_STAGED_BYTES_MAX: u32 = 1 << 20;

// The data of one step and its headers fit into the output.
const _: () =
    assert!(READ_STAGED_BYTES_MAX as usize + 2 * CHUNK_HEADER_BYTES <= OUTPUT_STEP_BYTES_MAX);

/// Data in one chunk, and in one step of a long read, at most.
const READ_PIECE_BYTES: u64 = 128 << 10;

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
    /// Extents that the last search found behind `data_end`.
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

/// What a step of a read came to.
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
            Style::Simple => self.simple_step(device, output),
            Style::Unfragmented => self.put_data(device, output, u64::MAX),
            Style::Chunks if self.next == self.data_end && self.next < self.end => {
                self.skip_holes(device, output)
            }
            Style::Chunks => self.put_data(device, output, READ_PIECE_BYTES),
        }
    }

    fn simple_step(mut self, device: &dyn BlockDevice, output: &mut Output) -> Step {
        let first = self.next == self.request.offset;
        let staged_bytes = u64::from(READ_STAGED_BYTES_MAX);
        let count = (self.end - self.next).min(if first { staged_bytes } else { READ_PIECE_BYTES });
        let mark = output.mark();
        if first {
            output.put(&wire::simple_reply(self.request.cookie, 0));
        }
        if let Err(error) = device.read(self.next, output.reserve(bytes_in_memory(count))) {
            output.take_back(mark);
            return if first { Step::Failed(error.into()) } else { Step::Broken };
        }
        self.next += count;
        if self.next == self.end { Step::Done } else { Step::More(self) }
    }

    /// One chunk with at most `bytes_max` of the run of data that begins at `next`.
    fn put_data(mut self, device: &dyn BlockDevice, output: &mut Output, bytes_max: u64) -> Step {
        let count = (self.data_end - self.next).min(bytes_max);
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

/// The length of a piece as a number of bytes in memory.
fn bytes_in_memory(count: u64) -> usize {
    usize::try_from(count).expect("a piece fits the output")
}
