//! Times of commits, from pgbench's logs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Commits in order of time, each as the time since the epoch.
#[derive(Debug)]
pub struct Commits {
    times: Vec<Duration>,
}

impl Commits {
    /// Reads the files that `pgbench --log` wrote into `folder`.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut times = Vec::new();
        let entries = fs::read_dir(folder).context("cannot list the logs of pgbench")?;
        for entry in entries {
            let path = entry.context("cannot list the logs of pgbench")?.path();
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            for line in text.lines() {
                let time = time_of(line)
                    .with_context(|| format!("{}: what is {line:?}?", path.display()))?;
                times.push(time);
            }
        }
        ensure!(!times.is_empty(), "pgbench logged no transaction");
        times.sort();
        Ok(Self { times })
    }

    /// Number of commits per second from `start` to `end`.
    pub fn rate(&self, start: Duration, end: Duration) -> f64 {
        let count = self.times.iter().filter(|time| (start..end).contains(time)).count();
        let seconds = end.saturating_sub(start).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a count of commits is far below 2^53")]
        let count = count as f64;
        if seconds > 0.0 { count / seconds } else { 0.0 }
    }

    pub fn first(&self) -> Duration {
        self.times[0]
    }

    pub fn last(&self) -> Duration {
        self.times[self.times.len() - 1]
    }

    /// The first commit at or after `time`.
    pub fn first_after(&self, time: Duration) -> Option<Duration> {
        self.times.iter().copied().find(|it| *it >= time)
    }

    /// Longest time without a commit.
    pub fn longest_gap(&self) -> Duration {
        let gaps = self.times.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.max().unwrap_or_default()
    }
}

/// Returns the time of a line, which contains client, transaction, its duration in microseconds,
/// script, and its end in seconds and microseconds since the epoch.
fn time_of(line: &str) -> Option<Duration> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let seconds = fields.get(4)?.parse().ok()?;
    let microseconds = fields.get(5)?.parse().ok()?;
    Some(Duration::from_secs(seconds) + Duration::from_micros(microseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_time_of_a_commit_is_read_from_the_log() {
        assert_eq!(
            time_of("0 199 2241 0 1175850568 995598"),
            Some(Duration::from_secs(1_175_850_568) + Duration::from_micros(995_598))
        );
        assert_eq!(time_of("0 199 skipped"), None);
    }

    #[test]
    fn rate_and_gap_are_told() {
        let commits = Commits { times: [0, 100, 200, 900].map(at).to_vec() };
        assert_eq!(commits.longest_gap(), at(700));
        assert!((commits.rate(at(0), at(1000)) - 4.0).abs() < 1e-9);
        assert_eq!(commits.first_after(at(150)), Some(at(200)));
    }
}
