//! Batches that no client should send. The fuzz target runs the same tests with better-chosen
//! bytes.

#[path = "support/compaction_storm.rs"]
mod compaction_storm;
#[path = "support/storm.rs"]
mod storm;
mod support;

use std::collections::BTreeMap;

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
    let mut counts = BTreeMap::new();
    for_each_seed(command, 1_000, |seed| {
        for told in storm::append(&bytes(seed, 1_500)) {
            let what =
                told.map_or_else(|kind| format!("{kind:?}"), |(_, it)| format!("there: {it}"));
            *counts.entry(what).or_insert(0_u64) += 1;
        }
    });
    eprintln!("producers were told {counts:?}");
    let all = [
        "there: false",
        "there: true",
        "FencedProducer",
        "OutOfOrderSequence",
        "TransactionState",
        "InvalidRecord",
    ];
    check_happened(all.into_iter().all(|it| counts.contains_key(it)));
}

#[test]
fn whatever_records_say_a_compacted_log_keeps_the_last_of_each_key() {
    let command = "cargo test -p record-log --test hostile whatever_records_say";
    let (mut removed, mut unread) = (0, 0);
    for_each_seed(command, 1_000, |seed| {
        let [more_removed, more_unread] = compaction_storm::compact(&bytes(seed, 200));
        (removed, unread) = (removed + more_removed, unread + more_unread);
    });
    eprintln!("{removed} records were taken out, {unread} batches could not be read");
    check_happened(removed >= 1_000 && unread >= 100);
}

/// A replayed single seed reaches fewer events.
fn check_happened(is_enough: bool) {
    assert!(is_enough || std::env::var_os(model::SEED_VARIABLE).is_some(), "too little happened");
}
