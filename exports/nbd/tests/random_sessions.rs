//! Sessions under random input. The fuzz targets run the same code with coverage-guided input.

#[path = "support/storm.rs"]
mod storm;
mod support;
#[path = "support/talk.rs"]
mod talk;

use model::{Random, for_each_seed};

const SEED_COUNT: u64 = 300;

fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    std::iter::repeat_with(|| random.number().to_le_bytes()[0]).take(count).collect()
}

#[test]
fn nothing_confuses_the_handshake() {
    let command = "cargo test -p nbd --test random_sessions nothing_confuses_the_handshake";
    for_each_seed(command, SEED_COUNT, |seed| storm::handshake(&bytes(seed, 2000)));
}

#[test]
fn every_request_is_answered_as_the_model_says() {
    let command = "cargo test -p nbd --test random_sessions every_request";
    for_each_seed(command, SEED_COUNT, |seed| storm::requests(&bytes(seed, 1500)));
}
