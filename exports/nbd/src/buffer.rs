//! The two buffers of a connection. Both are allocated once and never grow.

/// Bytes that were received and not understood yet, at most. Holds several hundred requests, or
/// many small writes with their payload, so that one system call brings them all.
pub(crate) const INPUT_BYTES: usize = 320 << 10;

/// Replies are sent when so many bytes of them wait, even while more requests can be served.
pub(crate) const OUTPUT_BYTES_DUE: usize = 128 << 10;

/// Bytes that one step of a session adds to its output, at most: the longest piece of a read, with
/// its headers.
pub(crate) const OUTPUT_STEP_BYTES_MAX: usize = (1 << 20) + 4096;

/// Bytes of replies that wait to be sent, at most. An output that is not due has room for a step.
const OUTPUT_BYTES_MAX: usize = OUTPUT_BYTES_DUE + OUTPUT_STEP_BYTES_MAX;

/// What a client sent: filled at the back by a connection, taken from the front by a
/// [`crate::Session`].
pub struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    pub fn new() -> Self {
        Self { bytes: vec![0; INPUT_BYTES].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Free space for received bytes. Empty only when `len` is the whole buffer, which a session
    /// never leaves behind.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && self.bytes.len() - self.end < self.bytes.len() / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.bytes[self.end..]
    }

    /// Adds the first `count` bytes of the last [`Input::space`].
    pub fn filled(&mut self, count: usize) {
        assert!(count <= self.bytes.len() - self.end, "no more was received than there is space");
        self.end += count;
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
}

impl Output {
    pub fn new() -> Self {
        Self { bytes: vec![0; OUTPUT_BYTES_MAX].into_boxed_slice(), end: 0 }
    }

    /// Everything that waits to be sent.
    pub fn data(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Forgets the data, after it was sent.
    pub fn clear(&mut self) {
        self.end = 0;
    }

    /// Whether the data must be sent before the next step.
    pub(crate) fn is_due(&self) -> bool {
        self.end >= OUTPUT_BYTES_DUE
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

#[cfg(test)]
mod tests {
    use super::*;

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
