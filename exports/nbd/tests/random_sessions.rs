//! Sessions under random input. The fuzz targets do the same with input that is chosen better.

#[path = "support/storm.rs"]
mod storm;
mod support;
#[path = "support/talk.rs"]
mod talk;

use std::env;

/// Set to a number, it replays one seed.
const SEED_VARIABLE: &str = "NBD_SEED";

const SEED_COUNT: u64 = 300;

/// Numbers that look random, the same for the same seed (SplitMix64).
struct Random {
    state: u64,
}

impl Random {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        std::iter::repeat_with(|| self.next().to_le_bytes()[0]).take(count).collect()
    }
}

/// Tells how to replay a seed when its test fails.
struct Replay {
    test: &'static str,
    seed: u64,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { test, seed } = self;
            eprintln!(
                "replay: {SEED_VARIABLE}={seed} cargo test -p nbd --test random_sessions {test}"
            );
        }
    }
}

fn for_each_seed(test: &'static str, run: impl Fn(&mut Random)) {
    let chosen = env::var(SEED_VARIABLE).ok().map(|seed| seed.parse().expect("a number"));
    let seeds = chosen.map_or(0..SEED_COUNT, |seed| seed..seed + 1);
    for seed in seeds {
        let _replay = Replay { test, seed };
        run(&mut Random { state: seed });
    }
}

#[test]
fn nothing_confuses_the_handshake() {
    for_each_seed("nothing_confuses_the_handshake", |random| {
        storm::handshake(&random.bytes(2000));
    });
}

#[test]
fn every_request_is_answered_as_the_model_says() {
    for_each_seed("every_request_is_answered_as_the_model_says", |random| {
        storm::requests(&random.bytes(1500));
    });
}
