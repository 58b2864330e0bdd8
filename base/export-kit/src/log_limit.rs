//! Rate limit on log messages that peers cause, so that they cannot fill a disk.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Maximum number of lines of one limit in each window.
pub const LINES_PER_WINDOW_MAX: u32 = 10;

/// Length of a window, after which lines are written again.
pub const WINDOW: Duration = Duration::from_secs(60);

/// Rate limit on the lines of its users. Each peer that can cause lines should have its own limit,
/// so that none suppresses the lines of another.
#[derive(Debug, Default)]
pub struct LogLimit {
    window: Mutex<Option<Window>>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    begun: Instant,
    written: u32,
    left_out: u64,
}

impl LogLimit {
    pub const fn new() -> Self {
        Self { window: Mutex::new(None) }
    }

    /// Returns whether a line may be written, and if so the number of lines suppressed before it.
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut window = self.window.lock().expect("no thread panics with this lock");
        let fresh = Window { begun: now, written: 0, left_out: 0 };
        let current = window.get_or_insert(fresh);
        let mut left_out = 0;
        if now.saturating_duration_since(current.begun) >= WINDOW {
            left_out = current.left_out;
            *current = fresh;
        }
        if current.written >= LINES_PER_WINDOW_MAX {
            current.left_out += 1;
            return None;
        }
        current.written += 1;
        Some(left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_counted_and_told_later() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        for _ in 0..LINES_PER_WINDOW_MAX {
            assert_eq!(limit.admit_at(start), Some(0));
        }
        for _ in 0..1000 {
            assert_eq!(limit.admit_at(start + WINDOW / 2), None);
        }
        assert_eq!(limit.admit_at(start + WINDOW), Some(1000));
        assert_eq!(limit.admit_at(start + WINDOW), Some(0));
    }
}
