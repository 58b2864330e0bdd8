//! Batches that no client should send. The fuzz target does the same with bytes chosen better.

#[path = "support/compaction_storm.rs"]
mod compaction_storm;
#[path = "support/storm.rs"]
mod storm;
mod support;

use model::{Random, for_each_seed};

fn bytes(seed: u64, length_limit: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = vec![0; random.index(length_limit)];
    random.fill(&mut bytes);
    bytes
}

#[test]
fn nothing_confuses_the_splitting_of_batches() {
    let command = "cargo test -p record-log --test hostile nothing_confuses";
    for_each_seed(command, 1_000, |seed| storm::split(&bytes(seed, 300)));
}

#[test]
fn whatever_headers_say_a_log_keeps_what_it_took() {
    let command = "cargo test -p record-log --test hostile whatever_headers_say";
    for_each_seed(command, 1_000, |seed| storm::append(&bytes(seed, 1_500)));
}

#[test]
fn whatever_records_say_a_compacted_log_keeps_the_last_of_each_key() {
    let command = "cargo test -p record-log --test hostile whatever_records_say";
    for_each_seed(command, 1_000, |seed| compaction_storm::compact(&bytes(seed, 200)));
}
