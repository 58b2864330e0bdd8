//! Input and output buffer of a connection. Both have a fixed size.
//!
//! Their pages are allocated on first use, so memory follows the largest request so far. If there
//! are many connections, each uses smaller pieces: no request takes more memory, and memory taken
//! before is released.

use std::mem;

/// Size of the input buffer. Holds several hundred requests, or many small writes with their
/// payload, so that one system call receives them all.
pub(crate) const INPUT_BYTES: usize = 320 << 10;

/// Amount of pending replies from which they are sent, even if more requests could be served.
pub(crate) const OUTPUT_BYTES_DUE: usize = 128 << 10;

/// Maximum number of bytes that one step of a session adds to the output: the longest piece of a
/// read, with its headers.
pub(crate) const OUTPUT_STEP_BYTES_MAX: usize = (1 << 20) + HEADERS_BYTES_MAX;

/// Size of the output buffer. An output that is not yet due has room for one step.
const OUTPUT_BYTES_MAX: usize = OUTPUT_BYTES_DUE + OUTPUT_STEP_BYTES_MAX;

/// Room for headers: that of a write or an option, and those of a read.
const HEADERS_BYTES_MAX: usize = 4096;

/// Maximum number of connections of which each has buffers for requests of any length.
const CONNECTION_COUNT_FEW: usize = 8;

/// Maximum number of connections of which each has medium buffers. With more, all have small ones.
const CONNECTION_COUNT_SEVERAL: usize = 24;

/// Share of the memory for buffers that a connection may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferShare {
    /// Buffers may use their full size.
    Large,
    /// Long requests are served in pieces.
    Medium,
    /// Long requests are served in small pieces.
    Small,
}

/// Limits on a connection's buffers.
pub(crate) struct Limits {
    /// Limit on the input. Has room for the longest option, and for one piece of a write.
    input_bytes: usize,
    /// Threshold for sending, see [`OUTPUT_BYTES_DUE`].
    output_bytes_due: usize,
    /// Memory of the output that is kept once the output is empty.
    output_bytes_kept: usize,
    /// Amount of payload from which a partly received write is started.
    pub(crate) write_piece_bytes_min: usize,
    /// Maximum data in one chunk, and in one step of a long read.
    pub(crate) read_piece_bytes: usize,
    /// Maximum data in the first step of an unfragmented reply.
    pub(crate) read_staged_bytes: usize,
}

const LARGE: Limits = Limits {
    input_bytes: INPUT_BYTES,
    output_bytes_due: OUTPUT_BYTES_DUE,
    output_bytes_kept: OUTPUT_BYTES_MAX,
    write_piece_bytes_min: 64 << 10,
    read_piece_bytes: 128 << 10,
    read_staged_bytes: 1 << 20,
};

const MEDIUM: Limits = Limits {
    input_bytes: (128 << 10) + HEADERS_BYTES_MAX,
    output_bytes_kept: (256 << 10) + HEADERS_BYTES_MAX,
    read_staged_bytes: 128 << 10,
    ..LARGE
};

const SMALL: Limits = Limits {
    input_bytes: (64 << 10) + HEADERS_BYTES_MAX,
    output_bytes_due: 32 << 10,
    output_bytes_kept: (64 << 10) + HEADERS_BYTES_MAX,
    write_piece_bytes_min: 32 << 10,
    read_piece_bytes: 32 << 10,
    read_staged_bytes: 32 << 10,
};

// An incomplete piece never fills the input.
const _: () = assert!(MEDIUM.write_piece_bytes_min < MEDIUM.input_bytes);
const _: () = assert!(SMALL.write_piece_bytes_min < SMALL.input_bytes);

impl BufferShare {
    /// Returns the share of each of `connection_count` connections. Called before each batch of
    /// requests.
    pub(crate) fn among(connection_count: usize) -> Self {
        if connection_count <= CONNECTION_COUNT_FEW {
            Self::Large
        } else if connection_count <= CONNECTION_COUNT_SEVERAL {
            Self::Medium
        } else {
            Self::Small
        }
    }

    fn limits(self) -> &'static Limits {
        match self {
            Self::Large => &LARGE,
            Self::Medium => &MEDIUM,
            Self::Small => &SMALL,
        }
    }
}

/// Input buffer: filled by a connection, consumed by a [`crate::Session`].
pub struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// Length of the part of `bytes` that has been written, and so takes memory.
    touched: usize,
    share: BufferShare,
}

impl Input {
    pub fn new() -> Self {
        let bytes = zeros(INPUT_BYTES);
        Self { bytes, start: 0, end: 0, touched: 0, share: BufferShare::Large }
    }

    /// Sets the share. Must be the same for both buffers, and set between calls of
    /// [`crate::Session::advance`].
    pub fn set_share(&mut self, share: BufferShare) {
        self.share = share;
    }

    /// Returns free space for received bytes. It is empty only if the buffer is full, and a session
    /// never leaves it full.
    pub fn space(&mut self) -> &mut [u8] {
        let limit = self.limits().input_bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && self.end > limit / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.touched > limit && self.end <= limit {
            let used = mem::replace(&mut self.bytes, zeros(INPUT_BYTES));
            self.bytes[..self.end].copy_from_slice(&used[..self.end]);
            self.touched = self.end;
        }
        // A session that holds more than a lowered limit can still make progress.
        let limit = if self.end < limit { limit } else { self.bytes.len() };
        &mut self.bytes[self.end..limit]
    }

    /// Appends the first `count` bytes of the last [`Input::space`].
    pub fn filled(&mut self, count: usize) {
        assert!(count <= self.bytes.len() - self.end, "no more was received than there is space");
        self.end += count;
        self.touched = self.touched.max(self.end);
    }

    pub(crate) fn limits(&self) -> &'static Limits {
        self.share.limits()
    }

    pub fn len(&self) -> usize {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn consume(&mut self, count: usize) {
        assert!(count <= self.len(), "no more is taken than there is");
        self.start += count;
    }
}

impl Default for Input {
    fn default() -> Self {
        Self::new()
    }
}

/// Output buffer: filled by a [`crate::Session`], sent and cleared by a connection.
pub struct Output {
    bytes: Box<[u8]>,
    end: usize,
    /// Length of the part of `bytes` that has been written, and so takes memory.
    touched: usize,
    share: BufferShare,
}

impl Output {
    pub fn new() -> Self {
        Self { bytes: zeros(OUTPUT_BYTES_MAX), end: 0, touched: 0, share: BufferShare::Large }
    }

    /// Sets the share. Must be the same for both buffers, and set between calls of
    /// [`crate::Session::advance`].
    pub fn set_share(&mut self, share: BufferShare) {
        self.share = share;
    }

    pub(crate) fn limits(&self) -> &'static Limits {
        self.share.limits()
    }

    /// Returns the bytes to send.
    pub fn data(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Clears the buffer after its data were sent.
    pub fn clear(&mut self) {
        self.end = 0;
        if self.touched > self.limits().output_bytes_kept {
            self.bytes = zeros(OUTPUT_BYTES_MAX);
            self.touched = 0;
        }
    }

    /// Returns whether the data must be sent before the next step.
    pub(crate) fn is_due(&self) -> bool {
        self.end >= self.limits().output_bytes_due
    }

    fn room(&self) -> usize {
        self.bytes.len() - self.end
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len()).copy_from_slice(bytes);
    }

    /// Appends `count` bytes with unspecified contents, for the caller to overwrite.
    pub(crate) fn reserve(&mut self, count: usize) -> &mut [u8] {
        assert!(count <= self.room(), "replies are sized before they are written");
        let start = self.end;
        self.end += count;
        self.touched = self.touched.max(self.end);
        &mut self.bytes[start..self.end]
    }

    /// Returns the current end, for [`Output::take_back`].
    pub(crate) fn mark(&self) -> usize {
        self.end
    }

    /// Removes everything that was added since `mark`.
    pub(crate) fn take_back(&mut self, mark: usize) {
        assert!(mark <= self.end, "the mark was taken before");
        self.end = mark;
    }
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

/// Zeroed bytes. The kernel allocates their pages on first use.
fn zeros(length: usize) -> Box<[u8]> {
    vec![0; length].into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_among_many_takes_less_and_loses_nothing() {
        let mut input = Input::new();
        receive(&mut input, &[7; 200 << 10]);
        input.consume((200 << 10) - 1000);
        input.set_share(BufferShare::Small);
        assert_eq!(input.space().len(), SMALL.input_bytes - 1000);
        assert_eq!((input.data(), input.touched), (&[7; 1000][..], 1000));
        receive(&mut input, &[8; 500]);
        assert_eq!(input.data(), [[7; 1000].as_slice(), &[8; 500]].concat());
        input.set_share(BufferShare::Large);
        assert_eq!(input.space().len(), INPUT_BYTES - 1500);
    }

    #[test]
    fn an_input_that_holds_more_than_many_may_take_still_gets_more() {
        let mut input = Input::new();
        receive(&mut input, &[7; SMALL.input_bytes + 10]);
        input.set_share(BufferShare::Small);
        assert_eq!(input.space().len(), INPUT_BYTES - SMALL.input_bytes - 10);
    }

    #[test]
    fn an_output_among_many_is_due_sooner_and_keeps_less() {
        let mut output = Output::new();
        output.reserve(1 << 20);
        output.clear();
        assert_eq!(output.touched, 1 << 20);
        output.set_share(BufferShare::Small);
        output.reserve(SMALL.output_bytes_due);
        assert!(output.is_due());
        output.clear();
        assert_eq!(output.touched, 0);
        output.reserve(1 << 20);
        assert_eq!(output.data().len(), 1 << 20, "the longest step still fits");
    }

    fn receive(input: &mut Input, bytes: &[u8]) {
        input.space()[..bytes.len()].copy_from_slice(bytes);
        input.filled(bytes.len());
    }

    #[test]
    fn input_gives_bytes_in_the_order_in_which_they_came() {
        let mut input = Input::new();
        receive(&mut input, b"abc");
        input.consume(1);
        receive(&mut input, b"de");
        assert_eq!(input.data(), b"bcde");
    }

    #[test]
    fn input_that_was_taken_leaves_its_space_to_others() {
        let mut input = Input::new();
        input.space().fill(b'x');
        input.filled(INPUT_BYTES);
        input.consume(INPUT_BYTES - 1);
        receive(&mut input, b"y");
        assert_eq!(input.data(), b"xy");
        assert_eq!(input.space().len(), INPUT_BYTES - 2);
    }

    #[test]
    fn output_forgets_what_is_taken_back() {
        let mut output = Output::new();
        output.put(b"ab");
        let mark = output.mark();
        output.put(b"cd");
        output.take_back(mark);
        assert_eq!(output.data(), b"ab");
        assert_eq!(output.room(), OUTPUT_BYTES_MAX - 2);
    }

    #[test]
    fn output_that_is_not_due_has_room_for_a_step() {
        let mut output = Output::new();
        assert!(!output.is_due());
        output.reserve(OUTPUT_BYTES_DUE - 1);
        assert!(!output.is_due());
        output.reserve(OUTPUT_STEP_BYTES_MAX);
        assert!(output.is_due());
    }
}
