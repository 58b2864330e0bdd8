//! Tests that a daemon does not claim its image store again after another daemon's takeover,
//! whatever data it lost meanwhile.

mod support;

use std::sync::Arc;

use block_device::BlockDevice;
use durable_set::{DurableError, SaveExtent};
use image::{ClaimedStore, ImageError, ImageErrorKind, StoreWriter};
use support::{House, noise, read};
use volumes::Durability;

/// Claims the store as a daemon with this id.
fn claim_elsewhere(house: &House, daemon_id: u128) {
    let host = "elsewhere".to_owned();
    let writer = StoreWriter { daemon_id, host, ..(1_u128 << 80).into() };
    let claimed = ClaimedStore::claim(Arc::clone(house.set.images()), writer);
    claimed.expect("the store works");
}

fn house_with_image() -> House {
    let house = House::new();
    house.create("db", Durability::Journal).write(0, &noise(1)).expect("there is room");
    house.save();
    house
}

#[track_caller]
fn check_refused(error: &DurableError) {
    let source = error.source.as_deref().and_then(|source| source.downcast_ref::<ImageError>());
    let source = source.expect("an error of the store");
    assert_eq!(source.kind, ImageErrorKind::Fenced, "{error:?}");
    let why = source.source.as_ref().expect("a reason").to_string();
    assert!(why.contains("on the host elsewhere") && why.contains("standby"), "{why}");
}

#[test]
fn a_restarted_daemon_does_not_claim_a_store_that_another_has_claimed() {
    let mut house = house_with_image();
    for _ in 0..2 {
        house.kill();
        house.save();
    }
    house.kill();
    claim_elsewhere(&house, 7);
    for _ in 0..2 {
        check_refused(&house.try_to_save(SaveExtent::Durable).expect_err("it was taken over"));
        house.kill();
    }
}

#[test]
fn a_daemon_that_lost_its_memory_does_not_restore_what_another_has_saved() {
    let mut house = house_with_image();
    claim_elsewhere(&house, 7);
    check_refused(&house.try_to_lose_memory(None).expect_err("it was taken over"));
}

#[test]
fn a_store_is_claimed_from_others_if_nothing_is_known_of_an_own_claim() {
    let mut house = House::new();
    claim_elsewhere(&house, 7);
    house.create("db", Durability::Image).write(0, &noise(1)).expect("there is room");
    house.save();
    // The other daemon's claim is older than its own.
    house.kill();
    house.save();
    claim_elsewhere(&house, 8);
    house.remove_files("journal/claim");
    house.kill();
    house.save();
    house.lose_memory();
    assert_eq!(read(&house.volume("db"), 0), Ok(noise(1)));
}

#[test]
fn a_claim_of_an_earlier_release_does_not_tell_whose_it_is() {
    let mut house = house_with_image();
    claim_elsewhere(&house, 0);
    house.kill();
    house.save();
}

#[test]
fn a_damaged_memory_of_claims_is_reported() {
    let mut house = house_with_image();
    house.flip_bit("journal/claim", 8 * 30);
    house.kill();
    let error = house.try_to_save(SaveExtent::Durable).expect_err("it is damaged");
    let cause = durable_set::causes(&error);
    assert!(cause.contains("the file claim in the folder of the journal"), "{cause}");
}

#[test]
fn a_full_disk_of_the_journal_keeps_no_image_from_being_saved() {
    let mut house = House::new();
    house.create("db", Durability::Journal).write(0, &noise(1)).expect("there is room");
    house.refuse_writes(powercut::Effect::NoSpace);
    let saved = house.try_to_save(SaveExtent::Durable);
    house.heal_disk();
    // Images are on the same disk here.
    assert!(saved.is_err());
    house.save();
    house.kill();
    house.save();
}
