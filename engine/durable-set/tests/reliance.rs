//! Tests with intact memory whose counterpart on stable storage is gone: this is reported, flushes
//! wait, and it is saved again.

mod support;

use block_device::BlockDevice;
use durable_set::{Missing, Opening};
use image::ObjectName;
use support::{BLOCK, Fixture, noise, read};
use volumes::{Durability, Volume};

const BLOCKS: u8 = 20;

fn seed(block: u8, add: u8) -> u8 {
    block + add
}

/// Creates a volume of each class, saved in one image or none, with later flushes.
fn furnish(fixture: &Fixture, saves: usize) {
    for (name, class, add) in [("one", Durability::Journal, 1), ("two", Durability::Image, 101)] {
        let volume = fixture.create(name, class);
        for block in 0..BLOCKS {
            volume.write(u64::from(block) * BLOCK, &noise(seed(block, add))).expect("room");
        }
    }
    fixture.set.note_volumes().expect("the disk works");
    let one = fixture.volume("one");
    one.flush().expect("the disk works");
    for round in 0..saves {
        fixture.save();
        one.write(u64::from(BLOCKS) * BLOCK, &noise(230 + round.to_le_bytes()[0])).expect("room");
        one.flush().expect("the disk works");
    }
}

fn has_flushed(volume: &Volume) -> bool {
    volume.map().is_anchored()
}

/// Checks that missing contents are saved again, and restored after memory is lost.
fn check_is_saved_anew(fixture: &mut Fixture, saves: usize) {
    assert!(!has_flushed(&fixture.volume("one")), "its flushes wait");
    fixture.flush_with_images(&fixture.volume("one"));
    let opening = fixture.restart();
    assert!(opening.missing.is_empty(), "{opening:?}");
    let one = fixture.volume("one");
    one.write(30 * BLOCK, &noise(99)).expect("there is room");
    one.flush().expect("the disk works");
    drop(one);
    fixture.lose_memory();
    for (name, add) in [("one", 1), ("two", 101)] {
        let volume = fixture.volume(name);
        for block in 0..BLOCKS {
            let found = read(&volume, u64::from(block));
            assert!(found == Ok(noise(seed(block, add))), "block {block} of {name}: {saves}");
        }
    }
    assert!(read(&fixture.volume("one"), 30) == Ok(noise(99)));
}

#[track_caller]
fn check(saves: usize, lose: impl Fn(&Fixture), expect: impl Fn(&Missing) -> bool) {
    let mut fixture = Fixture::new();
    furnish(&fixture, saves);
    fixture.set.journal().stop();
    lose(&fixture);
    let opening: Opening = fixture.restart();
    assert!(expect(&opening.missing), "{:?}", opening.missing);
    check_is_saved_anew(&mut fixture, saves);
}

#[test]
fn a_lost_journal_is_told_of_and_an_image_takes_its_place() {
    for saves in [0, 1, 3] {
        let lose = |fixture: &Fixture| fixture.remove_files("journal/");
        check(saves, lose, |missing| missing.journal.is_some() && missing.images.is_empty());
    }
}

#[test]
fn lost_images_are_told_of_and_saved_anew() {
    let lose = |fixture: &Fixture| fixture.remove_files("images/");
    check(1, lose, |missing| missing.images.len() == 1);
    check(3, lose, |missing| missing.images.len() == 1 && missing.journal.is_some());
}

#[test]
fn journal_and_images_that_are_both_lost_are_told_of_and_saved_anew() {
    let lose = |fixture: &Fixture| {
        fixture.remove_files("journal/");
        fixture.remove_files("images/");
    };
    check(0, lose, |missing| missing.journal.is_some());
    check(2, lose, |missing| missing.journal.is_some() && missing.images.len() == 1);
}

#[test]
fn a_part_of_what_memory_relies_on_is_missed_like_the_whole() {
    let newest_manifest = |fixture: &Fixture| {
        let images = fixture.set.images().images().expect("the disk works");
        let (number, _) = images.last().expect("there are some");
        fixture.set.images().remove(ObjectName::Image(*number)).expect("the disk works");
    };
    check(2, newest_manifest, |missing| missing.images.len() == 1);
    let packs = |fixture: &Fixture| fixture.remove_files("images/packs/");
    check(2, packs, |missing| missing.images.len() == 1 && missing.journal.is_none());
    let first_segment = |fixture: &Fixture| fixture.remove_first_file("journal/");
    check(0, first_segment, |missing| missing.journal.is_some());
}

#[test]
fn what_is_there_is_missed_by_nobody() {
    for saves in [0, 1, 3] {
        let mut fixture = Fixture::new();
        furnish(&fixture, saves);
        for _ in 0..2 {
            let opening = fixture.restart();
            assert!(opening.missing.is_empty() && opening.store_failure.is_none(), "{opening:?}");
            assert!(has_flushed(&fixture.volume("one")));
        }
    }
}

#[test]
fn a_store_that_does_not_answer_keeps_no_memory_from_being_served() {
    for saves in [0, 2] {
        let mut fixture = Fixture::new();
        furnish(&fixture, saves);
        fixture.silence_store(true);
        let opening = fixture.restart();
        assert!(opening.store_failure.is_some() && opening.missing.is_empty(), "{opening:?}");
        let one = fixture.volume("one");
        one.write(31 * BLOCK, &noise(98)).expect("there is room");
        one.flush().expect("the journal is there");
        fixture.set.look_at_images().expect_err("it does not answer");
        assert!(!fixture.set.is_compared());
        fixture.silence_store(false);
        let looked = fixture.set.look_at_images().expect("it answers");
        assert!(looked.missing.is_empty() && fixture.set.is_compared(), "{looked:?}");
        assert_eq!(looked.newest.is_some(), saves > 0);
        // Data flushed meanwhile comes after the image's contents.
        drop(one);
        fixture.lose_memory();
        assert!(read(&fixture.volume("one"), 31) == Ok(noise(98)));
        assert!(read(&fixture.volume("one"), 0) == Ok(noise(1)));
    }
}

#[test]
fn what_a_silent_store_has_lost_is_found_when_it_answers() {
    let mut fixture = Fixture::new();
    furnish(&fixture, 2);
    fixture.remove_files("images/");
    fixture.silence_store(true);
    fixture.restart();
    fixture.silence_store(false);
    let looked = fixture.set.look_at_images().expect("it answers");
    assert_eq!(looked.missing.images.len(), 1);
    check_is_saved_anew(&mut fixture, 2);
}
