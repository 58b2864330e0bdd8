//! Progress messages of a long task: one line for each step, with the elapsed time and the expected
//! duration of the step, which is that of the last run or an estimate.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::times::Times;

/// Expected duration from which on it is announced.
const SHORT: Duration = Duration::from_secs(10);

/// Counter of the steps of a task, printed to standard error.
pub(crate) struct Progress {
    start: Instant,
    done: usize,
    total: usize,
}

impl Progress {
    pub(crate) fn new(total: usize) -> Self {
        Self { start: Instant::now(), done: 0, total }
    }

    /// Announces the next step.
    pub(crate) fn step(&mut self, what: &str) {
        self.done += 1;
        let elapsed = clock(self.start.elapsed());
        eprintln!("[{elapsed}] {}/{} {what}", self.done, self.total);
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Steps of a task whose durations are stored.
pub(crate) struct Steps {
    progress: Progress,
    times: Times,
}

impl Steps {
    pub(crate) fn new(root: &Path, total: usize) -> Self {
        Self { progress: Progress::new(total), times: Times::read(root) }
    }

    /// Announces and performs `work`, with its last duration.
    pub(crate) fn step<T>(
        &mut self,
        what: &str,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.long_step(what, Duration::ZERO, work)
    }

    /// Same, with an estimate of the first run's duration on two cores.
    pub(crate) fn long_step<T>(
        &mut self,
        what: &str,
        guess: Duration,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let expected = self.times.of(what).unwrap_or(guess);
        match expected > SHORT {
            true => self.progress.step(&format!("{what} (about {})", clock(expected))),
            false => self.progress.step(what),
        }
        let start = Instant::now();
        let done = work()?;
        self.times.note(what, start.elapsed());
        self.times.save()?;
        Ok(done)
    }
}

/// Formats a duration as minutes and seconds.
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
