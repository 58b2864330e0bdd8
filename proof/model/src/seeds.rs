//! Running a test under many seeds, and one of them again.

use std::ops::Range;
use std::sync::Mutex;
use std::thread;

/// The variable that chooses one seed to replay.
pub const SEED_VARIABLE: &str = "MEMLANE_SEED";

/// The variable that asks for another number of seeds than the test has of itself.
pub const SEED_COUNT_VARIABLE: &str = "MEMLANE_SEED_COUNT";

/// Says which seed failed, and how to replay it, if the test panics while this is alive.
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

/// Runs `test` with seeds `0..count`, or as many as [`SEED_COUNT_VARIABLE`] says, or with the one
/// in [`SEED_VARIABLE`]. `command` replays the
/// test, for the message of a failure.
pub fn for_each_seed(command: &str, count: u64, mut test: impl FnMut(u64)) {
    for seed in seeds(count) {
        let _witness = Witness { seed, test: command };
        test(seed);
    }
}

/// The same on all cores, in any order, for tests that keep their seeds apart.
pub fn for_each_seed_at_once(command: &str, count: u64, test: impl Fn(u64) + Sync) {
    let seeds = Mutex::new(seeds(count));
    let next = || seeds.lock().expect("nobody panics with the seeds locked").next();
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

fn seeds(count: u64) -> Range<u64> {
    let number = |variable| {
        let text = std::env::var(variable).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{variable} is a number, not {text}")))
    };
    let count = number(SEED_COUNT_VARIABLE).unwrap_or(count);
    number(SEED_VARIABLE).map_or(0..count, |seed| seed..seed + 1)
}
