//! The two buffers of a connection, which never grow.
//!
//! Their memory is that of the largest request that they met. A connection among many works in
//! smaller pieces, so that no request takes more of it, and gives back what it took before.

use std::mem;

/// Bytes that were received and not understood yet, at most. Holds several hundred requests, or
/// many small writes with their payload, so that one system call brings them all.
pub(crate) const INPUT_BYTES: usize = 320 << 10;

/// Replies are sent when so many bytes of them wait, even while more requests can be served.
pub(crate) const OUTPUT_BYTES_DUE: usize = 128 << 10;

/// Bytes that one step of a session adds to its output, at most: the longest piece of a read, with
/// its headers.
pub(crate) const OUTPUT_STEP_BYTES_MAX: usize = (1 << 20) + HEADERS_BYTES_MAX;

/// Bytes of replies that wait to be sent, at most. An output that is not due has room for a step.
const OUTPUT_BYTES_MAX: usize = OUTPUT_BYTES_DUE + OUTPUT_STEP_BYTES_MAX;

/// Room for what comes with data: the header of a write or of an option, and those of a read.
const HEADERS_BYTES_MAX: usize = 4096;

/// As many connections have buffers that are large enough for any request, at most.
const CONNECTION_COUNT_FEW: usize = 8;

/// From more connections on, each has buffers for small pieces.
const CONNECTION_COUNT_SEVERAL: usize = 24;

/// Share of the memory for buffers that a connection gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferShare {
    /// The buffers may grow to the size of the largest request.
    Large,
    /// Long requests are served in pieces.
    Medium,
    /// Long requests are served in small pieces.
    Small,
}

/// Limits of a connection's buffers.
pub(crate) struct Limits {
    /// Of the input; room for the longest option, and for the piece of a write that is waited for.
    input_bytes: usize,
    /// As [`OUTPUT_BYTES_DUE`].
    output_bytes_due: usize,
    /// What is kept of the output when it is empty.
    output_bytes_kept: usize,
    /// A write that has not arrived as a whole is started when so much of its payload has.
    pub(crate) write_piece_bytes_min: usize,
    /// Data in one chunk, and in one step of a long read, at most.
    pub(crate) read_piece_bytes: usize,
    /// Data in the first step of a reply that is one message, at most.
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

// Less than a piece never fills the input.
const _: () = assert!(MEDIUM.write_piece_bytes_min < MEDIUM.input_bytes);
const _: () = assert!(SMALL.write_piece_bytes_min < SMALL.input_bytes);

impl BufferShare {
    /// That of each of so many connections. Asked before each batch of requests.
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

/// Bytes from the client: appended by a connection, consumed by a [`crate::Session`].
pub struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// How much of `bytes` has memory.
    touched: usize,
    share: BufferShare,
}

impl Input {
    pub fn new() -> Self {
        let bytes = zeros(INPUT_BYTES);
        Self { bytes, start: 0, end: 0, touched: 0, share: BufferShare::Large }
    }

    /// Sets the share between two calls of [`crate::Session::advance`]; both buffers get the same.
    pub fn set_share(&mut self, share: BufferShare) {
        self.share = share;
    }

    /// Free space for received bytes. Empty only when [`Input::len`] is the whole buffer, which a
    /// session never leaves.
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
        // A session that left more than the limit still gets on.
        let limit = if self.end < limit { limit } else { self.bytes.len() };
        &mut self.bytes[self.end..limit]
    }

    /// Adds the first `count` bytes of the last [`Input::space`].
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

/// Replies: filled by a [`crate::Session`], sent and cleared by a connection.
pub struct Output {
    bytes: Box<[u8]>,
    end: usize,
    /// How much of `bytes` has memory.
    touched: usize,
    share: BufferShare,
}

impl Output {
    pub fn new() -> Self {
        Self { bytes: zeros(OUTPUT_BYTES_MAX), end: 0, touched: 0, share: BufferShare::Large }
    }

    /// Sets the share between two calls of [`crate::Session::advance`]; both buffers get the same.
    pub fn set_share(&mut self, share: BufferShare) {
        self.share = share;
    }

    pub(crate) fn limits(&self) -> &'static Limits {
        self.share.limits()
    }

    /// All bytes that wait to be sent.
    pub fn data(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Clears the buffer after its data was sent.
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

    /// Adds `count` bytes with whatever they hold, for the caller to overwrite.
    pub(crate) fn reserve(&mut self, count: usize) -> &mut [u8] {
        assert!(count <= self.room(), "replies are sized before they are written");
        let start = self.end;
        self.end += count;
        self.touched = self.touched.max(self.end);
        &mut self.bytes[start..self.end]
    }

    /// Where the next byte goes; see [`Output::take_back`].
    pub(crate) fn mark(&self) -> usize {
        self.end
    }

    /// Forgets what was added since `mark`.
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

/// Bytes that take no memory before they are touched.
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
