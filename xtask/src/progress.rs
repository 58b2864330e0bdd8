//! What a long task says while it works: one line for each step, with the time since the start.

use std::time::{Duration, Instant};

/// Counts the steps of a task aloud, on standard error.
pub(crate) struct Progress {
    start: Instant,
    done: usize,
    total: usize,
}

impl Progress {
    pub(crate) fn new(total: usize) -> Self {
        Self { start: Instant::now(), done: 0, total }
    }

    /// Says that the next step begins.
    pub(crate) fn step(&mut self, what: &str) {
        self.done += 1;
        let elapsed = clock(self.start.elapsed());
        eprintln!("[{elapsed}] {}/{} {what}", self.done, self.total);
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// `duration` as minutes and seconds.
pub(crate) fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_reads_as_minutes_and_seconds() {
        assert_eq!(clock(Duration::from_secs(5)), "0:05");
        assert_eq!(clock(Duration::from_secs(605)), "10:05");
    }
}
