//! Tests that volumes of class `guaranteed` are restored with their guarantee before their
//! contents.

mod support;

use std::sync::Arc;

use block_device::{BlockDevice, ByteRange};
use durable_set::Opened;
use image::Unwatched;
use support::{BLOCK, Fixture, long_noise, read};
use volumes::{CapacityClass, Durability, Volume, VolumeErrorKind};

const BLOCKS: u64 = Fixture::SURE_BYTES / BLOCK;

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
fn check_guaranteed(fixture: &Fixture, name: &str) -> Arc<Volume> {
    let volume = fixture.volume(name);
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
    let mut fixture = Fixture::new();
    write_all(&fixture.create_guaranteed("sure", Durability::Image), 0);
    fixture.save();
    let opened = fixture.lose_memory();
    assert_eq!(guarantees_lost(opened), []);
    let volume = check_guaranteed(&fixture, "sure");
    assert_eq!(volume.map().absent_blocks(), BLOCKS);
    fixture.fill_pool();
    // Half of the blocks are overwritten while absent. The rest comes from the image.
    for block in 0..BLOCKS / 2 {
        volume.write(block * BLOCK, &long_noise(9000 + block)).expect("it is guaranteed");
    }
    assert!(fixture.set.stream(&Unwatched).expect("there is room for it").is_done);
    for block in 0..BLOCKS {
        let seed = if block < BLOCKS / 2 { 9000 } else { 0 };
        assert!(read(&volume, block) == Ok(long_noise(seed + block)), "block {block}");
    }
    fixture.fill_pool();
    write_all(&volume, 5000);
    check_all(&volume, 5000);
}

#[test]
fn a_kill_while_contents_are_fetched_takes_no_guarantee() {
    let mut fixture = Fixture::new();
    write_all(&fixture.create_guaranteed("sure", Durability::Image), 0);
    fixture.save();
    fixture.lose_memory();
    let volume = fixture.volume("sure");
    assert!(read(&volume, 0) == Ok(long_noise(0)));
    assert!((1..BLOCKS).contains(&volume.map().absent_blocks()), "a part of it came");
    drop(volume);
    fixture.kill();
    let volume = check_guaranteed(&fixture, "sure");
    fixture.fill_pool();
    write_all(&volume, 7000);
    check_all(&volume, 7000);
}

#[test]
fn parts_of_absent_blocks_are_written_in_a_full_pool_too() {
    let mut fixture = Fixture::new();
    write_all(&fixture.create_guaranteed("sure", Durability::Image), 0);
    fixture.save();
    fixture.lose_memory();
    let volume = check_guaranteed(&fixture, "sure");
    fixture.fill_pool();
    for block in 0..BLOCKS {
        volume.write(block * BLOCK + 512, &[7; 512]).expect("it is guaranteed");
    }
    let mut expected = long_noise(3);
    expected[512..1024].fill(7);
    assert!(read(&volume, 3) == Ok(expected));
}

#[test]
fn copies_of_what_comes_back_take_nothing_of_what_is_claimed() {
    let mut fixture = Fixture::new();
    write_all(&fixture.create_guaranteed("sure", Durability::Image), 0);
    let name = "before".parse().expect("a good name");
    fixture.engine.create_snapshots(&["sure"], &name, 1).expect("there is room");
    fixture.save();
    fixture.lose_memory();
    let volume = check_guaranteed(&fixture, "sure");
    let snapshot = fixture.volume("sure@before");
    // Some blocks are fetched through the copy and others through the volume, into shared leaves.
    for block in 0..BLOCKS / 4 {
        assert!(read(&snapshot, block) == Ok(long_noise(block)));
        assert!(read(&volume, BLOCKS / 4 + block) == Ok(long_noise(BLOCKS / 4 + block)));
    }
    fixture.fill_pool();
    write_all(&volume, 3000);
    check_all(&volume, 3000);
    check_all(&snapshot, 0);
    drop(snapshot);
    fixture.engine.delete_volume("filler").expect("it is there");
    assert!(fixture.set.stream(&Unwatched).expect("there is room for it").is_done);
    fixture.engine.delete_snapshot("sure", "before").expect("it is there");
    while fixture.engine.maintain() {}
    fixture.fill_pool();
    write_all(&volume, 4000);
    check_all(&volume, 4000);
}

#[test]
fn what_was_claimed_is_given_back_with_the_volume() {
    let mut fixture = Fixture::new();
    write_all(&fixture.create_guaranteed("sure", Durability::Image), 0);
    let name = "before".parse().expect("a good name");
    fixture.engine.create_snapshots(&["sure"], &name, 1).expect("there is room");
    fixture.save();
    fixture.lose_memory();
    check_all(&fixture.volume("sure@before"), 0);
    check_all(&fixture.volume("sure"), 0);
    fixture.save();
    assert!(fixture.set.stream(&Unwatched).expect("the image can be read").is_done);
    fixture.engine.delete_snapshot("sure", "before").expect("it is there");
    fixture.engine.delete_volume("sure").expect("it has no snapshots");
    while fixture.engine.maintain() {}
    assert_eq!(fixture.engine.usage().claimed_bytes, 0);
    assert_eq!(fixture.engine.usage().page_count, 0);
}

#[test]
fn what_does_not_fit_comes_back_thin_and_is_named_beside_the_rest() {
    let mut fixture = Fixture::new();
    write_all(&fixture.create_guaranteed("first", Durability::Image), 0);
    write_all(&fixture.create_guaranteed("second", Durability::Image), 2000);
    let volume = fixture.create("other", Durability::Image);
    volume.write(0, &long_noise(7)).expect("there is room");
    let name = "before".parse().expect("a good name");
    fixture.engine.create_snapshots(&["second"], &name, 1).expect("there is room");
    fixture.save();
    drop(volume);
    let opened = fixture.lose_memory_but(8 << 20);
    assert_eq!(guarantees_lost(opened), [("second".to_owned(), VolumeErrorKind::NoSpace)]);
    check_guaranteed(&fixture, "first");
    assert_eq!(fixture.volume("second").capacity_class(), CapacityClass::Thin);
    for name in ["second", "second@before"] {
        assert!(read(&fixture.volume(name), 1) == Ok(long_noise(2001)));
    }
    assert!(read(&fixture.volume("other"), 0) == Ok(long_noise(7)));
}

#[test]
fn the_journal_knows_classes_that_no_image_has() {
    let mut fixture = Fixture::new();
    for name in ["became", "grown"] {
        fixture.create(name, Durability::Journal);
    }
    fixture.create_guaranteed("was", Durability::Journal);
    fixture
        .engine
        .resize_volume("became", 1 << 20, volumes::ShrinkPolicy::DropData)
        .expect("it can");
    fixture
        .engine
        .resize_volume("grown", 1 << 20, volumes::ShrinkPolicy::DropData)
        .expect("it can");
    fixture.save();
    fixture.engine.set_capacity("became", CapacityClass::Guaranteed).expect("it fits");
    fixture.engine.set_capacity("was", CapacityClass::Thin).expect("that always works");
    fixture.engine.set_capacity("grown", CapacityClass::Guaranteed).expect("it fits");
    fixture
        .engine
        .resize_volume("grown", 3 << 20, volumes::ShrinkPolicy::KeepData)
        .expect("it fits");
    let late = fixture.create_guaranteed("late", Durability::Journal);
    late.write(0, &long_noise(1)).expect("there is room");
    late.flush().expect("the disk works");
    fixture.set.note_volumes().expect("the disk works");
    drop(late);
    assert_eq!(guarantees_lost(fixture.lose_memory()), []);
    for name in ["became", "grown", "late"] {
        check_guaranteed(&fixture, name);
    }
    assert_eq!(fixture.volume("was").capacity_class(), CapacityClass::Thin);
    assert!(read(&fixture.volume("late"), 0) == Ok(long_noise(1)));
    fixture.fill_pool();
    for name in ["became", "grown", "late"] {
        write_all(&fixture.volume(name), 500);
    }
}

#[test]
fn a_restore_of_what_cannot_be_guaranteed_is_refused_and_leaves_nothing() {
    let fixture = Fixture::new();
    write_all(&fixture.create_guaranteed("sure", Durability::Image), 0);
    let image = fixture.save().id.number();
    fixture.fill_pool();
    let volumes = fixture.engine.volumes().len();
    let names = [("sure".to_owned(), "twin".to_owned())];
    let error = fixture.set.restore(image, &names).expect_err("the pool is full");
    let cause = std::error::Error::source(&error).expect("the engine said why").to_string();
    assert!(error.to_string().contains("\"twin\"") && cause.contains("twin"), "{error}: {cause}");
    assert_eq!(fixture.engine.volumes().len(), volumes);
    fixture.engine.delete_volume("filler").expect("it is there");
    fixture.set.restore(image, &names).expect("there is room now");
    let twin = check_guaranteed(&fixture, "twin");
    twin.discard(ByteRange::new(0, BLOCK)).expect("a discard works");
    fixture.fill_pool();
    write_all(&twin, 100);
    check_all(&fixture.volume("sure"), 0);
}
