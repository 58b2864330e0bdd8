//! Tests that volumes of class `guaranteed` are restored with their guarantee before their
//! contents.

mod support;

use std::sync::Arc;

use block_device::{BlockDevice, ByteRange};
use durable_set::Opened;
use image::Unwatched;
use support::{BLOCK, House, long_noise, read};
use volumes::{CapacityClass, Durability, Volume, VolumeErrorKind};

const BLOCKS: u64 = House::SURE_BYTES / BLOCK;

fn write_all(volume: &Volume, seed: u64) {
    for block in 0..volume.geometry().size_bytes / BLOCK {
        let written = volume.write(block * BLOCK, &long_noise(seed + block));
        written.expect("a guaranteed write never fails");
    }
}

#[track_caller]
fn check_all(volume: &Volume, seed: u64) {
    for block in 0..volume.geometry().size_bytes / BLOCK {
        assert!(read(volume, block) == Ok(long_noise(seed + block)), "block {block}");
    }
}

#[track_caller]
fn check_guaranteed(house: &House, name: &str) -> Arc<Volume> {
    let volume = house.volume(name);
    assert_eq!(volume.capacity_class(), CapacityClass::Guaranteed);
    volume
}

#[track_caller]
fn guarantees_lost(opened: Opened) -> Vec<(String, VolumeErrorKind)> {
    let Opened::Restored { guarantees_lost, .. } = opened else { panic!("{opened:?}") };
    guarantees_lost.into_iter().map(|(name, error)| (name, error.kind)).collect()
}

#[test]
fn memory_is_claimed_before_contents_come() {
    let mut house = House::new();
    write_all(&house.create_guaranteed("sure", Durability::Image), 0);
    house.save();
    let opened = house.lose_memory();
    assert_eq!(guarantees_lost(opened), []);
    let volume = check_guaranteed(&house, "sure");
    assert_eq!(volume.map().absent_blocks(), BLOCKS);
    house.fill_pool();
    // Half of the blocks are overwritten while absent. The rest comes from the image.
    for block in 0..BLOCKS / 2 {
        volume.write(block * BLOCK, &long_noise(9000 + block)).expect("it is guaranteed");
    }
    assert!(house.set.stream(&Unwatched).expect("there is room for it").is_done);
    for block in 0..BLOCKS {
        let seed = if block < BLOCKS / 2 { 9000 } else { 0 };
        assert!(read(&volume, block) == Ok(long_noise(seed + block)), "block {block}");
    }
    house.fill_pool();
    write_all(&volume, 5000);
    check_all(&volume, 5000);
}

#[test]
fn a_kill_while_contents_are_fetched_takes_no_guarantee() {
    let mut house = House::new();
    write_all(&house.create_guaranteed("sure", Durability::Image), 0);
    house.save();
    house.lose_memory();
    let volume = house.volume("sure");
    assert!(read(&volume, 0) == Ok(long_noise(0)));
    assert!((1..BLOCKS).contains(&volume.map().absent_blocks()), "a part of it came");
    drop(volume);
    house.kill();
    let volume = check_guaranteed(&house, "sure");
    house.fill_pool();
    write_all(&volume, 7000);
    check_all(&volume, 7000);
}

#[test]
fn parts_of_absent_blocks_are_written_in_a_full_pool_too() {
    let mut house = House::new();
    write_all(&house.create_guaranteed("sure", Durability::Image), 0);
    house.save();
    house.lose_memory();
    let volume = check_guaranteed(&house, "sure");
    house.fill_pool();
    for block in 0..BLOCKS {
        volume.write(block * BLOCK + 512, &[7; 512]).expect("it is guaranteed");
    }
    let mut expected = long_noise(3);
    expected[512..1024].fill(7);
    assert!(read(&volume, 3) == Ok(expected));
}

#[test]
fn copies_of_what_comes_back_take_nothing_of_what_is_claimed() {
    let mut house = House::new();
    write_all(&house.create_guaranteed("sure", Durability::Image), 0);
    let name = "before".parse().expect("a good name");
    house.engine.create_snapshots(&["sure"], &name, 1).expect("there is room");
    house.save();
    house.lose_memory();
    let volume = check_guaranteed(&house, "sure");
    let snapshot = house.volume("sure@before");
    // Some blocks are fetched through the copy and others through the volume, into shared leaves.
    for block in 0..BLOCKS / 4 {
        assert!(read(&snapshot, block) == Ok(long_noise(block)));
        assert!(read(&volume, BLOCKS / 4 + block) == Ok(long_noise(BLOCKS / 4 + block)));
    }
    house.fill_pool();
    write_all(&volume, 3000);
    check_all(&volume, 3000);
    check_all(&snapshot, 0);
    drop(snapshot);
    house.engine.delete_volume("filler").expect("it is there");
    assert!(house.set.stream(&Unwatched).expect("there is room for it").is_done);
    house.engine.delete_snapshot("sure", "before").expect("it is there");
    while house.engine.maintain() {}
    house.fill_pool();
    write_all(&volume, 4000);
    check_all(&volume, 4000);
}

#[test]
fn what_was_claimed_is_given_back_with_the_volume() {
    let mut house = House::new();
    write_all(&house.create_guaranteed("sure", Durability::Image), 0);
    let name = "before".parse().expect("a good name");
    house.engine.create_snapshots(&["sure"], &name, 1).expect("there is room");
    house.save();
    house.lose_memory();
    check_all(&house.volume("sure@before"), 0);
    check_all(&house.volume("sure"), 0);
    house.save();
    assert!(house.set.stream(&Unwatched).expect("the image can be read").is_done);
    house.engine.delete_snapshot("sure", "before").expect("it is there");
    house.engine.delete_volume("sure").expect("it has no snapshots");
    while house.engine.maintain() {}
    assert_eq!(house.engine.usage().claimed_bytes, 0);
    assert_eq!(house.engine.usage().page_count, 0);
}

#[test]
fn what_does_not_fit_comes_back_thin_and_is_named_beside_the_rest() {
    let mut house = House::new();
    write_all(&house.create_guaranteed("first", Durability::Image), 0);
    write_all(&house.create_guaranteed("second", Durability::Image), 2000);
    let volume = house.create("other", Durability::Image);
    volume.write(0, &long_noise(7)).expect("there is room");
    let name = "before".parse().expect("a good name");
    house.engine.create_snapshots(&["second"], &name, 1).expect("there is room");
    house.save();
    drop(volume);
    let opened = house.lose_memory_but(8 << 20);
    assert_eq!(guarantees_lost(opened), [("second".to_owned(), VolumeErrorKind::NoSpace)]);
    check_guaranteed(&house, "first");
    assert_eq!(house.volume("second").capacity_class(), CapacityClass::Thin);
    for name in ["second", "second@before"] {
        assert!(read(&house.volume(name), 1) == Ok(long_noise(2001)));
    }
    assert!(read(&house.volume("other"), 0) == Ok(long_noise(7)));
}

#[test]
fn the_journal_knows_classes_that_no_image_has() {
    let mut house = House::new();
    for name in ["became", "grown"] {
        house.create(name, Durability::Journal);
    }
    house.create_guaranteed("was", Durability::Journal);
    house.engine.resize_volume("became", 1 << 20, volumes::ShrinkPolicy::DropData).expect("it can");
    house.engine.resize_volume("grown", 1 << 20, volumes::ShrinkPolicy::DropData).expect("it can");
    house.save();
    house.engine.set_capacity("became", CapacityClass::Guaranteed).expect("it fits");
    house.engine.set_capacity("was", CapacityClass::Thin).expect("that always works");
    house.engine.set_capacity("grown", CapacityClass::Guaranteed).expect("it fits");
    house.engine.resize_volume("grown", 3 << 20, volumes::ShrinkPolicy::KeepData).expect("it fits");
    let late = house.create_guaranteed("late", Durability::Journal);
    late.write(0, &long_noise(1)).expect("there is room");
    late.flush().expect("the disk works");
    house.set.note_volumes().expect("the disk works");
    drop(late);
    assert_eq!(guarantees_lost(house.lose_memory()), []);
    for name in ["became", "grown", "late"] {
        check_guaranteed(&house, name);
    }
    assert_eq!(house.volume("was").capacity_class(), CapacityClass::Thin);
    assert!(read(&house.volume("late"), 0) == Ok(long_noise(1)));
    house.fill_pool();
    for name in ["became", "grown", "late"] {
        write_all(&house.volume(name), 500);
    }
}

#[test]
fn a_restore_of_what_cannot_be_guaranteed_is_refused_and_leaves_nothing() {
    let house = House::new();
    write_all(&house.create_guaranteed("sure", Durability::Image), 0);
    let image = house.save().id.number();
    house.fill_pool();
    let volumes = house.engine.volumes().len();
    let names = [("sure".to_owned(), "twin".to_owned())];
    let error = house.set.restore(image, &names).expect_err("the pool is full");
    let cause = std::error::Error::source(&error).expect("the engine said why").to_string();
    assert!(error.to_string().contains("\"twin\"") && cause.contains("twin"), "{error}: {cause}");
    assert_eq!(house.engine.volumes().len(), volumes);
    house.engine.delete_volume("filler").expect("it is there");
    house.set.restore(image, &names).expect("there is room now");
    let twin = check_guaranteed(&house, "twin");
    twin.discard(ByteRange::new(0, BLOCK)).expect("a discard works");
    house.fill_pool();
    write_all(&twin, 100);
    check_all(&house.volume("sure"), 0);
}
