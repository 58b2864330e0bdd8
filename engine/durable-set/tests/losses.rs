//! Tests that lost memory is restored from journal and images.

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use block_device::{BlockDevice, ByteRange, ChangeKind, DeviceErrorKind, SnapshotId, Zeroes};
use durable_set::{DurableErrorKind, Opened, SaveExtent};
use image::{Progress, Unwatched, Watch};
use support::{BLOCK, Fixture, noise, read};
use volumes::{CopyPlace, Durability, ShrinkPolicy, VolumeSpec};

const MIB: u64 = 1 << 20;

#[test]
fn what_was_flushed_is_there_after_memory_is_lost() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    volume.write(0, &noise(1)).expect("there is room");
    volume.write(9 * BLOCK, &[7; 4096]).expect("there is room");
    volume.flush().expect("the disk works");
    volume.write(0, &noise(2)).expect("there is room");
    volume.write_zeroes(ByteRange::new(9 * BLOCK, BLOCK), Zeroes::Unmap).expect("it is there");
    volume.flush().expect("the disk works");
    let id = volume.id();
    drop(volume);
    let opened = fixture.lose_memory();
    assert!(matches!(opened, Opened::Restored { image: None, .. }), "{opened:?}");
    let volume = fixture.volume("one");
    assert_eq!((volume.id(), volume.durability()), (id, Durability::Journal));
    assert!(read(&volume, 0) == Ok(noise(2)));
    assert!(read(&volume, 9) == Ok(vec![0; 4096]));
    assert_eq!(volume.map().unjournaled_blocks(), 0, "the journal has all of it");
}

#[test]
fn the_journal_goes_on_after_an_image() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    volume.write(0, &[noise(1), noise(2)].concat()).expect("there is room");
    volume.flush().expect("the disk works");
    fixture.save();
    volume.write(BLOCK, &noise(3)).expect("there is room");
    volume.flush().expect("the disk works");
    drop(volume);
    let opened = fixture.lose_memory();
    let Opened::Restored { image: Some(_), transactions, .. } = opened else {
        panic!("{opened:?}");
    };
    assert_eq!(transactions, 1, "what the image has is not replayed");
    let volume = fixture.volume("one");
    assert!(read(&volume, 0) == Ok(noise(1)));
    assert!(read(&volume, 1) == Ok(noise(3)));
    // Again, from the continued journal without another image.
    volume.write(0, &noise(4)).expect("there is room");
    volume.flush().expect("the disk works");
    drop(volume);
    fixture.lose_memory();
    let volume = fixture.volume("one");
    assert!(read(&volume, 0) == Ok(noise(4)));
    assert!(read(&volume, 1) == Ok(noise(3)));
}

#[test]
fn an_image_is_served_before_its_contents_are_fetched() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    for block in 0..1200_u64 {
        let seed = (block % 200 + 1).to_le_bytes()[0];
        volume.write(block * BLOCK, &noise(seed)).expect("there is room");
    }
    fixture.save();
    volume.write(0, &noise(250)).expect("there is room");
    drop(volume);
    fixture.lose_memory();
    let volume = fixture.volume("one");
    assert_eq!(volume.map().absent_blocks(), 1200);
    assert!(read(&volume, 700) == Ok(noise((700 % 200 + 1_u64).to_le_bytes()[0])));
    assert!(volume.map().absent_blocks() >= 1200 - 512);
    volume.write(1100 * BLOCK + 512, &[9; 512]).expect("the rest is fetched");
    let streamed = fixture.set.stream(&Unwatched).expect("the image can be read");
    assert!(streamed.is_done);
    assert_eq!((streamed.unfetched.blocks, fixture.set.absent_blocks()), (0, 0));
    assert!(read(&volume, 0) == Ok(noise(1)), "the image is older than the last write");
    let mut expected = noise((1100 % 200 + 1_u64).to_le_bytes()[0]);
    expected[512..1024].fill(9);
    assert!(read(&volume, 1100) == Ok(expected));
    assert_eq!(volume.map().unsaved_blocks(), 1);
}

#[test]
fn idle_data_comes_back_after_memory_is_lost() {
    let text = |seed: u64| -> Vec<u8> {
        let words = b"what nobody reads for a while takes less memory, and comes back. ";
        let mut random = model::Random::new(seed);
        (0..4096).map(|index| words[index % 17 + random.index(words.len() - 17)]).collect()
    };
    let mut fixture = Fixture::new();
    let volumes = [("saved", Durability::Image, 0), ("flushed", Durability::Journal, 1000)];
    for (name, durability, seed) in volumes {
        let volume = fixture.create(name, durability);
        for block in 0..300 {
            volume.write(block * BLOCK, &text(block + seed)).expect("there is room");
        }
    }
    while fixture.engine.maintain() {}
    for _ in 0..2 {
        fixture.engine.begin_idle_period();
        while fixture.engine.compress_idle() {}
    }
    assert_eq!(fixture.engine.usage().idle_page_count, 600);
    // The journal and the image have the contents, but not the dense form.
    fixture.flush_with_images(&fixture.volume("flushed"));
    fixture.save();
    assert_eq!(fixture.engine.usage().idle_page_count, 600);
    fixture.lose_memory();
    for block in 0..300 {
        for (name, _, seed) in volumes {
            let found = read(&fixture.volume(name), block);
            assert!(found == Ok(text(block + seed)), "block {block} of {name}");
        }
    }
}

#[test]
fn a_save_while_blocks_are_absent_refers_to_the_image_that_has_them() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    volume.write(0, &[noise(1), noise(2), noise(3)].concat()).expect("there is room");
    fixture.save();
    drop(volume);
    fixture.lose_memory();
    fixture.volume("one").write(0, &noise(9)).expect("there is room");
    let saved = fixture.save();
    assert_eq!((saved.pages_written, saved.pages_reused), (1, 2));
    fixture.lose_memory();
    let volume = fixture.volume("one");
    assert!(read(&volume, 0) == Ok(noise(9)));
    assert!(read(&volume, 2) == Ok(noise(3)));
}

#[test]
fn only_what_changed_is_saved_again_also_after_a_kill() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    for block in 0..600_u64 {
        volume.write(block * BLOCK, &noise((block % 250).to_le_bytes()[0])).expect("room");
    }
    fixture.save();
    volume.write(5 * BLOCK, &noise(251)).expect("there is room");
    drop(volume);
    let opened = fixture.kill();
    assert!(matches!(opened, Opened::Continued), "{opened:?}");
    let saved = fixture.save();
    assert_eq!((saved.pages_written, saved.pages_reused), (1, 599));
    assert_eq!(fixture.save().pages_written, 0);
}

#[test]
fn snapshots_come_back_and_share_what_is_equal() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    for block in 0..1000_u64 {
        volume.write(block * BLOCK, &noise((block % 250).to_le_bytes()[0])).expect("room");
    }
    let name = "first".parse().expect("a good name");
    fixture.engine.create_snapshots(&["one"], &name, 100).expect("there is room");
    volume.write(0, &noise(251)).expect("there is room");
    let name = "second".parse().expect("a good name");
    fixture.engine.create_snapshots(&["one"], &name, 200).expect("there is room");
    fixture.engine.resize_volume("one", 2 * MIB, ShrinkPolicy::DropData).expect("it shrinks");
    volume.write(BLOCK, &noise(252)).expect("there is room");
    fixture.save();
    drop(volume);
    fixture.lose_memory();
    assert!(fixture.set.stream(&Unwatched).expect("the image can be read").is_done);
    let (volume, first, second) =
        (fixture.volume("one"), fixture.volume("one@first"), fixture.volume("one@second"));
    assert_eq!(volume.geometry().size_bytes, 2 * MIB);
    assert_eq!(first.geometry().size_bytes, Fixture::VOLUME_BYTES);
    assert!(read(&first, 0) == Ok(noise(0)) && read(&second, 0) == Ok(noise(251)));
    assert!(read(&volume, 0) == Ok(noise(251)) && read(&volume, 1) == Ok(noise(252)));
    assert!(read(&first, 999) == Ok(noise(249)) && read(&second, 999) == Ok(noise(249)));
    assert_eq!(first.created_unix_seconds(), 100);
    let usage = fixture.engine.usage();
    assert!(usage.page_count <= 252 + 2, "{usage:?}");
    assert!(fixture.engine.delete_volume("one").is_err(), "it has snapshots");
    fixture.engine.delete_snapshot("one", "first").expect("it is there");
    fixture.engine.delete_snapshot("one", "second").expect("it is there");
    fixture.engine.delete_volume("one").expect("it has none any more");
}

#[test]
fn what_changed_since_a_snapshot_that_came_back_is_listed() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    volume.write(0, &[noise(1), noise(2), noise(3)].concat()).expect("there is room");
    let name = |name: &str| name.parse().expect("a good name");
    fixture.set.create_snapshots(&["one"], &name("old"), 1).expect("there is room");
    volume.write(BLOCK, &noise(4)).expect("there is room");
    fixture.save();
    drop(volume);
    fixture.lose_memory();
    assert!(fixture.set.stream(&Unwatched).expect("the image can be read").is_done);
    let volume = fixture.volume("one");
    volume.write(2 * BLOCK, &noise(5)).expect("there is room");
    fixture.set.create_snapshots(&["one"], &name("new"), 2).expect("there is room");
    volume.write(9 * BLOCK, &noise(6)).expect("there is room");
    let since = SnapshotId(fixture.volume("one@old").id());
    let changed = |device: &dyn BlockDevice| {
        let all = ByteRange::new(0, Fixture::VOLUME_BYTES);
        let runs = device.changed_extents(since, all, 100).expect("the snapshot is older");
        let changed = runs.into_iter().filter(|run| run.kind == ChangeKind::Changed);
        changed.map(|run| run.range).collect::<Vec<_>>()
    };
    let until_new = ByteRange::new(BLOCK, 2 * BLOCK);
    assert_eq!(changed(&*fixture.volume("one@new")), [until_new]);
    assert_eq!(changed(&*volume), [until_new, ByteRange::new(9 * BLOCK, BLOCK)]);
}

#[test]
fn administration_that_was_noted_survives() {
    let mut fixture = Fixture::new();
    for name in ["kept", "renamed", "grown", "deleted", "swapped-a", "swapped-b"] {
        let volume = fixture.create(name, Durability::Journal);
        volume.write(0, &noise(name.as_bytes()[0])).expect("there is room");
        volume.flush().expect("the disk works");
    }
    fixture.save();
    let engine = &fixture.engine;
    let name = |name: &str| name.parse().expect("a good name");
    engine.rename_volume("renamed", name("other")).expect("the name is free");
    engine.resize_volume("grown", 64 * MIB, ShrinkPolicy::KeepData).expect("it grows");
    engine.delete_volume("deleted").expect("it is there");
    engine.rename_volume("swapped-a", name("swapped-c")).expect("the name is free");
    engine.rename_volume("swapped-b", name("swapped-a")).expect("the name is free");
    engine.rename_volume("swapped-c", name("swapped-b")).expect("the name is free");
    fixture.create("late", Durability::Journal);
    fixture.set.note_volumes().expect("the disk works");
    let ids: Vec<_> = fixture.engine.volumes().iter().map(|it| (it.name(), it.id())).collect();
    fixture.lose_memory();
    let found: Vec<_> = fixture.engine.volumes().iter().map(|it| (it.name(), it.id())).collect();
    assert_eq!(found, ids);
    assert_eq!(fixture.volume("grown").geometry().size_bytes, 64 * MIB);
    assert!(read(&fixture.volume("other"), 0) == Ok(noise(b'r')));
    assert!(read(&fixture.volume("kept"), 0) == Ok(noise(b'k')));
}

#[test]
fn a_volume_that_leaves_the_journal_is_kept() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    volume.write(0, &noise(1)).expect("there is room");
    volume.flush().expect("the disk works");
    fixture.set.set_durability("one", Durability::Image).expect("the disk works");
    drop(volume);
    fixture.lose_memory();
    let volume = fixture.volume("one");
    assert_eq!(volume.durability(), Durability::Image);
    assert!(read(&volume, 0) == Ok(noise(1)));
}

#[test]
fn a_volume_that_joins_the_journal_waits_for_an_image() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Ram);
    volume.write(0, &[noise(1), noise(2)].concat()).expect("there is room");
    fixture.set.set_durability("one", Durability::Journal).expect("the disk works");
    fixture.flush_with_images(&volume);
    assert_eq!(fixture.set.journal().status().blocks, 0, "the image has it all");
    drop(volume);
    fixture.lose_memory();
    assert!(read(&fixture.volume("one"), 1) == Ok(noise(2)));
}

/// Returns the volumes that were not restored.
fn left_out(opened: Opened) -> Vec<String> {
    let Opened::Restored { left_out, .. } = opened else { panic!("{opened:?}") };
    left_out
}

#[test]
fn a_volume_that_waits_for_its_first_image_does_not_come_back_empty() {
    let mut fixture = Fixture::new();
    let one = fixture.create("one", Durability::Journal);
    one.write(0, &noise(1)).expect("there is room");
    one.flush().expect("the disk works");
    let image = fixture.save().id.number();
    fixture.create("joined", Durability::Ram).write(0, &noise(2)).expect("there is room");
    let clone = |fixture: &Fixture| {
        let cloned = fixture.set.clone_volume("one", "cloned".parse().expect("a good name"));
        cloned.expect("there is room")
    };
    clone(&fixture);
    let restored = [("one".to_owned(), "restored".to_owned())];
    fixture.set.restore(image, &restored).expect("it is in the image");
    fixture.set.set_durability("joined", Durability::Journal).expect("the disk works");
    drop(one);
    assert_eq!(left_out(fixture.lose_memory()), ["joined", "cloned", "restored"]);
    let found: Vec<_> = fixture.engine.volumes().iter().map(|it| it.name()).collect();
    assert_eq!(found, ["one"]);
    // Once an image has it, the journal continues from there.
    let cloned = clone(&fixture);
    fixture.save();
    cloned.write(BLOCK, &noise(3)).expect("there is room");
    cloned.flush().expect("an image has it");
    drop(cloned);
    assert_eq!(left_out(fixture.lose_memory()), Vec::<String>::new());
    let cloned = fixture.volume("cloned");
    assert!(read(&cloned, 0) == Ok(noise(1)) && read(&cloned, 1) == Ok(noise(3)));
}

#[test]
fn what_is_left_out_is_reported_also_if_a_kill_follows() {
    let mut fixture = Fixture::new();
    fixture.create("one", Durability::Journal).write(0, &noise(1)).expect("there is room");
    fixture.save();
    fixture.create("joined", Durability::Ram).write(0, &noise(2)).expect("there is room");
    fixture.set.set_durability("joined", Durability::Journal).expect("the disk works");
    let reports = fixture.lose_memory_and_kill_while_reporting();
    assert_eq!(reports, [["joined"], ["joined"]]);
    assert!(read(&fixture.volume("one"), 0) == Ok(noise(1)));
}

#[test]
fn volumes_of_class_ram_are_gone_unless_they_were_asked_for() {
    let mut fixture = Fixture::new();
    for name in ["gone", "asked"] {
        fixture.create(name, Durability::Ram).write(0, &noise(1)).expect("there is room");
    }
    fixture.save_with(SaveExtent::And(vec!["asked".to_owned()]));
    fixture.lose_memory();
    assert!(fixture.engine.volume("gone").is_err());
    assert!(read(&fixture.volume("asked"), 0) == Ok(noise(1)));
}

#[test]
fn a_restore_that_was_killed_begins_again() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    volume.write(0, &noise(1)).expect("there is room");
    volume.flush().expect("the disk works");
    drop(volume);
    fixture.begin_restore_and_kill(&[]);
    assert!(read(&fixture.volume("one"), 0) == Ok(noise(1)));
    assert_eq!(fixture.engine.volumes().len(), 1);
}

#[test]
fn a_restore_that_was_killed_with_snapshots_made_begins_again() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    volume.write(0, &noise(1)).expect("there is room");
    let name = "snap".parse().expect("a good name");
    fixture.engine.create_snapshots(&["one"], &name, 1).expect("there is room");
    volume.write(0, &noise(2)).expect("there is room");
    fixture.save();
    drop(volume);
    fixture.begin_restore_and_kill(&["snap", "other"]);
    let volume = fixture.volume("one");
    assert!(read(&volume, 0) == Ok(noise(2)));
    let snapshots = fixture.engine.snapshots_of(&volume);
    assert_eq!(snapshots.len(), 1);
    assert!(read(&snapshots[0], 0) == Ok(noise(1)));
}

#[test]
fn a_store_of_another_set_that_answers_late_is_not_saved_to() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    volume.write(0, &noise(1)).expect("there is room");
    fixture.save();
    let error = fixture.save_other_pool().expect_err("the images are another pool's");
    assert_eq!(error.kind, DurableErrorKind::OtherSet);
    // Its writer is not fenced.
    volume.write(0, &noise(2)).expect("there is room");
    drop(volume);
    fixture.save();
    fixture.lose_memory();
    assert!(read(&fixture.volume("one"), 0) == Ok(noise(2)));
}

#[test]
fn what_belongs_to_another_set_is_refused_and_left_alone() {
    let mut fixture = Fixture::new();
    fixture.create("one", Durability::Journal).flush().expect("the disk works");
    fixture.save();
    let error = fixture.open_with_other_pool().expect_err("it is another pool");
    assert_eq!(error.kind, DurableErrorKind::OtherSet);
    fixture.lose_memory();
    assert!(fixture.engine.volume("one").is_ok());
}

#[test]
fn a_volume_is_restored_under_another_name_beside_the_one_there_is() {
    let fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    volume.write(0, &noise(1)).expect("there is room");
    let image = fixture.save().id.number();
    volume.write(0, &noise(2)).expect("there is room");
    let names = [("one".to_owned(), "old".to_owned())];
    let old = fixture.set.restore(image, &names).expect("the image has it");
    assert!(read(&old[0], 0) == Ok(noise(1)) && read(&volume, 0) == Ok(noise(2)));
    let names = [("two".to_owned(), "new".to_owned())];
    let error = fixture.set.restore(image, &names).expect_err("the image has no such volume");
    assert_eq!(error.kind, DurableErrorKind::NotInImage);
    let names = [("one".to_owned(), "old".to_owned())];
    fixture.set.restore(image, &names).expect_err("the name is taken");
    assert_eq!(fixture.engine.volumes().len(), 2);
}

#[test]
fn damage_in_an_image_costs_the_blocks_that_need_it_and_no_others() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    volume.write(0, &[noise(1), noise(2)].concat()).expect("there is room");
    volume.write(2 * MIB, &noise(3)).expect("there is room");
    fixture.save();
    fixture.damage_pack(&noise(2)[100..200]);
    drop(volume);
    fixture.lose_memory();
    let volume = fixture.volume("one");
    assert_eq!(read(&volume, 1), Err(DeviceErrorKind::Corrupt));
    assert!(read(&volume, 512) == Ok(noise(3)));
    let streamed = fixture.set.stream(&Unwatched).expect("the rest can be read");
    assert!(!streamed.is_done && !streamed.chunks_left.is_empty(), "{streamed:?}");
    let damaged = &streamed.chunks_left[0].blocks;
    assert_eq!((damaged[0].volume.as_str(), damaged[0].first_block), ("one", 0));
    assert_eq!(read(&volume, 1), Err(DeviceErrorKind::Corrupt));
    volume.write(BLOCK, &noise(2)).expect("there is room");
    assert!(read(&volume, 1) == Ok(noise(2)));
}

#[test]
fn damaged_memory_is_healed_from_the_image() {
    let fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    volume.write(0, &[noise(1), noise(2)].concat()).expect("there is room");
    fixture.save();
    volume.write(BLOCK, &noise(3)).expect("there is room");
    fixture.flip_bits_in_memory(&noise(1)[100..200]);
    fixture.flip_bits_in_memory(&noise(3)[100..200]);
    let mut damaged = 0;
    loop {
        let scrubbed = fixture.engine.scrub();
        damaged += scrubbed.damaged_pages;
        if scrubbed.is_round {
            break;
        }
    }
    assert_eq!(damaged, 2);
    assert!(read(&volume, 0) == Ok(noise(1)), "the image has it");
    assert_eq!(read(&volume, 1), Err(DeviceErrorKind::Corrupt), "the image has older contents");
    let healed: Vec<_> =
        fixture.engine.take_damage_reports().iter().map(|it| (it.block, it.healed_from)).collect();
    assert_eq!(healed, [(0, Some(CopyPlace::Image)), (1, None)]);
}

#[test]
fn a_snapshot_from_before_its_volume_was_durable_comes_back() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Ram);
    volume.write(0, &noise(1)).expect("there is room");
    let name = "early".parse().expect("a good name");
    fixture.engine.create_snapshots(&["one"], &name, 1).expect("there is room");
    fixture.set.set_durability("one", Durability::Journal).expect("it is there");
    volume.write(0, &noise(2)).expect("there is room");
    drop(volume);
    fixture.save();
    fixture.lose_memory();
    let snapshots = fixture.engine.snapshots_of(&fixture.volume("one"));
    assert_eq!(snapshots.len(), 1);
    assert!(read(&snapshots[0], 0) == Ok(noise(1)));
    assert!(read(&fixture.volume("one"), 0) == Ok(noise(2)));
}

#[test]
fn a_restored_snapshot_does_not_take_the_image_of_what_was_before() {
    let fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    volume.write(0, &noise(1)).expect("there is room");
    let name = "snap".parse().expect("a good name");
    fixture.engine.create_snapshots(&["one"], &name, 1).expect("there is room");
    volume.write(0, &noise(2)).expect("there is room");
    fixture.save();
    fixture.engine.restore_snapshot("one", "snap").expect("it is there");
    fixture.save();
    let mut fixture = fixture;
    drop(volume);
    fixture.lose_memory();
    assert!(read(&fixture.volume("one"), 0) == Ok(noise(1)));
}

#[test]
fn the_gauge_tells_what_would_be_lost() {
    let fixture = Fixture::new();
    for class in Durability::ALL {
        fixture.create(class.name(), class).write(0, &noise(1)).expect("there is room");
    }
    let lost = |fixture: &Fixture| fixture.set.hold_up().losses.map(|loss| loss.lost_bytes);
    assert_eq!(lost(&fixture), [BLOCK, BLOCK, BLOCK]);
    fixture.volume("journal").flush().expect("the disk works");
    fixture.save();
    assert_eq!(lost(&fixture), [BLOCK, 0, 0]);
    fixture.volume("image").write(BLOCK, &noise(2)).expect("there is room");
    fixture.volume("journal").write(BLOCK, &noise(2)).expect("there is room");
    assert_eq!(lost(&fixture), [BLOCK, BLOCK, BLOCK]);
    assert_eq!(fixture.set.hold_up().unsaved_bytes, 2 * BLOCK);
    let _rehearsed = fixture.set.rehearse(7, &Unwatched).expect("the disk works");
    assert!(fixture.set.hold_up().save_time.is_some());
    drop(Arc::clone(&fixture.engine));
}

#[test]
fn a_name_that_a_volume_in_memory_only_has_lost_since_is_in_nobodys_way() {
    let mut fixture = Fixture::new();
    let scratch = fixture.create("one", Durability::Ram);
    scratch.write(0, &noise(1)).expect("there is room");
    drop(scratch);
    fixture.save_with(SaveExtent::All);
    fixture.engine.delete_volume("one").expect("it is there");
    let volume = fixture.create("one", Durability::Journal);
    volume.write(0, &noise(2)).expect("there is room");
    volume.flush().expect("the disk works");
    drop(volume);
    fixture.lose_memory();
    assert!(read(&fixture.volume("one"), 0) == Ok(noise(2)));
}

#[test]
fn ids_are_the_same_after_a_loss_also_those_of_snapshots() {
    let mut fixture = Fixture::new();
    let (one, two) =
        (fixture.create("one", Durability::Image), fixture.create("two", Durability::Image));
    one.write(0, &noise(1)).expect("there is room");
    two.write(0, &noise(2)).expect("there is room");
    let name = "snap".parse().expect("a good name");
    fixture.engine.create_snapshots(&["one"], &name, 1).expect("there is room");
    one.write(0, &noise(3)).expect("there is room");
    fixture.save();
    let ids = |fixture: &Fixture| {
        let (mut all, snapshots) = (fixture.engine.volumes(), fixture.engine.snapshots());
        all.extend(snapshots);
        all.iter().map(|it| (it.name(), it.id())).collect::<Vec<_>>()
    };
    let before = ids(&fixture);
    drop((one, two));
    fixture.lose_memory();
    assert_eq!(ids(&fixture), before);
    fixture.volume("two").write(BLOCK, &noise(4)).expect("there is room");
    fixture.save();
    fixture.lose_memory();
    assert!(read(&fixture.volume("two"), 0) == Ok(noise(2)));
    assert!(read(&fixture.volume("one@snap"), 0) == Ok(noise(1)));
    let new = fixture.create("three", Durability::Ram);
    assert!(before.iter().all(|(_, id)| *id != new.id()), "ids are never given twice");
}

#[test]
fn the_image_that_the_journal_goes_on_from_is_not_deleted() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    let images = [1, 2].map(|seed| {
        volume.write(0, &noise(seed)).expect("there is room");
        volume.flush().expect("the disk works");
        fixture.save().id.number()
    });
    fixture.set.set_durability("one", Durability::Image).expect("the disk works");
    fixture.set.delete_image(images[0]).expect("it is an old one");
    let error = fixture.set.delete_image(images[1]).expect_err("the journal begins there");
    assert_eq!(error.kind, DurableErrorKind::StartOfJournal);
    drop(volume);
    fixture.lose_memory();
    assert!(read(&fixture.volume("one"), 0) == Ok(noise(2)));
}

#[test]
fn what_was_discarded_before_a_volume_is_journaled_does_not_come_back() {
    for class in [Durability::Image, Durability::Journal] {
        let mut fixture = Fixture::new();
        let volume = fixture.create("one", class);
        volume.write(0, &noise(1)).expect("there is room");
        volume.flush().expect("the disk works");
        if class == Durability::Image {
            fixture.save();
        }
        fixture.set.set_durability("one", Durability::Image).expect("the disk works");
        volume.discard(ByteRange::new(0, Fixture::VOLUME_BYTES)).expect("a discard always works");
        fixture.set.set_durability("one", Durability::Journal).expect("the disk works");
        fixture.flush_with_images(&volume);
        drop(volume);
        fixture.lose_memory();
        assert!(read(&fixture.volume("one"), 0) == Ok(vec![0; 4096]), "{class:?}");
    }
}

#[test]
fn a_snapshot_of_an_image_is_restored_under_a_name_of_its_own() {
    let fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    volume.write(0, &noise(1)).expect("there is room");
    let name = "snap".parse().expect("a good name");
    fixture.engine.create_snapshots(&["one"], &name, 1).expect("there is room");
    volume.write(0, &noise(2)).expect("there is room");
    let image = fixture.save().id.number();
    let names = [("one@snap".to_owned(), "old".to_owned())];
    let old = fixture.set.restore(image, &names).expect("the image has it");
    assert!(read(&old[0], 0) == Ok(noise(1)));
    old[0].write(0, &noise(3)).expect("it is a volume");
}

/// Restores a volume from an image repeatedly, whenever no block is absent.
struct Restorer<'fixture> {
    fixture: &'fixture Fixture,
    image: u32,
    count: AtomicUsize,
}

impl Watch for Restorer<'_> {
    fn on_progress(&self, _progress: Progress) {}

    fn is_cancelled(&self) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        if self.fixture.set.absent_blocks() == 0 && count < 3 {
            let names = [("one".to_owned(), format!("two{count}"))];
            self.fixture.set.restore(self.image, &names).expect("the image has it");
            self.count.store(count + 1, Ordering::Relaxed);
        }
        false
    }
}

#[test]
fn a_volume_that_is_restored_while_the_last_blocks_are_fetched_gets_its_own() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    volume.write(0, &noise(1)).expect("there is room");
    let image = fixture.save().id.number();
    drop(volume);
    fixture.lose_memory();
    let watch = Restorer { fixture: &fixture, image, count: AtomicUsize::new(0) };
    fixture.set.stream(&watch).expect("the image can be read");
    let made = watch.count.into_inner();
    assert!(made > 0);
    fixture.set.stream(&Unwatched).expect("the image can be read");
    assert_eq!(fixture.set.absent_blocks(), 0);
    for count in 0..made {
        assert!(read(&fixture.volume(&format!("two{count}")), 0) == Ok(noise(1)), "two{count}");
    }
}

/// Delays a save until a concurrent operation ends, with a time limit.
struct HeldSave {
    is_done: AtomicBool,
    is_saving: AtomicBool,
    waited: Mutex<Duration>,
}

const DONE_WAIT: Duration = Duration::from_millis(10);
const DONE_WAIT_MAX: Duration = Duration::from_secs(60);

impl Watch for HeldSave {
    fn on_progress(&self, _progress: Progress) {}

    fn is_cancelled(&self) -> bool {
        self.is_saving.store(true, Ordering::Relaxed);
        let mut waited = self.waited.lock().expect("no thread panics");
        while !self.is_done.load(Ordering::Relaxed) && *waited < DONE_WAIT_MAX {
            std::thread::sleep(DONE_WAIT);
            *waited += DONE_WAIT;
        }
        false
    }
}

/// Creates, renames, enlarges, copies and deletes durable volumes.
fn change_volumes(fixture: &Fixture) {
    let name = |name: &str| name.parse().expect("a good name");
    for volume in ["new", "deleted"] {
        let durability = Durability::Image;
        let spec = VolumeSpec { durability, ..VolumeSpec::new(name(volume), MIB) };
        fixture.set.create_volume(spec).expect("there is room");
    }
    fixture.set.rename_volume("new", name("changed")).expect("the name is free");
    fixture.set.resize_volume("changed", 2 * MIB, ShrinkPolicy::KeepData).expect("it grows");
    fixture.set.create_snapshots(&["changed"], &name("first"), 1).expect("there is room");
    fixture.set.delete_volume("deleted").expect("it is there");
}

#[test]
fn volumes_are_restored_and_changed_while_an_image_is_saved() {
    let fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    volume.write(0, &noise(1)).expect("there is room");
    let image = fixture.save().id.number();
    volume.write(0, &noise(2)).expect("there is room");
    let watch = HeldSave {
        is_done: AtomicBool::new(false),
        is_saving: AtomicBool::new(false),
        waited: Mutex::default(),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !watch.is_saving.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let names = [("one".to_owned(), "old".to_owned())];
            fixture.set.restore(image, &names).expect("the image has it");
            change_volumes(&fixture);
            watch.is_done.store(true, Ordering::Relaxed);
        });
        fixture.save_watched(&watch);
    });
    assert!(watch.waited.into_inner().expect("no thread panics") < DONE_WAIT_MAX, "it waited");
    assert_eq!(fixture.volume("changed").geometry().size_bytes, 2 * MIB);
    assert!(read(&fixture.volume("old"), 0) == Ok(noise(1)));
    fixture.set.delete_image(image).expect_err("the image is in use");
    fixture.set.stream(&Unwatched).expect("the image can be read");
    let next = fixture.save();
    assert!(read(&fixture.volume("old"), 0) == Ok(noise(1)), "{next:?}");
}

#[test]
fn an_image_that_cannot_be_opened_for_a_while_is_fetched_from_later() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Image);
    volume.write(0, &[noise(1), noise(2)].concat()).expect("there is room");
    let source = fixture.save().id.number();
    drop(volume);
    fixture.lose_memory();
    fixture.volume("one").write(0, &noise(3)).expect("there is room");
    let newer = fixture.save().id.number();
    fixture.flip_bit_of_image(source);
    fixture.kill();
    assert_eq!(read(&fixture.volume("one"), 1), Err(DeviceErrorKind::Corrupt));
    fixture.set.stream(&Unwatched).expect_err("the image cannot be read");
    let names = [("one".to_owned(), "two".to_owned())];
    fixture.set.restore(newer, &names).expect_err("blocks of another image are absent");
    fixture.flip_bit_of_image(source);
    assert!(fixture.set.stream(&Unwatched).expect("the image can be read").is_done);
    assert!(read(&fixture.volume("one"), 1) == Ok(noise(2)));
    fixture.set.restore(newer, &names).expect("nothing else is absent");
}
