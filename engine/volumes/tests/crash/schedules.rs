//! Random schedules, killed before some of their stores; full pools and large ones.

use crate::support::{Points, Scenario, create, discard, maintain, write};
use model::{Operation, Request, Schedule, ScheduleShape, Texture, for_each_seed};

const MIB: u64 = 1 << 20;

/// Goal: no mixture of operations leaves a state that recovery cannot repair.
/// Method: the first half of a random schedule prepares, the second is killed at some stores.
#[test]
fn random_schedules() {
    let shape = ScheduleShape {
        operation_count: 60,
        size_bytes_max: 2 * MIB,
        length_max: 64 << 10,
        fill_up_one_in: 0,
        copies_one_in: 0,
        promises_one_in: 0,
    };
    for_each_seed(
        "cargo test -p volumes --features crash-points --test crash random_schedules",
        40,
        |seed| {
            let operations = Schedule::random(seed, shape).operations;
            let (prepare, act) = operations.split_at(30);
            let name = format!("schedule {seed}");
            let scenario = Scenario { name: &name, pool_bytes: 4 * MIB, prepare, act };
            scenario.explore(Points::Sampled { first: 0, count: 30, double_one_in: 10 });
        },
    );
}

/// Goal: the same for copies of maps, and for changes of maps that share nodes.
/// Method: as above, with snapshots, clones and restores among the operations.
#[test]
fn random_schedules_with_copies() {
    let shape = ScheduleShape {
        operation_count: 60,
        size_bytes_max: 3 * MIB,
        length_max: 64 << 10,
        fill_up_one_in: 0,
        copies_one_in: 4,
        promises_one_in: 0,
    };
    for_each_seed(
        "cargo test -p volumes --features crash-points --test crash with_copies",
        40,
        |seed| {
            let operations = Schedule::random(seed, shape).operations;
            let (prepare, act) = operations.split_at(30);
            let name = format!("schedule {seed} with copies");
            let scenario = Scenario { name: &name, pool_bytes: 6 * MIB, prepare, act };
            scenario.explore(Points::Sampled { first: 0, count: 30, double_one_in: 10 });
        },
    );
}

/// Returns writes of noise in pieces, of which the pool is full before the last.
fn filling(slot: usize) -> Vec<Operation> {
    (0..36).map(|piece| write(slot, piece * 32, 32, Texture::Noise)).collect()
}

#[test]
fn running_out_of_memory() {
    let prepare = [vec![create(0, 16 * MIB), create(1, 4 * MIB)], filling(0)].concat();
    let act = [
        write(1, 0, 8, Texture::Noise),
        write(0, 3, 70, Texture::FewNoises),
        write(1, 3, 70, Texture::Text),
        discard(0, 0, 100),
        write(1, 3, 70, Texture::Text),
        maintain(40),
        write(0, 200, 300, Texture::Text),
    ];
    let scenario =
        Scenario { name: "full pool", pool_bytes: 4 * MIB, prepare: &prepare, act: &act };
    scenario.explore(Points::Sampled { first: 0, count: 250, double_one_in: 50 });
}

/// Overwrites the same blocks with new contents: each leaves a hint in the dedup index, until the
/// index splits its only segment.
#[test]
fn splitting_the_dedup_index() {
    let mut act = Vec::new();
    for round in 0..48 {
        let contents = model::Contents::new(Texture::Noise, round);
        let request = Request::Write { offset: 0, length: 1 << 20, contents };
        act.push(Operation::Request { slot: 0, request });
    }
    let prepare = [create(0, 4 * MIB), write(0, 0, 4, Texture::Noise)];
    let scenario =
        Scenario { name: "index split", pool_bytes: 40 * MIB, prepare: &prepare, act: &act };
    scenario.explore(Points::Sampled { first: 70_000, count: 30, double_one_in: 30 });
}
