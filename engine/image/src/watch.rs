//! Progress, cancellation and rate limits of long operations.

use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{ImageError, ImageErrorKind};

/// Progress of a long operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub done_bytes: u64,
    /// Estimated total of bytes to process.
    pub total_bytes: u64,
}

/// Observer of a long operation. Called from the operation's threads, several times a second per
/// gigabyte. It must not block.
pub trait Watch: Send + Sync {
    fn on_progress(&self, progress: Progress);

    /// Returns whether the operation should end early. It then soon fails with `Cancelled`.
    fn is_cancelled(&self) -> bool;
}

/// Observer that does nothing and never cancels.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn on_progress(&self, _progress: Progress) {}

    fn is_cancelled(&self) -> bool {
        false
    }
}

pub(crate) fn check_cancelled(watch: &dyn Watch, attempt: &str) -> Result<(), ImageError> {
    match watch.is_cancelled() {
        true => Err(ImageError::new(ImageErrorKind::Cancelled, attempt)),
        false => Ok(()),
    }
}

pub(crate) fn bytes_a_second(bytes: u64, took: Duration) -> u64 {
    let micros = took.as_micros().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000 / micros).unwrap_or(u64::MAX)
}

/// Maximum sleep between two checks for cancellation.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// Rate limiter in bytes per second.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_a_second_max: Option<NonZeroU64>,
    begun: Instant,
    bytes: u64,
}

impl Pace {
    pub(crate) fn new(bytes_a_second_max: Option<NonZeroU64>) -> Self {
        Self { bytes_a_second_max, begun: Instant::now(), bytes: 0 }
    }

    /// Waits until `bytes` more are within the rate, or the operation is cancelled.
    pub(crate) fn wait(&mut self, bytes: u64, watch: &dyn Watch) {
        self.bytes += bytes;
        let Some(rate) = self.bytes_a_second_max else { return };
        loop {
            let elapsed = self.begun.elapsed();
            let ahead = due_after(self.bytes, rate).saturating_sub(elapsed);
            if ahead.is_zero() || watch.is_cancelled() {
                return;
            }
            thread::sleep(ahead.min(SLEEP_MAX));
        }
    }
}

fn due_after(bytes: u64, rate: NonZeroU64) -> Duration {
    let micros = u128::from(bytes) * 1_000_000 / u128::from(rate.get());
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_due_at_the_rate() {
        let rate = NonZeroU64::new(1 << 20).expect("not zero");
        assert_eq!(due_after(1 << 20, rate), Duration::from_secs(1));
        assert_eq!(due_after(1 << 19, rate), Duration::from_millis(500));
        assert_eq!(due_after(u64::MAX, NonZeroU64::MIN), Duration::from_micros(u64::MAX));
    }

    #[test]
    fn a_paced_operation_takes_the_time_that_its_bytes_are_due_in() {
        let begun = Instant::now();
        let mut pace = Pace::new(NonZeroU64::new(1 << 20));
        pace.wait(1 << 15, &Unwatched);
        pace.wait(1 << 15, &Unwatched);
        assert!(begun.elapsed() >= Duration::from_micros(62_500));
    }
}
