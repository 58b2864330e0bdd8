//! Options of a journal.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use crate::error::{JournalError, JournalErrorKind};

/// Behaviour of flushes while the journal cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Flushes wait until the journal can be written.
    Wait,
    /// Flushes fail, and volumes of class `journal` are read-only, until the journal can be
    /// written.
    ReadOnly,
}

/// Limits and policies of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// Limit on the total size of the journal's files. A checkpoint is requested at half of it.
    pub length_bytes_max: u64,
    /// Size of a segment file: 256 KiB to 1 GiB, a multiple of 4096.
    pub segment_bytes: u32,
    /// Number of pages whose location in the journal is remembered, 40 bytes each.
    pub known_pages_max: usize,
    pub policy: FailurePolicy,
    /// First delay before a failed disk is retried. It doubles with each attempt.
    pub retry_after: Duration,
    /// Maximum delay between two attempts.
    pub retry_after_max: Duration,
    /// Maximum time that a flush waits for a checkpoint when the journal has reached its limit and
    /// the policy is not to wait.
    pub patience: Duration,
}

/// Minimum and maximum segment size.
pub const SEGMENT_BYTES_MIN: u32 = 256 << 10;
pub const SEGMENT_BYTES_MAX: u32 = 1 << 30;

/// Minimum number of segments that the limit must allow: one being written, one prepared, one that
/// a checkpoint is about to remove, and one to switch to when the disk fails.
pub const SEGMENT_COUNT_MIN: u64 = 4;

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            length_bytes_max: 4 << 30,
            segment_bytes: 64 << 20,
            known_pages_max: 128 << 10,
            policy: FailurePolicy::Wait,
            retry_after: Duration::from_millis(10),
            retry_after_max: Duration::from_secs(1),
            patience: Duration::from_secs(5),
        }
    }
}

impl JournalOptions {
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        let invalid = |what: String| Err(JournalError::new(JournalErrorKind::Invalid, what));
        let segment_bytes = self.segment_bytes;
        let is_length = (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes);
        if !is_length || !segment_bytes.is_multiple_of(4096) {
            return invalid(format!(
                "invalid segment size {segment_bytes}; use 256 KiB to 1 GiB, a multiple of 4 KiB"
            ));
        }
        let bytes_min = SEGMENT_COUNT_MIN * u64::from(segment_bytes);
        if self.length_bytes_max < bytes_min {
            let length = self.length_bytes_max;
            return invalid(format!(
                "journal size {length} is too small; its segments need at least {bytes_min}"
            ));
        }
        Ok(())
    }
}

/// Source of time for a journal.
pub trait Clock: Debug + Send + Sync {
    /// Returns the time since a fixed instant. Monotonic.
    fn now(&self) -> Duration;
}

/// The system's monotonic clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(options: JournalOptions, text: &str) {
        let error = options.check().expect_err("it is not possible");
        assert_eq!(error.kind, JournalErrorKind::Invalid);
        assert!(error.to_string().contains(text), "{error}");
    }

    #[test]
    fn impossible_lengths_are_refused_with_what_is_possible() {
        let good = JournalOptions::default();
        good.check().expect("the default is possible");
        check_refused(JournalOptions { segment_bytes: 128 << 10, ..good }, "256 KiB to 1 GiB");
        check_refused(JournalOptions { segment_bytes: (1 << 20) + 1, ..good }, "multiple of 4 KiB");
        check_refused(JournalOptions { length_bytes_max: 1 << 20, ..good }, "at least 268435456");
    }
}
