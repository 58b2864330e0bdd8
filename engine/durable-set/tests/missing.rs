//! Tests with an image store that loses objects temporarily: only reads of their contents fail, and
//! everything is back when they are.

mod support;

use std::sync::Arc;

use block_device::{BlockDevice, DeviceErrorKind};
use durable_set::DurableErrorKind;
use image::{OpenImage, Unwatched};
use support::{BLOCK, Fixture, noise, read};
use volumes::{Durability, GivenUp};

/// Minimum number of retries per hour for missing contents.
const ROUNDS_AN_HOUR: usize = 60;

/// Number of blocks of the test volumes.
const BLOCKS: u64 = 20;

fn seed(block: u64) -> u8 {
    block.to_le_bytes()[0] + 1
}

fn make(fixture: &Fixture, name: &str) {
    make_of(fixture, name, seed);
}

fn make_of(fixture: &Fixture, name: &str, seed: impl Fn(u64) -> u8) {
    let volume = fixture.create(name, Durability::Image);
    for block in 0..BLOCKS {
        volume.write(block * BLOCK, &noise(seed(block))).expect("there is room");
    }
}

#[track_caller]
fn check(fixture: &Fixture, name: &str, expected: impl Fn(u64) -> Vec<u8>) {
    let volume = fixture.volume(name);
    for block in 0..BLOCKS {
        assert!(read(&volume, block) == Ok(expected(block)), "block {block} of {name}");
    }
}

/// Retries until a block can be read, because failed reads are not retried at once.
fn read_in_the_end(fixture: &Fixture, name: &str, block: u64) -> Vec<u8> {
    let volume = fixture.volume(name);
    let begun = std::time::Instant::now();
    loop {
        match read(&volume, block) {
            Ok(bytes) => return bytes,
            Err(_) => assert!(begun.elapsed().as_secs() < 60, "it is asked for again"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn objects_that_are_missing_for_an_hour_cost_nothing_but_reads_of_what_is_in_them() {
    let mut fixture = Fixture::new();
    make(&fixture, "one");
    make(&fixture, "two");
    fixture.save();
    fixture.lose_memory();
    fixture.hide_packs();
    let one = fixture.volume("one");
    for block in 0..5 {
        one.write(block * BLOCK, &noise(200)).expect("a whole block can be overwritten");
    }
    drop(one);
    for round in 0..ROUNDS_AN_HOUR {
        let streamed = fixture.set.stream(&Unwatched).expect("the store answers");
        assert!(!streamed.is_done);
        assert_eq!(streamed.unfetched.blocks, 2 * BLOCKS - 5);
        for block in 0..BLOCKS {
            let expected = if block < 5 { Ok(noise(200)) } else { Err(DeviceErrorKind::Corrupt) };
            assert!(read(&fixture.volume("one"), block) == expected, "block {block}");
        }
        let two = fixture.volume("two");
        two.write(BLOCK * 30, &noise(seed(round as u64))).expect("there is room");
        let partly = two.write(BLOCK * 3 + 512, &[7; 512]).expect_err("the rest is not there");
        assert_eq!(partly.kind, DeviceErrorKind::Corrupt);
        drop(two);
        if round % 20 == 10 {
            fixture.save();
            fixture.set.retain(1).expect("the store answers");
            fixture.kill();
        }
        if round == 40 {
            fixture.lose_memory();
        }
    }
    fixture.show_packs();
    assert!(read_in_the_end(&fixture, "two", 7) == noise(seed(7)), "also by readers alone");
    assert!(fixture.set.stream(&Unwatched).expect("the store answers").is_done);
    assert_eq!(fixture.set.unfetched().blocks, 0);
    check(&fixture, "one", |block| if block < 5 { noise(200) } else { noise(seed(block)) });
    check(&fixture, "two", |block| noise(seed(block)));
    fixture.save();
    fixture.set.retain(1).expect("the store answers");
    fixture.lose_memory();
    check(&fixture, "two", |block| noise(seed(block)));
}

#[test]
fn what_is_missing_is_named_by_object_volume_and_bytes() {
    let mut fixture = Fixture::new();
    make(&fixture, "one");
    make(&fixture, "two");
    fixture.save();
    fixture.lose_memory();
    let pack = fixture.packs()[0];
    fixture.hide_packs();
    fixture.set.stream(&Unwatched).expect("the store answers");
    let unfetched = fixture.set.unfetched();
    assert_eq!((unfetched.blocks, unfetched.objects.len()), (2 * BLOCKS, 1));
    let object = &unfetched.objects[0];
    assert_eq!(object.pack, pack);
    let volumes: Vec<_> = object.volumes.iter().map(|(name, count)| (&name[..], *count)).collect();
    assert_eq!(volumes, [("one", BLOCKS), ("two", BLOCKS)]);
    assert!(object.cause.contains("it does not exist"), "{}", object.cause);
}

#[test]
fn a_store_that_is_down_loses_nothing() {
    let mut fixture = Fixture::new();
    make(&fixture, "one");
    fixture.save();
    fixture.lose_memory();
    fixture.take_store_down(true);
    for _ in 0..ROUNDS_AN_HOUR {
        // May report a failure of the store or unfetched contents.
        let _failure = fixture.set.stream(&Unwatched);
        assert_eq!(read(&fixture.volume("one"), 1), Err(DeviceErrorKind::Corrupt));
    }
    let given_up = fixture.set.accept_loss("one").expect("the volume is there");
    assert_eq!(given_up, GivenUp { lost: 0, present: 0, left: BLOCKS });
    fixture.take_store_down(false);
    assert!(fixture.set.stream(&Unwatched).expect("the store answers").is_done);
    check(&fixture, "one", |block| noise(seed(block)));
}

#[test]
fn only_the_owner_says_what_is_lost_and_only_of_what_is_missing() {
    let mut fixture = Fixture::new();
    make(&fixture, "one");
    fixture.save();
    let packs_of_one = fixture.packs();
    make_of(&fixture, "two", |block| seed(block) + 100);
    fixture.save();
    fixture.lose_memory();
    fixture.hide(packs_of_one);
    let given_up = fixture.set.accept_loss("two").expect("the volume is there");
    assert_eq!(given_up, GivenUp { lost: 0, present: BLOCKS, left: 0 });
    fixture.set.stream(&Unwatched).expect("the store answers");
    assert!(fixture.set.unfetched().blocks > 0);
    let given_up = fixture.set.accept_loss("one").expect("the volume is there");
    assert_eq!(given_up, GivenUp { lost: BLOCKS, present: 0, left: 0 });
    assert_eq!(fixture.set.unfetched().blocks, 0);
    assert!(fixture.engine.absent_image().is_none(), "nothing is to be fetched any more");
    fixture.show_packs();
    assert_eq!(read(&fixture.volume("one"), 1), Err(DeviceErrorKind::Corrupt));
    check(&fixture, "two", |block| noise(seed(block) + 100));
}

#[test]
fn what_memory_has_is_saved_again_when_its_pack_is_missing() {
    let mut fixture = Fixture::new();
    make(&fixture, "one");
    fixture.save();
    fixture.hide_packs();
    fixture.volume("one").write(0, &noise(99)).expect("there is room");
    let saved = fixture.save();
    assert_eq!(saved.pages_written, BLOCKS);
    fixture.lose_memory();
    check(&fixture, "one", |block| if block == 0 { noise(99) } else { noise(seed(block)) });
}

#[test]
fn an_older_image_stays_while_newer_ones_lack_something() {
    let mut fixture = Fixture::new();
    make(&fixture, "one");
    let whole = fixture.save().id.number();
    fixture.lose_memory();
    fixture.hide_packs();
    fixture.set.accept_loss("one").expect("the volume is there");
    fixture.show_packs();
    for _ in 0..4 {
        assert_eq!(fixture.save().lost_blocks, BLOCKS);
        fixture.set.retain(1).expect("the store answers");
    }
    let image = OpenImage::open(Arc::clone(fixture.set.images()), whole).expect("it stays");
    assert_eq!(image.verify(&Unwatched).expect("the store answers").chunks_damaged, 0);
}

#[test]
fn a_pool_whose_maps_are_missing_is_not_begun_until_they_are_back() {
    let mut fixture = Fixture::new();
    make(&fixture, "one");
    fixture.save();
    fixture.hide_packs();
    let error = fixture.try_to_lose_memory(None).expect_err("the map is missing");
    assert_eq!(error.kind, DurableErrorKind::Images);
    fixture.show_packs();
    let opening = fixture.try_to_lose_memory(None).expect("all is there");
    assert!(opening.loss.is_none());
    check(&fixture, "one", |block| noise(seed(block)));
}
