//! Running a test under many seeds, and one of them again.

/// The variable that chooses one seed to replay.
pub const SEED_VARIABLE: &str = "MEMLANE_SEED";

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

/// Runs `test` with seeds `0..count`, or with the one in [`SEED_VARIABLE`]. `command` replays the
/// test, for the message of a failure.
pub fn for_each_seed(command: &str, count: u64, mut test: impl FnMut(u64)) {
    let chosen = std::env::var(SEED_VARIABLE).ok();
    let chosen = chosen.map(|seed| seed.parse::<u64>().expect("a seed is a number"));
    let seeds = chosen.map_or(0..count, |seed| seed..seed + 1);
    for seed in seeds {
        let _witness = Witness { seed, test: command };
        test(seed);
    }
}
