//! Progress messages of a long task: a line for each step, with the time since the start and the
//! time that the step will take: as long as the last time, or a guess.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::times::Times;

/// A step that takes longer is announced with its time.
const SHORT: Duration = Duration::from_secs(10);

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

/// Steps of a task whose durations are kept.
pub(crate) struct Steps {
    progress: Progress,
    times: Times,
}

impl Steps {
    pub(crate) fn new(root: &Path, total: usize) -> Self {
        Self { progress: Progress::new(total), times: Times::read(root) }
    }

    /// Does `work`, which is said before, with its duration of the last time.
    pub(crate) fn step<T>(
        &mut self,
        what: &str,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.long_step(what, Duration::ZERO, work)
    }

    /// The same; the first time it takes about `guess` on two cores.
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
