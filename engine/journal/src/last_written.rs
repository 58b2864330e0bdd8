//! Copy of the bytes that were written last, for the thread that mirrors flushes. It saves that
//! thread from reading them from the disk.
//!
//! Only bytes whose write has returned are kept. The lock is not held across disk I/O.

use std::io::IoSlice;
use std::sync::{Mutex, MutexGuard};

/// Maximum number of bytes kept. A reader that lags behind reads from the disk.
const BYTES_MAX: usize = 256 << 10;

#[derive(Debug, Default)]
pub(crate) struct LastWritten(Mutex<Kept>);

/// Bytes of a segment that follow each other.
#[derive(Debug, Default)]
struct Kept {
    is_wanted: bool,
    segment: u32,
    offset: u32,
    bytes: Vec<u8>,
}

impl LastWritten {
    /// Keeps bytes from now on.
    pub(crate) fn want(&self) {
        self.lock().is_wanted = true;
    }

    /// Keeps bytes that were written durably.
    pub(crate) fn note(&self, segment: u32, offset: u32, parts: &[IoSlice<'_>]) {
        let mut kept = self.lock();
        if !kept.is_wanted {
            return;
        }
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let continues = (kept.segment, kept.end()) == (segment, u64::from(offset));
        if !continues || kept.bytes.len() + length > BYTES_MAX {
            (kept.segment, kept.offset) = (segment, offset);
            kept.bytes.clear();
        }
        if length <= BYTES_MAX {
            parts.iter().for_each(|part| kept.bytes.extend_from_slice(part));
        }
    }

    /// Copies bytes of a segment. Returns false if they are not kept.
    pub(crate) fn copy(&self, segment: u32, offset: u32, into: &mut [u8]) -> bool {
        let kept = self.lock();
        let end = u64::from(offset) + into.len() as u64;
        if kept.segment != segment || offset < kept.offset || end > kept.end() {
            return false;
        }
        let from = (offset - kept.offset) as usize;
        into.copy_from_slice(&kept.bytes[from..from + into.len()]);
        true
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().expect("no thread panics with this lock")
    }
}

impl Kept {
    fn end(&self) -> u64 {
        u64::from(self.offset) + self.bytes.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(last: &LastWritten, segment: u32, offset: u32, bytes: &[u8]) {
        last.note(segment, offset, &[IoSlice::new(bytes)]);
    }

    #[track_caller]
    fn check(last: &LastWritten, (segment, offset): (u32, u32), expected: Option<&[u8]>) {
        let mut into = vec![0; expected.map_or(1, <[u8]>::len)];
        let found = last.copy(segment, offset, &mut into).then_some(&into[..]);
        assert_eq!(found, expected, "{segment}, {offset}");
    }

    #[test]
    fn what_was_written_last_is_kept_once_it_is_wanted() {
        let last = LastWritten::default();
        note(&last, 1, 0, b"ab");
        check(&last, (1, 0), None);
        last.want();
        note(&last, 1, 2, b"cd");
        last.note(1, 4, &[IoSlice::new(b"e"), IoSlice::new(b"f")]);
        check(&last, (1, 2), Some(b"cdef"));
        check(&last, (1, 3), Some(b"de"));
        check(&last, (1, 1), None);
        check(&last, (1, 6), None);
        check(&last, (2, 2), None);
    }

    #[test]
    fn what_does_not_follow_replaces_what_was_kept() {
        let last = LastWritten::default();
        last.want();
        note(&last, 1, 0, b"ab");
        note(&last, 2, 0, b"cd");
        check(&last, (1, 0), None);
        check(&last, (2, 0), Some(b"cd"));
        note(&last, 2, 9, b"ef");
        check(&last, (2, 0), None);
        check(&last, (2, 9), Some(b"ef"));
        note(&last, 2, 11, &vec![7; BYTES_MAX]);
        check(&last, (2, 9), None);
        check(&last, (2, 11), Some(&vec![7; BYTES_MAX]));
        let long = 11 + u32::try_from(BYTES_MAX).expect("it is short");
        note(&last, 2, long, &vec![7; BYTES_MAX + 1]);
        check(&last, (2, 11), None);
        check(&last, (2, long), None);
    }
}
