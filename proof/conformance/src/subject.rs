//! Interface between the suite and a client, and the context of its cases.

use std::fmt;

use block_device::{ByteRange, Zeroes};

use crate::pattern;

/// Minimum size of a device for the cases.
pub const SIZE_BYTES_MIN: u64 = 16 << 20;

/// Abilities of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Offsets and lengths must be multiples of this, a power of two up to 4096.
    pub granularity_bytes: usize,
    /// True if the client passes on requests that cross the end. Kernels shorten them.
    pub refuses_whole: bool,
    /// True if the client supports zeroes of both kinds.
    pub zeroes: bool,
    pub discards: bool,
}

impl Abilities {
    /// All abilities, at any byte.
    pub const ALL: Self =
        Self { granularity_bytes: 1, refuses_whole: true, zeroes: true, discards: true };
}

/// Error of a failed request, in the client's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Refusal {
    /// Creates a refusal with the text of any error.
    pub fn of(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// A client's view of one device, used by several threads concurrently.
pub trait Subject: Sync {
    fn abilities(&self) -> Abilities;

    fn size_bytes(&self) -> u64;

    fn is_read_only(&self) -> bool {
        false
    }

    /// Fills `into`. A short read at the end is a refusal.
    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), Refusal>;

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), Refusal>;

    /// Writes durably: on return, as durable as after a flush.
    fn write_durably(&self, offset_bytes: u64, from: &[u8]) -> Result<(), Refusal> {
        self.write(offset_bytes, from)?;
        self.flush()
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), Refusal>;

    fn discard(&self, range: ByteRange) -> Result<(), Refusal>;

    fn flush(&self) -> Result<(), Refusal>;
}

/// A subject with the context of the cases.
pub(super) struct CaseContext<'a> {
    pub(super) subject: &'a dyn Subject,
    pub(super) seed: u64,
    pub(super) granularity: usize,
    pub(super) size_bytes: u64,
}

impl<'a> CaseContext<'a> {
    pub(super) fn new(subject: &'a dyn Subject, seed: u64) -> Self {
        let size_bytes = subject.size_bytes();
        assert!(size_bytes >= SIZE_BYTES_MIN, "the device has {size_bytes} bytes, too few");
        let granularity = subject.abilities().granularity_bytes;
        assert!(granularity.is_power_of_two() && granularity <= 4096, "a sector's size");
        Self { subject, seed, granularity, size_bytes }
    }

    /// Rounds `bytes` up to the granularity of the client.
    pub(super) fn rounded(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(self.granularity)
    }

    #[track_caller]
    pub(super) fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0xA5; length];
        let answer = self.subject.read(offset, &mut bytes);
        answer.unwrap_or_else(|why| panic!("{length} bytes at {offset} are read: {why}"));
        bytes
    }

    #[track_caller]
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
        let answer = self.subject.write(offset, bytes);
        answer.unwrap_or_else(|why| panic!("{} bytes go to {offset}: {why}", bytes.len()));
    }

    /// Writes bytes determined by `salt` and the seed, and returns them.
    #[track_caller]
    pub(super) fn paint(&self, offset: u64, length: usize, salt: u64) -> Vec<u8> {
        let bytes = pattern::bytes(self.seed ^ salt, length);
        self.write(offset, &bytes);
        bytes
    }

    #[track_caller]
    pub(super) fn expect(&self, offset: u64, expected: &[u8]) {
        let found = self.read(offset, expected.len());
        pattern::check_same(offset, &found, expected);
    }
}

/// Returns the range of `length` bytes from `start` on.
pub(crate) fn range(start: u64, length: usize) -> ByteRange {
    ByteRange::new(start, length as u64)
}
