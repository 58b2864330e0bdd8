//! Volumes under random operations, compared with the model.

mod support;

use model::{Schedule, ScheduleShape, for_each_seed};
use support::{Done, Pair, Pool};

const MIB: u64 = 1 << 20;

/// Kinds of operations that every test must perform: one that never runs proves nothing.
const ALWAYS: &[&str] = &[
    "compress what is idle",
    "create",
    "delete",
    "discard",
    "extents",
    "flush",
    "maintain",
    "read",
    "read in place",
    "rename",
    "reopen after a kill",
    "reopen after an end",
    "resize",
    "set reduction",
    "write",
    "write zeroes",
];

/// Additional kinds that tests with a full pool and with copies must perform.
const IN_A_FULL_POOL: &[&str] = &["fill up", "request that lacks memory"];
const COPIES: &[&str] = &[
    "clone",
    "delete a snapshot",
    "rename a snapshot",
    "request of a snapshot",
    "restore",
    "snapshot",
];

/// Additional kinds that tests of capacity and durability classes must perform.
const PROMISES: &[&str] = &[
    "create guaranteed",
    "delete a snapshot",
    "frozen copies that stayed",
    "grow the pool",
    "guarantee",
    "make it image",
    "make it journal",
    "make it ram",
    "make thin",
    "refusal for lack of memory",
    "restore",
    "shrink the pool",
    "snapshot",
];

/// A set of random schedules of one kind.
struct Trial {
    /// Part of the test's name, to replay it.
    name: &'static str,
    seed_count: u64,
    shape: ScheduleShape,
    /// Kinds of operations that must be performed besides [`ALWAYS`].
    kinds: &'static [&'static [&'static str]],
}

impl Trial {
    /// Runs each schedule on an engine and on the model.
    fn run(&self, pool: impl Fn(u64) -> Pool) {
        let (mut done, mut seeds) = (Done::new(), 0);
        let replay = format!("cargo test -p volumes --test agrees {}", self.name);
        for_each_seed(&replay, self.seed_count, |seed| {
            let schedule = Schedule::random(seed, self.shape);
            for (kind, count) in Pair::new(pool(seed)).run(&schedule.operations) {
                *done.entry(kind).or_default() += count;
            }
            seeds += 1;
        });
        eprintln!("done: {done:?}");
        let mut kinds = self.kinds.concat();
        kinds.extend(ALWAYS);
        kinds.retain(|kind| !done.contains_key(kind));
        // With explicitly chosen seeds, not every kind need run.
        assert!(kinds.is_empty() || seeds < self.seed_count, "never done: {kinds:?}");
    }
}

const ROOMY: ScheduleShape = ScheduleShape {
    operation_count: 400,
    size_bytes_max: 6 * MIB,
    length_max: 512 << 10,
    fill_up_one_in: 0,
    copies_one_in: 0,
    promises_one_in: 0,
};

/// Creates a pool of some MiB, with one lane or two.
fn small(seed: u64) -> Pool {
    Pool::new((4 + seed % 3 * 2) * MIB, 1 + usize::from(seed % 2 == 1))
}

/// Goal: the engine's internal work changes nothing that a reader sees, and all memory is accounted
/// for.
/// Method: run random schedules on the engine and on the model; compare every answer; at the end
/// delete all volumes and check that nothing is left.
#[test]
fn the_engine_agrees_with_the_model_in_a_roomy_pool() {
    let trial = Trial { name: "model_in_a_roomy", seed_count: 60, shape: ROOMY, kinds: &[] };
    trial.run(|_| Pool::new(64 * MIB, 2));
}

/// The same with a pool that is often out of memory.
#[test]
fn the_engine_agrees_with_the_model_in_a_pool_that_is_often_full() {
    let shape =
        ScheduleShape { operation_count: 500, length_max: 256 << 10, fill_up_one_in: 40, ..ROOMY };
    let kinds = &[IN_A_FULL_POOL];
    Trial { name: "often_full", seed_count: 60, shape, kinds }.run(small);
}

/// Goal: copies of maps share nodes and pages invisibly: snapshots never change, clones and volumes
/// change independently, and memory that no map uses is freed.
/// Method: as above, with snapshots, clones and restores among the operations; every snapshot is
/// compared at the end, and differences are compared with those of the model.
#[test]
fn copies_agree_with_the_model_in_a_roomy_pool() {
    let shape = ScheduleShape { length_max: 256 << 10, copies_one_in: 6, ..ROOMY };
    let trial = Trial { name: "copies_agree", seed_count: 20, shape, kinds: &[COPIES] };
    trial.run(|_| Pool::new(96 * MIB, 2));
}

/// The same with a pool that is often out of memory.
#[test]
fn copies_in_a_full_pool_agree_with_the_model() {
    let shape =
        ScheduleShape { length_max: 256 << 10, fill_up_one_in: 50, copies_one_in: 6, ..ROOMY };
    let kinds = &[IN_A_FULL_POOL, COPIES];
    Trial { name: "copies_in_a_full", seed_count: 20, shape, kinds }.run(small);
}

/// The same with all volumes in table slabs.
#[test]
fn volumes_in_table_slabs_agree_with_the_model() {
    let shape =
        ScheduleShape { length_max: 256 << 10, copies_one_in: 6, promises_one_in: 12, ..ROOMY };
    let trial = Trial { name: "in_table_slabs", seed_count: 20, shape, kinds: &[COPIES] };
    trial.run(|_| in_table_slabs(Pool::growable(32 * MIB, 64 * MIB, 2)));
}

/// The same with a pool that is often out of memory.
#[test]
fn volumes_in_table_slabs_of_a_full_pool_agree_with_the_model() {
    let shape =
        ScheduleShape { length_max: 256 << 10, fill_up_one_in: 50, copies_one_in: 6, ..ROOMY };
    let kinds = &[IN_A_FULL_POOL, COPIES];
    Trial { name: "slabs_of_a_full", seed_count: 20, shape, kinds }
        .run(|seed| in_table_slabs(small(seed)));
}

fn in_table_slabs(pool: Pool) -> Pool {
    drop(pool.open());
    pool.take_front_places();
    pool
}

/// Goal: capacity and durability classes, frozen copies for a reader, and resizing of the pool
/// change nothing that a reader sees, and a guaranteed volume never lacks memory.
/// Method: as above, with these among the operations.
#[test]
fn promises_agree_with_the_model_in_a_roomy_pool() {
    let shape =
        ScheduleShape { length_max: 256 << 10, copies_one_in: 12, promises_one_in: 6, ..ROOMY };
    let trial = Trial { name: "promises_agree", seed_count: 20, shape, kinds: &[PROMISES] };
    trial.run(|_| Pool::growable(32 * MIB, 64 * MIB, 2));
}

/// The same with a pool that is often out of memory.
#[test]
fn promises_in_a_full_pool_agree_with_the_model() {
    let shape = ScheduleShape {
        length_max: 256 << 10,
        fill_up_one_in: 50,
        copies_one_in: 12,
        promises_one_in: 6,
        ..ROOMY
    };
    let kinds: &[&[&str]] =
        &[IN_A_FULL_POOL, PROMISES, &["frozen copies that gave way", "refusal to shrink the pool"]];
    let trial = Trial { name: "promises_in_a_full", seed_count: 20, shape, kinds };
    trial.run(|seed| {
        let size_bytes = (8 + seed % 3 * 4) * MIB;
        Pool::growable(size_bytes, 2 * size_bytes, 1 + usize::from(seed % 2 == 1))
    });
}
