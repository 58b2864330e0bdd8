//! Tests that a daemon does not claim its image store again after another daemon's takeover,
//! whatever data it lost meanwhile.

mod support;

use std::sync::Arc;

use block_device::BlockDevice;
use durable_set::{DurableError, SaveExtent};
use image::{ClaimedStore, ImageError, ImageErrorKind, StoreWriter};
use support::{Fixture, noise, read};
use volumes::Durability;

/// Claims the store as a daemon with this id.
fn claim_elsewhere(fixture: &Fixture, daemon_id: u128) {
    let host = "elsewhere".to_owned();
    let writer = StoreWriter { daemon_id, host, ..(1_u128 << 80).into() };
    let claimed = ClaimedStore::claim(Arc::clone(fixture.set.images()), writer);
    claimed.expect("the store works");
}

fn fixture_with_image() -> Fixture {
    let fixture = Fixture::new();
    fixture.create("db", Durability::Journal).write(0, &noise(1)).expect("there is room");
    fixture.save();
    fixture
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
    let mut fixture = fixture_with_image();
    for _ in 0..2 {
        fixture.kill();
        fixture.save();
    }
    fixture.kill();
    claim_elsewhere(&fixture, 7);
    for _ in 0..2 {
        check_refused(&fixture.try_to_save(SaveExtent::Durable).expect_err("it was taken over"));
        fixture.kill();
    }
}

#[test]
fn a_daemon_that_lost_its_memory_does_not_restore_what_another_has_saved() {
    let mut fixture = fixture_with_image();
    claim_elsewhere(&fixture, 7);
    check_refused(&fixture.try_to_lose_memory(None).expect_err("it was taken over"));
}

#[test]
fn a_store_is_claimed_from_others_if_nothing_is_known_of_an_own_claim() {
    let mut fixture = Fixture::new();
    claim_elsewhere(&fixture, 7);
    fixture.create("db", Durability::Image).write(0, &noise(1)).expect("there is room");
    fixture.save();
    // The other daemon's claim is older than its own.
    fixture.kill();
    fixture.save();
    claim_elsewhere(&fixture, 8);
    fixture.remove_files("journal/claim");
    fixture.kill();
    fixture.save();
    fixture.lose_memory();
    assert_eq!(read(&fixture.volume("db"), 0), Ok(noise(1)));
}

#[test]
fn a_claim_of_an_earlier_release_does_not_tell_whose_it_is() {
    let mut fixture = fixture_with_image();
    claim_elsewhere(&fixture, 0);
    fixture.kill();
    fixture.save();
}

#[test]
fn a_damaged_memory_of_claims_is_reported() {
    let mut fixture = fixture_with_image();
    fixture.flip_bit("journal/claim", 8 * 30);
    fixture.kill();
    let error = fixture.try_to_save(SaveExtent::Durable).expect_err("it is damaged");
    let cause = durable_set::causes(&error);
    assert!(cause.contains("the file claim in the journal's directory"), "{cause}");
}

#[test]
fn a_full_disk_of_the_journal_keeps_no_image_from_being_saved() {
    let mut fixture = Fixture::new();
    fixture.create("db", Durability::Journal).write(0, &noise(1)).expect("there is room");
    fixture.refuse_writes(powercut::Effect::NoSpace);
    let saved = fixture.try_to_save(SaveExtent::Durable);
    fixture.heal_disk();
    // Images are on the same disk here.
    assert!(saved.is_err());
    fixture.save();
    fixture.kill();
    fixture.save();
}
