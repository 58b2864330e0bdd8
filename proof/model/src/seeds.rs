//! Runs a test with many seeds, some fixed and some fresh in each run, or replays one of them.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::sync::Mutex;
use std::thread;

/// Variable that selects one seed to replay.
pub const SEED_VARIABLE: &str = "MEMLANE_SEED";

/// Variable that overrides the number of seeds of a test.
pub const SEED_COUNT_VARIABLE: &str = "MEMLANE_SEED_COUNT";

/// Variable that selects the first fresh seed, to replay a whole run.
pub const FRESH_SEEDS_VARIABLE: &str = "MEMLANE_FRESH_SEEDS";

/// One in this many seeds is fixed.
const FIXED_ONE_IN: u64 = 4;

/// Reports the failed seed, and the command to replay it, if the test panics while this exists.
struct Witness<'test> {
    seed: u64,
    test: &'test str,
}

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "seed {} failed; replay: {SEED_VARIABLE}={} {}",
                self.seed, self.seed, self.test
            );
        }
    }
}

/// Runs `test` with `count` seeds, or with the number in [`SEED_COUNT_VARIABLE`]. The first of them
/// count from 0, the others are drawn in each run and printed. With [`SEED_VARIABLE`] it runs only
/// that seed. `command` replays the test, for messages.
pub fn for_each_seed(command: &str, count: u64, mut test: impl FnMut(u64)) {
    for seed in seeds(command, count) {
        let _witness = Witness { seed, test: command };
        test(seed);
    }
}

/// Runs like [`for_each_seed`], on all cores and in any order, for tests whose seeds are
/// independent.
pub fn for_each_seed_at_once(command: &str, count: u64, test: impl Fn(u64) + Sync) {
    let seeds = Mutex::new(seeds(command, count));
    let next = || seeds.lock().expect("no thread panics with the seeds locked").next();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(seed) = next() {
                    let _witness = Witness { seed, test: command };
                    test(seed);
                }
            });
        }
    });
}

fn seeds(command: &str, count: u64) -> impl Iterator<Item = u64> {
    let count = number(SEED_COUNT_VARIABLE).unwrap_or(count);
    let (fixed, fresh) = match number(SEED_VARIABLE) {
        Some(seed) => (seed..seed + 1, 0..0),
        None => ranges(count, number(FRESH_SEEDS_VARIABLE).unwrap_or_else(fresh_number)),
    };
    if !fresh.is_empty() {
        eprintln!(
            "seeds {fixed:?} and {fresh:?}; all again: {FRESH_SEEDS_VARIABLE}={} {command}",
            fresh.start
        );
    }
    fixed.chain(fresh)
}

/// Returns the ranges of the fixed seeds and of the fresh ones.
fn ranges(count: u64, fresh: u64) -> (Range<u64>, Range<u64>) {
    let fixed_count = count.div_ceil(FIXED_ONE_IN);
    (0..fixed_count, fresh..fresh + (count - fixed_count))
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{variable} is a number, not {text}")))
}

/// Draws a number of 32 bits, which is short enough to type and to calculate with.
fn fresh_number() -> u64 {
    let mut bytes = [0; 4];
    let drawn = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
    drawn.expect("every Linux has /dev/urandom");
    u64::from(u32::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_seeds_are_the_same_in_every_run_and_the_others_fresh() {
        assert_eq!(ranges(80, 1000), (0..20, 1000..1060));
        assert_eq!(ranges(4, 7), (0..1, 7..10));
        assert_eq!(ranges(1, 7), (0..1, 7..7));
        assert_eq!(ranges(0, 7), (0..0, 7..7));
    }
}
