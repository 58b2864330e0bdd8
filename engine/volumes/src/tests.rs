//! Tests that need access to private items of the crate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use block_device::{BlockDevice, ByteRange, DeviceErrorKind, SectorSize};
use codec::BLOCK_BYTES;
use region::{Region, RegionSpec};

use crate::admin::engine::Engine;
use crate::blocks::{LEAF_BLOCKS, LEAF_BYTES};
use crate::device::volume::Volume;
use crate::map::table::{self, Commit, Kind, Origin, Shape, Stored};
use crate::spec::{Durability, EngineOptions, VolumeSpec};
use crate::visits;

const MIB: u64 = 1 << 20;

fn engine(folder: &tempfile::TempDir) -> Engine {
    let path = folder.path().join("region");
    let region = Region::open(&RegionSpec { path, size_bytes: 16 * MIB });
    let options = EngineOptions { lane_count: 3, fresh_secret: [7; 32] };
    Engine::open(region.expect("the region opens"), options).expect("the pool opens")
}

fn create(engine: &Engine, name: &str) -> Arc<Volume> {
    let spec = VolumeSpec {
        sector: SectorSize::Bytes4096,
        ..VolumeSpec::new(name.parse().expect("a good name"), 8 * LEAF_BYTES)
    };
    engine.create_volume(spec).expect("a volume can be made")
}

#[track_caller]
fn check_refused(volume: &Volume, offset: u64, kind: DeviceErrorKind) {
    let read = volume.read(offset, &mut [0; BLOCK_BYTES]);
    assert_eq!(read.expect_err("there is nothing to read").kind, kind);
}

#[test]
fn a_read_far_past_the_end_leaves_no_trace_of_a_leaf_with_the_same_low_bits() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
    let engine = engine(&folder);
    let volume = create(&engine, "one");
    volume.write(3 * LEAF_BYTES, &[5; BLOCK_BYTES]).expect("there is room");
    volume.map.leaves.forget(3);
    let reach_bytes = 512_u64.pow(3) * LEAF_BYTES;
    for turn in [1, 2, 1 << 10] {
        let offset = turn * reach_bytes + 3 * LEAF_BYTES;
        check_refused(&volume, offset, DeviceErrorKind::OutOfRange);
        // Cached here, it would lack the locks under which it is removed.
        assert_eq!(volume.map.leaves.find(3), None, "{offset}");
    }
    volume.read(3 * LEAF_BYTES, &mut [0; BLOCK_BYTES]).expect("it is there");
    assert!(volume.map.leaves.find(3).is_some(), "the right leaf is remembered");
}

#[test]
fn a_deleted_volume_remembers_nothing_of_the_one_that_took_its_place() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
    let engine = engine(&folder);
    let old = create(&engine, "old");
    engine.delete_volume("old").expect("it is there");
    let new = create(&engine, "new");
    assert_eq!(old.map.record(), new.map.record(), "the new one stands where the old one stood");
    new.write(0, &[5; BLOCK_BYTES]).expect("there is room");
    check_refused(&old, 0, DeviceErrorKind::Gone);
    assert_eq!(old.map.leaves.find(0), None);
}

/// Returns the number of volumes, maps and records that each operation visits which clients and
/// maintenance perform, while there are `count` other volumes.
fn visits_beside(engine: &Engine, count: usize) -> Vec<(&'static str, usize)> {
    let present = engine.volumes().len();
    (present..count).for_each(|number| drop(create(engine, &format!("volume-{number}"))));
    while engine.maintain() {}
    let name = |name: &str| name.parse().expect("a good name");
    let mut visits = Vec::new();
    let mut count_visits = |what, operation: &dyn Fn()| {
        visits.push((what, visits::during(operation)));
    };
    count_visits("create", &|| drop(create(engine, "one")));
    count_visits("write", &|| {
        let volume = engine.volume("one").expect("it was made");
        // A page that maintenance compresses.
        let contents: [u8; BLOCK_BYTES] = std::array::from_fn(|index| [1, 2, 3][index / 64 % 3]);
        volume.write(0, &contents).expect("there is room");
    });
    count_visits("rename", &|| engine.rename_volume("one", name("two")).expect("it is there"));
    for durability in [Durability::Journal, Durability::Ram] {
        let set = || engine.set_durability("two", durability).expect("it is there");
        count_visits("set the durability", &set);
    }
    count_visits("read the usage", &|| assert!(engine.usage().written_bytes > 0));
    count_visits("look for journaled volumes", &|| assert!(!engine.has_journaled_volumes()));
    // More steps than there is work, the last ones of an idle pool.
    let maintain = || {
        for _ in 0..20 {
            engine.maintain();
        }
    };
    count_visits("maintain", &maintain);
    let volume = engine.volume("two").expect("it was renamed");
    count_visits("list snapshots", &|| assert!(engine.snapshots_of(&volume).is_empty()));
    count_visits("snapshot", &|| {
        engine.create_snapshots(&["two"], &name("day"), 7).map(drop).expect("there is room");
    });
    count_visits("read the usage beside a snapshot", &|| assert!(engine.usage().written_bytes > 0));
    count_visits("delete a snapshot", &|| {
        engine.delete_snapshot("two", "day").expect("it is there");
    });
    // Ends the sharing of nodes, which visits all maps once.
    while engine.maintain() {}
    count_visits("delete", &|| engine.delete_volume("two").expect("it is there"));
    count_visits("maintain after a deletion", &maintain);
    visits
}

#[test]
fn the_work_of_an_operation_does_not_depend_on_the_number_of_volumes() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
    let engine = engine(&folder);
    // The table grows by slabs of 512 records, after the first 1,023.
    let beside_few = visits_beside(&engine, 100);
    for count in [500, 1_000, 1_600] {
        assert_eq!(visits_beside(&engine, count), beside_few, "beside {count} volumes");
    }
    assert!(beside_few.iter().all(|(_, visits)| *visits < 100), "{beside_few:?}");
}

#[test]
fn the_work_of_an_opening_after_a_kill_is_proportional_to_the_number_of_volumes() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
    let [of_few, of_many] = [100, 800].map(|count| {
        let before = engine(&folder);
        let present = before.volumes().len();
        (present..count).for_each(|number| drop(create(&before, &format!("volume-{number}"))));
        // Not closed, like that of a killed process.
        drop(before);
        visits::during(|| {
            let again = engine(&folder);
            while again.maintain() {}
            assert_eq!(again.usage().written_bytes, 0);
        })
    });
    // Mostly the words of the records.
    assert!(of_many - of_few < 700 * 100, "{of_few} for 100 volumes, {of_many} for 800");
}

/// Current releases create no records of this kind.
#[test]
fn a_frozen_copy_that_an_earlier_release_left_in_the_table_goes_at_the_next_opening() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
    let engine_of_old = engine(&folder);
    let volume = create(&engine_of_old, "one");
    volume.write(0, &[5; BLOCK_BYTES]).expect("there is room");
    let (store, map) = (&volume.map.pool.store, &volume.map);
    let record = table::all(store).find(|record| record.is_free(store)).expect("there is a place");
    let stored = Stored {
        name: "one".parse().expect("a good name"),
        id: table::take_id(store, None),
        size_bytes: map.size_bytes(),
        shape: Shape { kind: Kind::Frozen, ..map.shape() },
        written_blocks: 1,
        fill_blocks: 1,
        untried_blocks: 0,
        base: None,
        is_anchored: false,
        origin: Some(Origin { volume_id: map.id(), created_unix_seconds: 0 }),
    };
    record.create(store, &stored, Commit::Now);
    let pinned = store.pin();
    let root = map.tree.root(store, &pinned).expect("something was written");
    store.share_node(&pinned, root).expect("it has one parent");
    store.set_root(record.root_word(), Some(root));
    drop(pinned);
    drop(volume);
    engine_of_old.close();

    let engine = engine(&folder);
    let volume = engine.volume("one").expect("it is there");
    assert!(record.is_free(&volume.map.pool.store) && engine.volumes().len() == 1);
    drop(volume);
    engine.delete_volume("one").expect("it is there");
    while engine.maintain() {}
    assert_eq!(engine.usage().map_bytes, 0, "its map is gone too");
}

#[test]
fn a_walk_in_the_middle_of_a_shrink_finds_what_lies_past_the_new_end() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
    let engine = engine(&folder);
    let spec = VolumeSpec {
        durability: Durability::Journal,
        ..VolumeSpec::new("one".parse().expect("a good name"), 200 * LEAF_BYTES)
    };
    let volume = engine.create_volume(spec).expect("there is room");
    volume.write(150 * LEAF_BYTES, &[5; BLOCK_BYTES]).expect("there is room");
    // The shrink may still fail, and the size be restored.
    volume.map.set_size_bytes(LEAF_BYTES);
    assert_eq!(volume.map.settled_size_bytes(), 200 * LEAF_BYTES);
    let mut walk = volume.walk_unjournaled().expect("a block is not in the journal");
    assert_eq!(walk.capture(8).map(|capture| capture.block_count()), Some(1));
}

/// Maximum time for which the test waits for another thread.
const WAIT_MAX: Duration = Duration::from_secs(60);

#[track_caller]
fn wait_until(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < WAIT_MAX, "it does not happen");
        std::thread::yield_now();
    }
}

/// A discard in progress delays the change of class, or makes the holes that the new class needs.
#[test]
fn a_discard_while_the_class_becomes_journal_leaves_holes_that_the_journal_is_told_of() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
    let engine = engine(&folder);
    let name = "one".parse().expect("a good name");
    let volume = engine.create_volume(VolumeSpec::new(name, 2 * LEAF_BYTES));
    let volume: Arc<Volume> = volume.expect("there is room");
    volume.write(0, &[5; BLOCK_BYTES]).expect("there is room");
    volume.write(LEAF_BYTES, &[6; BLOCK_BYTES]).expect("there is room");
    std::thread::scope(|scope| {
        let held = volume.map.pool.locks.lock_leaf(volume.id(), 0);
        let before = engine.activity_of_others();
        let discard = scope.spawn(|| volume.discard(ByteRange::new(0, 2 * LEAF_BYTES)));
        // The discard is on its way to the first leaf.
        wait_until(|| engine.activity_of_others() != before);
        let change = scope.spawn(|| engine.set_durability("one", Durability::Journal));
        wait_until(|| volume.durability() == Durability::Journal);
        drop(held);
        discard.join().expect("no panic").expect("holes can be made");
        change.join().expect("no panic").expect("the class can be changed");
    });
    let mut walk = volume.walk_unjournaled().expect("there is something to be journaled");
    let capture = walk.capture(8).expect("the second leaf has a hole");
    assert!(capture.blocks().any(|(block, _)| block == LEAF_BLOCKS), "{capture:?}");
}
