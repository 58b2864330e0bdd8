//! Interface of the suite to a client, and the context of its cases.

use std::fmt;

use block_device::{ByteRange, Zeroes};

use crate::pattern;

/// The smallest device that the cases fit on.
pub const SIZE_BYTES_MIN: u64 = 16 << 20;

/// Abilities of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Offsets and lengths must be multiples of it. A power of two, 4096 at most.
    pub granularity_bytes: usize,
    /// True if the client passes on requests that cross the end. Kernels shorten them.
    pub refuses_whole: bool,
    /// True if it can write zeroes, of both kinds.
    pub zeroes: bool,
    pub discards: bool,
}

impl Abilities {
    /// Everything, at any byte.
    pub const ALL: Self =
        Self { granularity_bytes: 1, refuses_whole: true, zeroes: true, discards: true };
}

/// A request that failed, in the words of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Refusal {
    /// Failure with the words of any error.
    pub fn of(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// A client's view of one device, to be used by several threads at once.
pub trait Subject: Sync {
    fn abilities(&self) -> Abilities;

    fn size_bytes(&self) -> u64;

    fn is_read_only(&self) -> bool {
        false
    }

    /// Fills `into`; a read that is cut short at the end is a refusal.
    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), Refusal>;

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), Refusal>;

    /// A write that is as durable when it returns as a flush after it would make it.
    fn write_durably(&self, offset_bytes: u64, from: &[u8]) -> Result<(), Refusal> {
        self.write(offset_bytes, from)?;
        self.flush()
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), Refusal>;

    fn discard(&self, range: ByteRange) -> Result<(), Refusal>;

    fn flush(&self) -> Result<(), Refusal>;
}

/// A subject and what the cases need beside it.
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

    /// `bytes` rounded up to what the client can express.
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

    /// Writes bytes that only `salt` and the seed decide, and returns them.
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

/// Bytes from `start` on.
pub(crate) fn range(start: u64, length: usize) -> ByteRange {
    ByteRange::new(start, length as u64)
}
