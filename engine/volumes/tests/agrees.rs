//! Volumes under random operations, compared with the model.

mod support;

use model::{Schedule, ScheduleShape, for_each_seed};
use support::{Pair, Pool};

const MIB: u64 = 1 << 20;

/// Goal: nothing that the engine does inside changes what a reader sees, and it counts everything.
/// Method: random schedules on the engine and on the model; compare every answer, and in the end
/// delete all volumes and see that nothing is left.
#[test]
fn the_engine_agrees_with_the_model_in_a_roomy_pool() {
    let shape = ScheduleShape {
        operation_count: 400,
        size_bytes_max: 6 * MIB,
        length_max: 512 << 10,
        fill_up_one_in: 0,
        copies_one_in: 0,
    };
    let replay = "cargo test -p volumes --test agrees roomy";
    for_each_seed(replay, 60, |seed| {
        let schedule = Schedule::random(seed, shape);
        Pair::new(Pool::new(64 * MIB, 2)).run(&schedule.operations);
    });
}

/// The same where memory runs out all the time.
#[test]
fn the_engine_agrees_with_the_model_in_a_pool_that_is_often_full() {
    let shape = ScheduleShape {
        operation_count: 500,
        size_bytes_max: 6 * MIB,
        length_max: 256 << 10,
        fill_up_one_in: 40,
        copies_one_in: 0,
    };
    let replay = "cargo test -p volumes --test agrees often_full";
    for_each_seed(replay, 60, |seed| {
        let schedule = Schedule::random(seed, shape);
        Pair::new(Pool::new((4 + seed % 3 * 2) * MIB, 1 + usize::from(seed % 2 == 1)))
            .run(&schedule.operations);
    });
}

/// Goal: copies of maps share nodes and pages without anybody seeing it: snapshots never change,
/// clones and volumes change alone, and what no map has any more is given back.
/// Method: as above, with snapshots, clones and restores among the operations; every snapshot is
/// compared in the end, and differences are compared with those of the model.
#[test]
fn copies_agree_with_the_model_in_a_roomy_pool() {
    let shape = ScheduleShape {
        operation_count: 400,
        size_bytes_max: 6 * MIB,
        length_max: 256 << 10,
        fill_up_one_in: 0,
        copies_one_in: 6,
    };
    for_each_seed("cargo test -p volumes --test agrees copies_agree", 20, |seed| {
        let schedule = Schedule::random(seed, shape);
        Pair::new(Pool::new(96 * MIB, 2)).run(&schedule.operations);
    });
}

/// The same where memory runs out all the time.
#[test]
fn copies_in_a_full_pool_agree_with_the_model() {
    let shape = ScheduleShape {
        operation_count: 400,
        size_bytes_max: 6 * MIB,
        length_max: 256 << 10,
        fill_up_one_in: 50,
        copies_one_in: 6,
    };
    for_each_seed("cargo test -p volumes --test agrees copies_in_a_full", 20, |seed| {
        let schedule = Schedule::random(seed, shape);
        Pair::new(Pool::new((4 + seed % 3 * 2) * MIB, 1 + usize::from(seed % 2 == 1)))
            .run(&schedule.operations);
    });
}
