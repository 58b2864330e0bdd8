//! Ratio of reads to appends, and the tokens that enforce it.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use sync::Padded;

use super::stop::{Patience, Stop};

/// Number of operations by which one kind may lead.
const SLACK: u64 = 16;

/// Share of reads in all operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Mix {
    reads_percent: u64,
}

impl Mix {
    /// Appends only: the paper's 100 % write mix.
    pub(crate) const APPENDS: Self = Self { reads_percent: 0 };
    /// The paper's mix of 80 % reads and 20 % writes.
    #[cfg(test)]
    pub(crate) const READS_80: Self = Self { reads_percent: 80 };

    pub(crate) fn reads_percent(self) -> u64 {
        self.reads_percent
    }

    pub(crate) fn read_share(self) -> f64 {
        self.reads_percent as f64 / 100.0
    }

    pub(crate) fn has_reads(self) -> bool {
        self.reads_percent > 0
    }
}

/// Formats a mix as in the paper's tables: reads before writes, but `100/0` for writes only.
impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reads_percent {
            0 => f.write_str("100/0"),
            reads => write!(f, "{reads}/{}", 100 - reads),
        }
    }
}

impl FromStr for Mix {
    type Err = anyhow::Error;

    /// Parses the percentage of reads: `0`, `80`.
    fn from_str(text: &str) -> Result<Self> {
        let reads_percent =
            text.parse().context("invalid mix; use the percentage of reads, for example 0,80")?;
        ensure!(reads_percent < 100, "invalid mix: at most 99 % can be reads");
        Ok(Self { reads_percent })
    }
}

/// Counters of granted operations per kind.
#[derive(Debug)]
pub(crate) struct Tokens {
    mix: Mix,
    reads: Padded<AtomicU64>,
    appends: Padded<AtomicU64>,
}

impl Tokens {
    pub(crate) fn new(mix: Mix) -> Self {
        Self { mix, reads: Padded::default(), appends: Padded::default() }
    }

    /// Takes the next token for a thread that does both kinds. Returns whether it is a read.
    pub(crate) fn next_is_read(&self) -> bool {
        // Relaxed, here and below: the counters do not protect other memory.
        let reads = self.reads.load(Ordering::Relaxed);
        let appends = self.appends.load(Ordering::Relaxed);
        // The kind that is further below its share comes first.
        let is_read =
            (reads + 1) * self.appends_percent() <= (appends + 1) * self.mix.reads_percent;
        let side = if is_read { &self.reads } else { &self.appends };
        side.store(if is_read { reads } else { appends } + 1, Ordering::Relaxed);
        is_read
    }

    /// Takes a token for a read and waits until it is granted. Returns `false` if the run was
    /// stopped.
    pub(crate) fn take_read(&self, stop: &Stop) -> bool {
        let taken = self.reads.fetch_add(1, Ordering::Relaxed);
        wait_until(stop, || {
            let granted = (self.appends.load(Ordering::Relaxed) + SLACK) * self.mix.reads_percent;
            taken * self.appends_percent() < granted
        })
    }

    /// Takes a token for an append and waits until it is granted. Returns `false` if the run was
    /// stopped.
    pub(crate) fn take_append(&self, stop: &Stop) -> bool {
        let taken = self.appends.fetch_add(1, Ordering::Relaxed);
        wait_until(stop, || {
            let granted = (self.reads.load(Ordering::Relaxed) + SLACK) * self.appends_percent();
            taken * self.mix.reads_percent < granted
        })
    }

    fn appends_percent(&self) -> u64 {
        100 - self.mix.reads_percent
    }
}

fn wait_until(stop: &Stop, mut is_granted: impl FnMut() -> bool) -> bool {
    let mut patience = Patience::default();
    while !is_granted() {
        if stop.is_asked_for() {
            return false;
        }
        patience.pause();
    }
    true
}

#[cfg(test)]
mod tests {
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    fn mix(reads_percent: u64) -> Mix {
        reads_percent.to_string().parse().expect("it is a mix")
    }

    #[test]
    fn a_mix_is_named_as_in_the_paper() {
        assert_eq!(Mix::APPENDS.to_string(), "100/0");
        assert_eq!(Mix::READS_80.to_string(), "80/20");
    }

    #[test]
    fn a_mix_without_appends_is_refused() {
        assert!("100".parse::<Mix>().is_err());
        assert!("-1".parse::<Mix>().is_err());
        assert!("many".parse::<Mix>().is_err());
    }

    proptest! {
        #[test]
        fn one_thread_keeps_to_the_mix(reads_percent in 0_u64..100, count in 1_u64..2000) {
            let tokens = Tokens::new(mix(reads_percent));
            let reads = (0..count).filter(|_| tokens.next_is_read()).count() as u64;
            let wanted = count * reads_percent / 100;
            prop_assert!(reads.abs_diff(wanted) <= 2, "{reads} of {count}, wanted {wanted}");
        }
    }

    #[test]
    fn threads_of_any_speed_keep_to_the_mix() {
        const READS: u64 = 4000;
        for reads_percent in [10, 50, 80, 99] {
            let tokens = Tokens::new(mix(reads_percent));
            let stop = Stop::default();
            let appends = thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let mut appends = 0_u64;
                    while tokens.take_append(&stop) {
                        appends += 1;
                    }
                    appends
                });
                for _ in 0..READS {
                    assert!(tokens.take_read(&stop));
                }
                stop.ask();
                writer.join().expect("the writer does not panic")
            });
            // In units of reads: the mix, and the slack of both kinds.
            let slack = SLACK * 100;
            let difference = (READS * (100 - reads_percent)).abs_diff(appends * reads_percent);
            assert!(difference <= slack * 2, "{appends} appends with {reads_percent} % reads");
        }
    }

    #[test]
    fn a_side_whose_other_side_is_gone_ends_when_it_is_told_to() {
        let tokens = Tokens::new(Mix::READS_80);
        let stop = Stop::default();
        stop.ask();
        let granted = (0..1000).take_while(|_| tokens.take_append(&stop)).count() as u64;
        assert!(granted < SLACK, "{granted} appends without a read");
    }
}
