//! Snapshots, clones, restores and frozen copies: their cost, their errors, and their sharing.

mod support;

use std::sync::Arc;

use block_device::{
    BlockDevice, ByteRange, ChangeKind, DeviceErrorKind, SnapshotId, WriteCache, Zeroes,
};
use support::{Pool, check_sound_when_empty, check_sums, settle};
use volumes::{Engine, ShrinkPolicy, Volume, VolumeError, VolumeErrorKind, VolumeName, VolumeSpec};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = block_device::BLOCK_BYTES as u64;

fn name(name: &str) -> VolumeName {
    name.parse().expect("a good name")
}

fn create(engine: &Engine, volume: &str, size_bytes: u64) -> Arc<Volume> {
    let spec = VolumeSpec::new(name(volume), size_bytes);
    engine.create_volume(spec).expect("a volume can be made")
}

fn snapshot(engine: &Engine, volume: &str, snapshot: &str) -> Arc<Volume> {
    let made = engine.create_snapshots(&[volume], &name(snapshot), 1_000_000);
    made.expect("a snapshot can be made").remove(0)
}

/// Returns a block of noise that depends on a number.
fn block(number: u64) -> [u8; 4096] {
    model::Contents::new(model::Texture::Noise, number).block(0)
}

fn write(volume: &Volume, at: u64, number: u64) {
    volume.write(at * BLOCK, &block(number)).expect("there is room");
}

#[track_caller]
fn check(volume: &Volume, at: u64, number: u64) {
    let mut found = [0xEE; 4096];
    volume.read(at * BLOCK, &mut found).expect("the read succeeds");
    assert!(found == block(number), "block {at} of {}", volume.name());
}

#[track_caller]
fn check_kind<T: std::fmt::Debug>(result: Result<T, VolumeError>, kind: VolumeErrorKind) {
    assert_eq!(result.expect_err("it is refused").kind, kind);
}

#[test]
fn a_snapshot_keeps_what_its_volume_held_and_refuses_changes() {
    let pool = Pool::new(32 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "db", 8 * MIB);
    write(&volume, 3, 1);
    let copy = snapshot(&engine, "db", "monday");
    write(&volume, 3, 2);
    write(&volume, 4, 3);
    check(&copy, 3, 1);
    check(&volume, 3, 2);
    assert_eq!((copy.name().as_str(), copy.snapshot_name().as_str()), ("db@monday", "monday"));
    assert_eq!((copy.origin_id(), copy.created_unix_seconds()), (Some(volume.id()), 1_000_000));
    assert!(copy.is_read_only() && copy.is_snapshot() && !volume.is_read_only());
    let kinds = [
        copy.write(0, &[1]).map_err(|error| error.kind),
        copy.discard(ByteRange::new(0, BLOCK)).map_err(|error| error.kind),
        copy.write_zeroes(ByteRange::new(0, 8), Zeroes::Unmap).map_err(|error| error.kind),
    ];
    assert_eq!(kinds, [Err(DeviceErrorKind::ReadOnly); 3]);
    copy.flush().expect("there is nothing to flush");
    assert_eq!(copy.write_cache(), WriteCache::Absent);
    check_sound_when_empty(&engine);
}

#[test]
fn names_and_kinds_are_checked_and_a_volume_with_snapshots_is_not_deleted() {
    let pool = Pool::new(16 * MIB, 1);
    let engine = pool.open();
    create(&engine, "a", MIB);
    create(&engine, "b", MIB);
    snapshot(&engine, "a", "s");
    use VolumeErrorKind::{AlreadyExists, HasSnapshots, IsSnapshot, NotFound};
    check_kind(engine.create_snapshots(&["b", "a"], &name("s"), 0), AlreadyExists);
    check_kind(engine.create_snapshots(&["b", "b"], &name("t"), 0), AlreadyExists);
    check_kind(engine.create_snapshots(&["b", "c"], &name("t"), 0), NotFound);
    assert_eq!(engine.snapshots().len(), 1, "all or none are made");
    check_kind(engine.create_snapshots(&["a@s"], &name("t"), 0), IsSnapshot);
    check_kind(engine.resize_volume("a@s", 2 * MIB, ShrinkPolicy::KeepData), IsSnapshot);
    check_kind(engine.rename_volume("a@s", name("x")), IsSnapshot);
    check_kind(engine.delete_volume("a@s"), IsSnapshot);
    check_kind(engine.clone_volume("a@s", name("b")), AlreadyExists);
    check_kind(engine.clone_volume("a@t", name("c")), NotFound);
    check_kind(engine.restore_snapshot("b", "s"), NotFound);
    let refused = engine.delete_volume("a").expect_err("it has a snapshot");
    let names = refused.source.as_ref().map(ToString::to_string);
    assert_eq!((refused.kind, names.as_deref()), (HasSnapshots, Some("a@s")));
    engine.delete_snapshot("a", "s").expect("it is there");
    engine.delete_volume("a").expect("nothing keeps it");
}

#[test]
fn a_renamed_volume_takes_its_snapshots_along_also_after_a_restart() {
    let pool = Pool::new(16 * MIB, 1);
    let engine = pool.open();
    let volume = create(&engine, "old", MIB);
    write(&volume, 1, 7);
    snapshot(&engine, "old", "s");
    engine.rename_volume("old", name("new")).expect("the name is free");
    engine.rename_snapshot("new", "s", &name("t")).expect("the name is free");
    write(&volume, 1, 8);
    drop(volume);
    drop(engine);
    let engine = pool.open();
    check(&engine.snapshot("new", "t").expect("it has the new names"), 1, 7);
    engine.close();
    let engine = pool.open();
    let snapshots = engine.volume("new").expect("it is there").snapshots();
    assert_eq!(snapshots.len(), 1);
    assert_eq!(snapshots[0].name, "t");
    check_sound_when_empty(&engine);
}

#[test]
fn a_clone_takes_no_memory_until_it_changes_and_outlives_what_it_was_made_of() {
    let pool = Pool::new(64 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "db", 1 << 40);
    (0..1024).for_each(|at| write(&volume, at * 32, at));
    let before = engine.usage();
    let clone = engine.clone_volume("db", name("copy")).expect("a clone can be made");
    let after = engine.usage();
    assert_eq!(before.map_bytes, after.map_bytes);
    assert_eq!(before.used_bytes, after.used_bytes);
    assert_eq!(after.written_bytes, 2 * before.written_bytes);
    snapshot(&engine, "db", "s");
    let usage = engine.usage();
    assert_eq!((usage.map_bytes, usage.used_bytes), (before.map_bytes, before.used_bytes));
    engine.delete_snapshot("db", "s").expect("it is there");
    settle(&engine);
    write(&clone, 0, 5000);
    let after = engine.usage();
    assert!(after.map_bytes - before.map_bytes <= 4 * 4096, "one path is copied");
    drop(volume);
    engine.delete_volume("db").expect("nothing keeps it");
    settle(&engine);
    check(&clone, 0, 5000);
    (1..1024).for_each(|at| check(&clone, at * 32, at));
    check_sums(&engine);
    check_sound_when_empty(&engine);
}

#[test]
fn snapshots_deleted_in_any_order_give_all_memory_back() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let pool = Pool::new(64 * MIB, 2);
        let engine = pool.open();
        let volume = create(&engine, "db", 64 * MIB);
        for round in 0..3 {
            (0..16).for_each(|leaf| write(&volume, leaf * 512 + round, round * 100 + leaf));
            snapshot(&engine, "db", &format!("s{round}"));
        }
        let mut used_bytes = engine.usage().used_bytes;
        for which in order {
            engine.delete_snapshot("db", &format!("s{which}")).expect("it is there");
            settle(&engine);
            check_sums(&engine);
            let now = engine.usage().used_bytes;
            assert!(now <= used_bytes, "deleting gives memory back");
            used_bytes = now;
        }
        assert_eq!(engine.usage().map_bytes, (16 + 3) * 4096, "one map is left");
        (0..16).for_each(|leaf| check(&volume, leaf * 512 + 1, 100 + leaf));
        check_sound_when_empty(&engine);
    }
}

#[test]
fn volumes_that_share_answer_for_their_shares_of_memory() {
    let pool = Pool::new(64 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "db", 64 * MIB);
    (0..1024).for_each(|at| write(&volume, at, at));
    let alone = volume.usage().ram_bytes;
    let copies: Vec<_> = (0..3).map(|one| snapshot(&engine, "db", &format!("s{one}"))).collect();
    let shares: u64 = copies.iter().map(|copy| copy.usage().ram_bytes).sum();
    assert_eq!(volume.usage().ram_bytes + shares, alone);
    write(&volume, 0, 5000);
    assert!(volume.usage().ram_bytes > alone / 4, "what changed is its own");
}

#[test]
fn restoring_brings_contents_and_size_back_and_keeps_the_snapshot() {
    let pool = Pool::new(32 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "db", 8 * MIB);
    (0..8).for_each(|at| write(&volume, at, at));
    snapshot(&engine, "db", "s");
    (0..8).for_each(|at| write(&volume, at, 100 + at));
    engine.resize_volume("db", 16 * MIB, ShrinkPolicy::KeepData).expect("it can grow");
    write(&volume, 3000, 9);
    engine.restore_snapshot("db", "s").expect("it can be restored");
    assert_eq!(volume.geometry().size_bytes, 8 * MIB);
    (0..8).for_each(|at| check(&volume, at, at));
    write(&volume, 1, 55);
    check(&engine.snapshot("db", "s").expect("it stays"), 1, 1);
    assert_eq!(engine.usage().written_bytes, 8 * BLOCK);
    check_sound_when_empty(&engine);
}

#[test]
fn changes_since_a_snapshot_are_listed_exactly() {
    let pool = Pool::new(32 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "db", 64 * MIB);
    (0..64).for_each(|at| write(&volume, at * 64, at));
    let copy = snapshot(&engine, "db", "s");
    // Equal contents, zeros in a hole, and moved pages are no changes.
    write(&volume, 64, 1);
    volume.write_zeroes(ByteRange::new(BLOCK, BLOCK), Zeroes::KeepAllocated).expect("zeroed");
    write(&volume, 128, 500);
    volume.discard(ByteRange::new(512 * BLOCK, BLOCK)).expect("discarded");
    engine.resize_volume("db", 66 * MIB, ShrinkPolicy::KeepData).expect("it can grow");
    settle(&engine);
    let all = ByteRange::new(0, 66 * MIB);
    let since = SnapshotId(copy.id());
    let runs = volume.changed_extents(since, all, 100).expect("the maps are compared");
    let changed: Vec<_> =
        runs.iter().filter(|run| run.kind == ChangeKind::Changed).map(|run| run.range).collect();
    let block_range = |at: u64| ByteRange::new(at * BLOCK, BLOCK);
    assert_eq!(changed, [block_range(128), block_range(512), ByteRange::new(64 * MIB, 2 * MIB)]);
    let first = volume.changed_extents(since, all, 1).expect("the maps are compared");
    assert_eq!(first, runs[..1]);
    let none = volume.changed_extents(SnapshotId(999), all, 1).expect_err("there is none");
    assert_eq!(none.kind, DeviceErrorKind::NoSnapshot);
}

#[test]
fn a_snapshot_knows_what_changed_since_older_ones() {
    let pool = Pool::new(32 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "db", 8 * MIB);
    write(&volume, 1, 1);
    let monday = snapshot(&engine, "db", "monday");
    write(&volume, 2, 2);
    let tuesday = snapshot(&engine, "db", "tuesday");
    write(&volume, 3, 3);
    drop((volume, monday, tuesday, engine));
    let engine = pool.open();
    let [monday, tuesday] =
        ["monday", "tuesday"].map(|name| engine.snapshot("db", name).expect("it is kept"));
    let names = |of: &Volume| of.snapshots().into_iter().map(|it| it.name).collect::<Vec<_>>();
    assert_eq!((names(&tuesday), names(&monday)), (vec!["monday".to_owned()], vec![]));
    let all = ByteRange::new(0, 8 * MIB);
    let runs = tuesday.changed_extents(SnapshotId(monday.id()), all, 100).expect("both are there");
    let changed = runs.iter().filter(|run| run.kind == ChangeKind::Changed).map(|run| run.range);
    assert_eq!(changed.collect::<Vec<_>>(), [ByteRange::new(2 * BLOCK, BLOCK)]);
    let newer = monday.changed_extents(SnapshotId(tuesday.id()), all, 1).expect_err("it is newer");
    assert_eq!(newer.kind, DeviceErrorKind::NoSnapshot);
}

#[test]
fn a_frozen_copy_stays_as_it_was_and_leaves_nothing_behind() {
    let pool = Pool::new(32 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "db", 8 * MIB);
    write(&volume, 1, 1);
    let frozen = engine.freeze(&[Arc::clone(&volume)]).expect("it can be copied");
    write(&volume, 1, 2);
    write(&volume, 600, 3);
    let copy = Arc::clone(&frozen.volumes()[0]);
    check(&copy, 1, 1);
    assert_eq!((copy.origin_id(), copy.map().next_leaf(1)), (Some(volume.id()), None));
    assert_eq!((engine.volumes().len(), engine.snapshots().len()), (1, 0), "it is not listed");
    drop(frozen);
    let gone = copy.read(0, &mut [0; 1]).expect_err("it went with the others");
    assert_eq!(gone.kind, DeviceErrorKind::Gone);
    check_sound_when_empty(&engine);
}

#[test]
fn frozen_copies_that_outlive_a_run_go_with_the_next() {
    let pool = Pool::new(32 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "db", 8 * MIB);
    write(&volume, 1, 1);
    let frozen = engine.freeze(&[Arc::clone(&volume)]).expect("it can be copied");
    write(&volume, 1, 2);
    let killed = pool.as_after_a_kill();
    drop(volume);
    engine.close();
    drop(frozen);
    for left in [pool, killed] {
        let engine = left.open();
        settle(&engine);
        check(&engine.volume("db").expect("it is there"), 1, 2);
        assert_eq!(engine.usage().map_bytes, 4 * 4096, "only one map is left");
        check_sound_when_empty(&engine);
    }
}

/// Discards and deletions free memory in a full pool, also if maps share everything.
#[test]
fn a_full_pool_of_shared_maps_takes_discards_and_deletions() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "db", 64 * MIB);
    let fill_up = |volume: &Volume, from: u64| {
        (from..).find(|&at| volume.write(at * BLOCK, &block(at)).is_err()).expect("it fills up")
    };
    let filled = fill_up(&volume, 0);
    snapshot(&engine, "db", "s");
    let clone = engine.clone_volume("db@s", name("copy")).expect("it takes no memory");
    // Some copies of leaves use up the memory reserved for overwrites.
    let refused = (0..filled).find(|&at| clone.write(at * BLOCK, &block(at + 100_000)).is_err());
    assert!(refused.is_some(), "the pool is full");
    // A part of a leaf, then all leaves.
    volume.discard(ByteRange::new(3 * BLOCK, 5 * BLOCK)).expect("a discard works");
    volume.discard(ByteRange::new(0, 64 * MIB)).expect("a discard works");
    check(&engine.snapshot("db", "s").expect("it is there"), 3, 3);
    engine.delete_snapshot("db", "s").expect("a deletion works");
    engine.delete_volume("copy").expect("a deletion works");
    settle(&engine);
    assert!(fill_up(&volume, 0) + 64 >= filled, "there is room again");
    check_sound_when_empty(&engine);
}

/// Discards of parts of shared leaves free nothing, and need a copy of each leaf.
#[test]
fn a_discard_that_finds_no_memory_for_copies_changes_nothing_and_works_after_a_deletion() {
    const LEAVES: u64 = 700;
    const LEAF: u64 = 512;
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "db", LEAVES * LEAF * BLOCK);
    for leaf in 0..LEAVES {
        write(&volume, leaf * LEAF, leaf);
        write(&volume, leaf * LEAF + 1, leaf + LEAVES);
    }
    snapshot(&engine, "db", "s");
    let filler = create(&engine, "filler", 64 * MIB);
    let is_written = |&at: &u64| filler.write(at * BLOCK, &block(at + 10_000)).is_ok();
    assert!((0..16_000).take_while(is_written).count() < 16_000);
    let discard = |leaf: u64| volume.discard(ByteRange::new(leaf * LEAF * BLOCK, BLOCK));
    let refused = (0..LEAVES).find_map(|leaf| Some((leaf, discard(leaf).err()?)));
    let (leaf, error) = refused.expect("there is no memory for as many copies");
    assert!(leaf > 90, "what is kept for discards takes {leaf} copies");
    assert_eq!(error.kind, DeviceErrorKind::NoSpace);
    check(&volume, leaf * LEAF, leaf);
    let mut found = [1; 4096];
    volume.read((leaf - 1) * LEAF * BLOCK, &mut found).expect("it reads as zeros");
    assert!(found == [0; 4096]);
    engine.delete_snapshot("db", "s").expect("a deletion works");
    settle(&engine);
    (leaf..LEAVES).for_each(|leaf| discard(leaf).expect("nothing is shared any more"));
    (0..LEAVES).for_each(|leaf| check(&volume, leaf * LEAF + 1, leaf + LEAVES));
    check_sound_when_empty(&engine);
}

/// Creates more snapshots than fit without table slabs, with a different change before each.
#[test]
fn a_volume_has_very_many_snapshots() {
    let pool = Pool::new(64 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "db", 1 << 40);
    let count = 2000;
    for at in 0..count {
        write(&volume, (at % 7) * 512, at);
        snapshot(&engine, "db", &format!("s{at}"));
    }
    for at in (0..count).step_by(51) {
        check(&engine.snapshot("db", &format!("s{at}")).expect("it is there"), at % 7 * 512, at);
    }
    let killed = pool.as_after_a_kill();
    let other = killed.open();
    settle(&other);
    for at in [500, 1500, 1999] {
        check(&other.snapshot("db", &format!("s{at}")).expect("it is there"), at % 7 * 512, at);
    }
    check_sound_when_empty(&other);
}

#[test]
fn a_snapshot_of_a_pool_that_was_lost_has_its_id_again() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "db", 4 * MIB);
    write(&volume, 3, 7);
    engine.create_snapshot_again("db", &name("s"), 77, 50).expect("there is room");
    let snapshot = engine.snapshot("db", "s").expect("it is there");
    assert_eq!((snapshot.id(), snapshot.created_unix_seconds()), (50, 77));
    check(&snapshot, 3, 7);
    assert!(create(&engine, "other", 4 * MIB).id() > 50, "no id is given twice");
    drop((volume, snapshot));
    check_sound_when_empty(&engine);
}

/// Goal: no reader sees blocks that a shrink could not discard for lack of memory, also not through
/// copies.
/// Method: use up all memory, except the part reserved for discards; shrink into a leaf that a
/// snapshot shares, copy the volume, free memory, and let the copies grow.
#[test]
fn copies_of_a_volume_that_could_not_be_trimmed_show_nothing_when_they_grow() {
    let pool = Pool::new(8 * MIB, 1);
    let engine = pool.open();
    let volume = create(&engine, "one", MIB);
    (0..256).for_each(|at| volume.write(at * BLOCK, &[7; 4096]).expect("it takes no page"));
    snapshot(&engine, "one", "whole");
    let filler = create(&engine, "filler", 2048 * MIB);
    let leaf = |number: u64| number * 2 * MIB;
    let mut leaves = 0;
    let two_blocks = |number| [block(2 * number), block(2 * number + 1)].concat();
    while leaves < 1024 && filler.write(leaf(leaves), &two_blocks(leaves)).is_ok() {
        leaves += 1;
    }
    snapshot(&engine, "filler", "now");
    let is_discarded = |&number: &u64| {
        filler.write_zeroes(ByteRange::new(leaf(number), BLOCK), Zeroes::Unmap).is_ok()
    };
    let discarded = (0..leaves).take_while(is_discarded).count() as u64;
    assert!(discarded < leaves, "memory is used up");
    engine.resize_volume("one", MIB / 2, ShrinkPolicy::DropData).expect("it shrinks");
    let clone = engine.clone_volume("one", name("clone"));
    clone.expect("a clone takes no memory");
    snapshot(&engine, "one", "cut");
    engine.delete_snapshot("filler", "now").expect("it is there");
    drop(filler);
    engine.delete_volume("filler").expect("it is there");
    settle(&engine);
    let again = engine.clone_volume("one@cut", name("again"));
    again.expect("a clone takes no memory");
    engine.restore_snapshot("one", "cut").expect("there is room");
    for name in ["one", "clone", "again"] {
        engine.resize_volume(name, MIB, ShrinkPolicy::KeepData).expect("it grows");
        let grown = engine.volume(name).expect("it is there");
        let mut found = [0xEE; 4096];
        for at in 128..256 {
            grown.read(at * BLOCK, &mut found).expect("the read succeeds");
            assert!(found == [0; 4096], "block {at} of {name} is old");
        }
        grown.read(127 * BLOCK, &mut found).expect("the read succeeds");
        assert!(found == [7; 4096], "{name} has what it had");
    }
}
