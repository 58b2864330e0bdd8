//! Tests with unreadable manifests: nothing depends on such images, and nothing is lost silently.

mod support;

use block_device::BlockDevice;
use durable_set::{AcceptedImage, DurableErrorKind, LastKnown, Opened, SaveExtent};
use image::Unwatched;
use support::{BLOCK, Fixture, long_noise, noise, read};
use volumes::{Durability, Volume};

fn write_and_flush(volume: &Volume, block: u64, seed: u8) {
    volume.write(block * BLOCK, &noise(seed)).expect("there is room");
    volume.flush().expect("the disk works");
}

/// Creates two images of a volume, the newer one unreadable. Returns their numbers.
fn two_images(fixture: &Fixture, class: Durability) -> (u32, u32) {
    let volume = fixture.create("one", class);
    write_and_flush(&volume, 0, 1);
    let older = fixture.save().id.number();
    // Several segments of the journal, which are removed with the newer image.
    for block in 100..700 {
        volume.write(block * BLOCK, &long_noise(block)).expect("there is room");
    }
    write_and_flush(&volume, 1, 2);
    let newer = fixture.save().id.number();
    fixture.damage_manifest(newer);
    (older, newer)
}

#[test]
fn the_journal_is_not_cut_for_an_image_that_cannot_be_read_again() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    write_and_flush(&volume, 0, 1);
    fixture.spoil_manifests(true);
    let error = fixture.try_to_save(SaveExtent::Durable).expect_err("it cannot be read");
    assert_eq!(error.kind, DurableErrorKind::Images);
    assert!(error.to_string().contains("read the new image's manifest"), "{error}");
    write_and_flush(&volume, 1, 2);
    drop(volume);
    let opening = fixture.try_to_lose_memory(None).expect("the journal has everything");
    assert!(opening.skipped.is_empty(), "nothing of it is left: {opening:?}");
    let volume = fixture.volume("one");
    assert!(read(&volume, 0) == Ok(noise(1)) && read(&volume, 1) == Ok(noise(2)));
    fixture.spoil_manifests(false);
    fixture.save();
    drop(volume);
    fixture.lose_memory();
    assert!(read(&fixture.volume("one"), 1) == Ok(noise(2)));
}

#[test]
fn an_image_whose_packs_are_gone_when_it_is_there_cuts_no_journal() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    write_and_flush(&volume, 0, 1);
    fixture.spoil_packs(true);
    let error = fixture.try_to_save(SaveExtent::Durable).expect_err("its packs are gone");
    assert_eq!(error.kind, DurableErrorKind::Images);
    let why = error.source.as_ref().expect("the reason").to_string();
    assert!(why.contains("find pack"), "{why}");
    fixture.spoil_packs(false);
    write_and_flush(&volume, 1, 2);
    drop(volume);
    fixture.lose_memory();
    let volume = fixture.volume("one");
    assert!(read(&volume, 0) == Ok(noise(1)) && read(&volume, 1) == Ok(noise(2)));
    fixture.save();
    drop(volume);
    fixture.lose_memory();
    assert!(read(&fixture.volume("one"), 0) == Ok(noise(1)));
}

#[test]
fn what_an_unreadable_image_was_to_have_is_unsaved_still() {
    let fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    volume.write(0, &noise(1)).expect("there is room");
    fixture.save();
    volume.write(BLOCK, &noise(2)).expect("there is room");
    fixture.spoil_manifests(true);
    fixture.try_to_save(SaveExtent::Durable).expect_err("it cannot be read");
    assert_eq!(volume.map().unsaved_blocks(), 1);
    fixture.spoil_manifests(false);
    let mut fixture = fixture;
    let saved = fixture.save();
    assert_eq!((saved.pages_written, saved.bases_missing.len()), (1, 0));
    drop(volume);
    fixture.lose_memory();
    assert!(fixture.set.stream(&Unwatched).expect("the images can be read").is_done);
    let volume = fixture.volume("one");
    assert!(read(&volume, 0) == Ok(noise(1)) && read(&volume, 1) == Ok(noise(2)));
}

#[test]
fn an_older_image_does_where_the_journal_goes_back_to_it() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    write_and_flush(&volume, 0, 1);
    fixture.save();
    write_and_flush(&volume, 1, 2);
    fixture.keep_files();
    let newer = fixture.save().id.number();
    drop(volume);
    fixture.damage_manifest(newer);
    fixture.set.journal().stop();
    fixture.heal_disk();
    let opening = fixture.try_to_lose_memory(None).expect("nothing is missing");
    assert_eq!(opening.skipped.len(), 1);
    assert!(opening.loss.is_none());
    let volume = fixture.volume("one");
    assert!(read(&volume, 0) == Ok(noise(1)) && read(&volume, 1) == Ok(noise(2)));
}

#[test]
fn what_the_journal_does_not_go_back_to_is_lost_only_if_that_is_accepted() {
    let mut fixture = Fixture::new();
    let (older, newer) = two_images(&fixture, Durability::Journal);
    write_and_flush(&fixture.volume("one"), 2, 3);
    let error = fixture.try_to_lose_memory(None).expect_err("the newer image is needed");
    assert_eq!(error.kind, DurableErrorKind::NewestUnreadable);
    let told = error.to_string();
    assert!(told.contains(&format!("image {newer}")) && told.contains("accept"), "{told}");
    assert!(std::error::Error::source(&error).is_some(), "the gap is named");

    let wrong = fixture.try_to_lose_memory(Some(AcceptedImage(newer)));
    assert_eq!(wrong.expect_err("it cannot be read").kind, DurableErrorKind::NotNewest);
    let opening = fixture.try_to_lose_memory(Some(AcceptedImage(older))).expect("it is accepted");
    assert!(opening.loss.is_some());
    assert!(matches!(opening.how, Opened::Restored { image: Some(it), .. } if it == older));
    assert!(fixture.file_names().iter().any(|name| name.contains("aside-")), "nothing is removed");
    let volume = fixture.volume("one");
    assert!(read(&volume, 0) == Ok(noise(1)) && read(&volume, 1) == Ok(vec![0; 4096]));

    // The next image restores the normal state.
    assert!(!volume.map().is_anchored(), "its flushes wait for an image");
    volume.write(2 * BLOCK, &noise(4)).expect("there is room");
    fixture.save();
    write_and_flush(&volume, 3, 5);
    drop(volume);
    let opening = fixture.try_to_lose_memory(None).expect("nothing is missing");
    assert!(opening.loss.is_none());
    let volume = fixture.volume("one");
    assert!(read(&volume, 2) == Ok(noise(4)) && read(&volume, 3) == Ok(noise(5)));
}

#[test]
fn a_volume_whose_first_image_cannot_be_read_is_not_made_of_what_the_journal_has() {
    let mut fixture = Fixture::new();
    write_and_flush(&fixture.create("one", Durability::Journal), 0, 1);
    let older = fixture.save().id.number();
    let cloned = fixture.set.clone_volume("one", "two".parse().expect("a good name"));
    let cloned = cloned.expect("there is room");
    fixture.keep_files();
    let newer = fixture.save().id.number();
    fixture.heal_disk();
    write_and_flush(&cloned, 1, 2);
    drop(cloned);
    fixture.damage_manifest(newer);
    let error = fixture.try_to_lose_memory(None).expect_err("the newer image is needed");
    assert_eq!(error.kind, DurableErrorKind::NewestUnreadable);
    let opening = fixture.try_to_lose_memory(Some(AcceptedImage(older))).expect("it is accepted");
    let Opened::Restored { left_out, .. } = opening.how else { panic!("{:?}", opening.how) };
    assert_eq!(left_out, ["two"]);
    assert!(read(&fixture.volume("one"), 0) == Ok(noise(1)));
    assert!(fixture.engine.volume("two").is_err());
}

#[test]
fn an_older_image_does_for_a_volume_that_an_image_before_it_has_anchored() {
    let mut fixture = Fixture::new();
    write_and_flush(&fixture.create("one", Durability::Journal), 0, 1);
    let cloned = fixture.set.clone_volume("one", "two".parse().expect("a good name"));
    let cloned = cloned.expect("there is room");
    fixture.save();
    fixture.save();
    write_and_flush(&cloned, 1, 2);
    fixture.keep_files();
    let newest = fixture.save().id.number();
    drop(cloned);
    fixture.damage_manifest(newest);
    fixture.set.journal().stop();
    fixture.heal_disk();
    let opening = fixture.try_to_lose_memory(None).expect("nothing is missing");
    assert_eq!(opening.skipped.len(), 1);
    let cloned = fixture.volume("two");
    assert!(read(&cloned, 0) == Ok(noise(1)) && read(&cloned, 1) == Ok(noise(2)));
}

#[test]
fn volumes_of_class_image_do_not_silently_become_older() {
    let mut fixture = Fixture::new();
    let (older, _) = two_images(&fixture, Durability::Image);
    let error = fixture.try_to_lose_memory(None).expect_err("the newer image is needed");
    assert_eq!(error.kind, DurableErrorKind::NewestUnreadable);
    let opening = fixture.try_to_lose_memory(Some(AcceptedImage(older))).expect("it is accepted");
    assert!(opening.loss.is_some());
    assert!(read(&fixture.volume("one"), 0) == Ok(noise(1)));
}

#[test]
fn a_set_whose_only_image_cannot_be_read_is_not_begun_anew() {
    let mut fixture = Fixture::new();
    fixture.create("one", Durability::Image).write(0, &noise(1)).expect("there is room");
    let number = fixture.save().id.number();
    fixture.damage_manifest(number);
    let error = fixture.try_to_lose_memory(None).expect_err("the image is needed");
    assert_eq!(error.kind, DurableErrorKind::NewestUnreadable);
    let opening = fixture.try_to_lose_memory(Some(AcceptedImage(0))).expect("it is accepted");
    assert!(opening.loss.is_some());
    assert!(fixture.engine.volumes().is_empty());
}

#[test]
fn a_set_whose_journal_and_images_are_gone_is_not_begun_anew_on_the_same_host() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    volume.write(0, &noise(1)).expect("there is room");
    drop(volume);
    fixture.last_known =
        Some(LastKnown { set_id: fixture.set.id(), has_flushes: true, newest_image: 0 });
    fixture.remove_files("journal/");
    // Memory has everything.
    assert!(matches!(fixture.restart().how, Opened::Continued));
    fixture.flush_with_images(&fixture.volume("one"));
    fixture.remove_files("journal/");
    fixture.remove_files("images/");
    let files = fixture.file_names();
    let error = fixture.try_to_lose_memory(None).expect_err("a disk may not be mounted");
    assert_eq!(error.kind, DurableErrorKind::JournalGone);
    assert_eq!(fixture.file_names(), files, "the disk was changed");
    let opening = fixture.try_to_lose_memory(Some(AcceptedImage(0))).expect("it is accepted");
    assert!(matches!(opening.how, Opened::New), "{opening:?}");
    assert_eq!(opening.loss.expect("it is told of").kind, DurableErrorKind::JournalGone);
    assert!(fixture.engine.volumes().is_empty());
}

#[test]
fn an_image_is_enough_without_its_journal_only_if_nothing_was_flushed_to_it() {
    for durability in [Durability::Image, Durability::Journal] {
        let mut fixture = Fixture::new();
        let volume = fixture.create("one", durability);
        volume.write(0, &noise(1)).expect("there is room");
        drop(volume);
        let number = fixture.save().id.number();
        let has_flushes = fixture.set.has_journaled_volumes();
        fixture.last_known =
            Some(LastKnown { set_id: fixture.set.id(), has_flushes, newest_image: number });
        fixture.remove_files("journal/");
        if durability == Durability::Journal {
            let error = fixture.try_to_lose_memory(None).expect_err("flushes would be lost");
            assert_eq!(error.kind, DurableErrorKind::JournalGone);
            let other = fixture.try_to_lose_memory(Some(AcceptedImage(0)));
            assert_eq!(other.expect_err("there is one").kind, DurableErrorKind::NotNewest);
        }
        let accepted = (durability == Durability::Journal).then_some(AcceptedImage(number));
        let opening = fixture.try_to_lose_memory(accepted).expect("the image has all");
        assert_eq!(opening.loss.is_some(), accepted.is_some());
        assert!(read(&fixture.volume("one"), 0) == Ok(noise(1)));
    }
}

#[test]
fn a_journal_that_an_image_has_emptied_is_not_missed() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    volume.write(0, &noise(1)).expect("there is room");
    fixture.flush_with_images(&volume);
    drop(volume);
    for _ in 0..3 {
        let newest_image = fixture.save().id.number();
        fixture.set.maintain().expect("the disk works");
        let set_id = fixture.set.id();
        fixture.last_known = Some(LastKnown { set_id, has_flushes: true, newest_image });
        let opening = fixture.try_to_lose_memory(None).expect("nothing is missing");
        assert!(opening.loss.is_none());
        assert!(read(&fixture.volume("one"), 0) == Ok(noise(1)));
    }
}

#[test]
fn a_store_without_the_newest_image_of_this_host_is_not_the_one() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    volume.write(0, &noise(1)).expect("there is room");
    drop(volume);
    fixture.save();
    fixture.flush_with_images(&fixture.create("two", Durability::Journal));
    let number = fixture.save().id.number();
    let (set_id, has_flushes) = (fixture.set.id(), true);
    fixture.last_known = Some(LastKnown { set_id, has_flushes, newest_image: number });
    fixture.remove_files("images/");
    let error = fixture.try_to_lose_memory(None).expect_err("a disk may not be mounted");
    assert_eq!(error.kind, DurableErrorKind::ImageGone);
    let opening = fixture.try_to_lose_memory(Some(AcceptedImage(0))).expect("it is accepted");
    assert_eq!(opening.loss.expect("it is told of").kind, DurableErrorKind::ImageGone);
}

#[test]
fn a_journal_of_another_set_is_not_missed() {
    let mut fixture = Fixture::new();
    fixture.create("one", Durability::Journal).write(0, &noise(1)).expect("there is room");
    fixture.save();
    fixture.last_known = Some(LastKnown { set_id: [7; 16], has_flushes: true, newest_image: 9 });
    fixture.remove_files("journal/");
    let opening = fixture.try_to_lose_memory(None).expect("it is restored from the image");
    assert!(opening.loss.is_none());
}

#[test]
fn memory_that_is_there_needs_no_image() {
    let mut fixture = Fixture::new();
    two_images(&fixture, Durability::Image);
    let opening = fixture.restart();
    assert!(matches!(opening.how, Opened::Continued), "{opening:?}");
    assert_eq!(opening.missing.images.len(), 1);
    let volume = fixture.volume("one");
    assert!(read(&volume, 1) == Ok(noise(2)));
    assert_eq!(fixture.save().pages_written, 602, "all is saved anew");
    drop(volume);
    fixture.lose_memory();
    assert!(read(&fixture.volume("one"), 1) == Ok(noise(2)));
}
