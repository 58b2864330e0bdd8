//! Checkpoints that are loaded, and those that are rejected.

mod support;

use std::sync::Arc;

use block_device::BLOCK_BYTES;
use model::Random;
use record_log::Partition;
use support::{BEFORE_ALL, History, new_topic, rows};
use values::{CheckpointStep, Follower, Opening, Secret};

const SECRET: Secret = Secret([4; 16]);

fn follow_all(partition: &Arc<Partition>) -> (Follower, Opening) {
    let (mut follower, opening) = Follower::open(Arc::clone(partition), SECRET).expect("it opens");
    while follower.follow(1 << 20, None).expect("it follows").is_behind {}
    (follower, opening)
}

fn write_checkpoint(follower: &mut Follower) {
    assert!(follower.begin_checkpoint(2).expect("there is room"));
    while follower.step_checkpoint().expect("it writes") == CheckpointStep::More {}
    assert!(follower.is_checkpoint_current());
}

fn history(random: &mut Random) -> History {
    let mut history = History::new();
    (0..100).for_each(|_| history.publish(random));
    history.settle(random);
    history
}

#[track_caller]
fn check(history: &History, follower: &Follower) {
    let values = follower.values();
    let found = rows(&values.snapshot().expect("they are there"), BEFORE_ALL).expect("it reads");
    assert_eq!(found, history.expected(values.applied(), None, 0));
    assert_eq!(values.applied(), history.partition.last_stable_offset());
}

#[test]
fn the_older_checkpoint_is_taken_where_the_newer_one_is_torn() {
    let mut random = Random::new(1);
    let mut history = history(&mut random);
    let (mut follower, opening) = follow_all(&history.partition);
    assert_eq!(opening, Opening::FromStart);
    write_checkpoint(&mut follower);
    let older = follower.values().applied();
    history.publish(&mut random);
    history.settle(&mut random);
    while follower.follow(1, None).expect("it follows").is_behind {}
    write_checkpoint(&mut follower);
    drop(follower);
    // Checkpoints with odd and even numbers use different places. The second one has an even
    // number.
    let newer = history.partition.derived_area().place(0);
    history.device.write(newer, &[0; BLOCK_BYTES]).expect("it writes");
    let (follower, opening) = follow_all(&history.partition);
    assert!(
        matches!(opening, Opening::FromCheckpoint { follow_from, .. } if follow_from == older),
        "{opening:?}"
    );
    check(&history, &follower);
}

#[test]
fn a_checkpoint_of_another_log_is_refused_and_forgotten() {
    let mut random = Random::new(2);
    let one = history(&mut random);
    let (mut follower, _) = follow_all(&one.partition);
    write_checkpoint(&mut follower);
    let other = new_topic(&support::new_device(), [2; 16]);
    let partition = other.partition(1).expect("it is there");
    let place = partition.derived_area().place(1);
    let mut bytes = vec![0; 2 << 20];
    one.device.read(place, &mut bytes).expect("it reads");
    partition.derived_area().device().write(place, &bytes).expect("it writes");
    let (follower, opening) = follow_all(&partition);
    assert_eq!(opening, Opening::Refused { why: "it belongs to another log" });
    assert_eq!(follower.values().figures().key_count, 0);
    drop(follower);
    assert_eq!(follow_all(&partition).1, Opening::FromStart);
}

#[test]
fn a_checkpoint_of_what_the_log_has_lost_is_refused() {
    let mut random = Random::new(3);
    let mut history = history(&mut random);
    let (mut follower, _) = follow_all(&history.partition);
    write_checkpoint(&mut follower);
    drop(follower);
    // A compaction removes records that the checkpoint refers to.
    history.partition.roll();
    history.now_ms += 1_000;
    history.publish(&mut random);
    history.settle(&mut random);
    while history.partition.compaction_generation() == 0 {
        history.compact(&mut random);
    }
    let (follower, opening) = follow_all(&history.partition);
    assert_eq!(opening, Opening::Refused { why: "the log was compacted since" });
    check(&history, &follower);
}

#[test]
fn values_of_an_empty_log_are_there_at_once_also_from_a_checkpoint() {
    let history = History::new();
    let (mut follower, _) = follow_all(&history.partition);
    check(&history, &follower);
    write_checkpoint(&mut follower);
    drop(follower);
    let (follower, opening) = follow_all(&history.partition);
    assert!(matches!(opening, Opening::FromCheckpoint { key_count: 0, .. }), "{opening:?}");
    check(&history, &follower);
}
