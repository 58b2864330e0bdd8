//! Tests that checkpoints shorten the journal and never remove required parts.

mod support;

use std::time::Duration;

use block_device::BlockDevice;
use journal::{FailurePolicy, JournalErrorKind, JournalOptions, Position};
use powercut::{Effect, Fault};
use storage::StorageAction::{Create, WriteDurably};
use support::{Bed, noise, read, roomy, small, wait_until, write};
use volumes::Durability;

/// Flushes that fill several segments.
fn fill(bed: &Bed, volume: &volumes::Volume, seed: u64) {
    for block in 0..100 {
        write(volume, block, &noise(seed + block));
        volume.flush().expect("the disk works");
    }
    assert!(bed.journal.status().length_bytes > 3 * u64::from(roomy().segment_bytes));
}

#[test]
fn a_checkpoint_drops_what_lies_before_it() {
    let bed = Bed::new(roomy());
    let volume = bed.create("one");
    fill(&bed, &volume, 0);
    let position = bed.journal.begin_checkpoint();
    write(&volume, 7, &noise(7000));
    volume.flush().expect("the disk works");
    let before = bed.disk.files().len();
    bed.journal.end_checkpoint(position).expect("the disk works");
    assert!(bed.disk.files().len() + 3 <= before);

    let (shadow, recovered) = read(&bed.disk, position).expect("the rest is whole");
    assert_eq!(recovered.transactions, 1);
    assert_eq!(shadow.block(volume.id(), 7), Some(noise(7000)));
    assert_eq!(shadow.names(), ["one"], "the table comes with what is left");
    let error = read(&bed.disk, Position::START).expect_err("the beginning is gone");
    assert_eq!(error.kind, JournalErrorKind::Missing);
}

#[test]
fn nothing_after_a_checkpoint_refers_to_pages_before_it() {
    let bed = Bed::new(roomy());
    let volume = bed.create("one");
    fill(&bed, &volume, 0);
    let position = bed.journal.begin_checkpoint();
    // Pages already in the journal, in other blocks.
    (0..100).for_each(|block| write(&volume, 1000 + block, &noise(block)));
    volume.flush().expect("the disk works");
    bed.journal.end_checkpoint(position).expect("the disk works");
    let (shadow, recovered) = read(&bed.disk, position).expect("the rest is whole");
    assert_eq!(recovered.damaged_blocks, 0);
    for block in 0..100 {
        assert_eq!(shadow.block(volume.id(), 1000 + block), Some(noise(block)));
    }
}

#[test]
fn until_a_checkpoint_has_ended_both_ways_of_reading_work() {
    let bed = Bed::new(roomy());
    let volume = bed.create("one");
    fill(&bed, &volume, 0);
    let position = bed.journal.begin_checkpoint();
    fill(&bed, &volume, 500);
    let whole = bed.recover();
    let (rest, _) = read(&bed.disk, position).expect("it is whole");
    assert!((0..100).all(|block| whole.block(volume.id(), block) == Some(noise(500 + block))));
    assert_eq!(whole, rest);
    bed.journal.cancel_checkpoint(position);
    assert_eq!(bed.recover(), whole, "a cancelled checkpoint drops nothing");
}

#[test]
fn a_checkpoint_is_asked_for_at_half_of_the_length() {
    let bed = Bed::new(small());
    let volume = bed.create("one");
    let mut block = 0;
    wait_until("the journal grows", || {
        write(&volume, block, &noise(block));
        volume.flush().expect("the disk works");
        block += 1;
        bed.journal.needs_checkpoint()
    });
    let status = bed.journal.status();
    assert!(status.length_bytes * 2 >= status.length_bytes_max, "{status:?}");
    let position = bed.journal.begin_checkpoint();
    assert!(!bed.journal.needs_checkpoint(), "one is enough");
    write(&volume, 0, &noise(1));
    volume.flush().expect("the disk works");
    bed.journal.end_checkpoint(position).expect("the disk works");
    assert!(!bed.journal.needs_checkpoint());
}

#[test]
fn a_full_journal_holds_flushes_until_a_checkpoint_ends() {
    let bed = Bed::new(small());
    let volume = bed.create("one");
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| {
            for block in 0..400 {
                write(&volume, block, &noise(block));
                volume.flush().expect("it waits and does not fail");
            }
        });
        while !flusher.is_finished() {
            wait_until("the flusher is done, or a checkpoint is needed", || {
                flusher.is_finished() || bed.journal.needs_checkpoint()
            });
            let position = bed.journal.begin_checkpoint();
            let held = || {
                let status = bed.journal.status();
                status.last_failure.is_some_and(|it| it.kind == JournalErrorKind::Limit)
            };
            wait_until("the journal is full", || flusher.is_finished() || held());
            let bytes: u64 = bed.disk.files().iter().map(|file| file.size_bytes).sum();
            assert!(bytes <= small().length_bytes_max, "{bytes}");
            bed.journal.end_checkpoint(position).expect("the disk works");
        }
    });
    assert_eq!(bed.journal.status().blocks, 400);
}

#[test]
fn a_full_journal_that_may_not_wait_fails_flushes_and_keeps_their_blocks() {
    let options = JournalOptions { policy: FailurePolicy::ReadOnly, ..small() };
    let bed = Bed::new(options);
    let volume = bed.create("one");
    let mut failed = None;
    for block in 0..400 {
        write(&volume, block, &noise(block));
        failed = bed.journal.flush(volume.map()).err();
        if failed.is_some() {
            break;
        }
    }
    let error = failed.expect("400 blocks do not fit");
    assert_eq!(error.0.kind, JournalErrorKind::Limit);
    assert!(!bed.journal.takes_writes());
    let unjournaled = volume.map().unjournaled_blocks();
    assert!(unjournaled > 0);

    let position = bed.journal.begin_checkpoint();
    bed.journal.end_checkpoint(position).expect("the disk works");
    bed.journal.maintain().expect("there is room again");
    assert!(bed.journal.takes_writes());
    volume.flush().expect("there is room again");
    let (shadow, _) = read(&bed.disk, position).expect("the rest is whole");
    assert_eq!(shadow.block_count() as u64, unjournaled);
}

#[test]
fn an_image_that_knows_more_than_the_journal_is_continued() {
    let bed = Bed::new(roomy());
    let volume = bed.create("one");
    fill(&bed, &volume, 0);
    // The journal's last segments were lost, but a saved image covers them.
    let covered = Position(bed.journal.status().position.0 + 50);
    let later = Bed::on(bed.disk.clone(), covered, roomy());
    assert_eq!(later.journal.status().position, covered);
    later.journal.commit_table().expect("the disk works");
    let (_, recovered) = read(&bed.disk, covered).expect("what the image lacks is there");
    assert_eq!((recovered.transactions, recovered.next_sequence), (1, covered.0 + 1));
    let error = read(&bed.disk, Position::START).expect_err("there is a gap");
    assert_eq!(error.kind, JournalErrorKind::Missing);
}

/// Checks that a flush waiting for an image returns once `act` removes the reason.
#[track_caller]
fn check_let_go(act: impl FnOnce(&Bed)) {
    let bed = Bed::new(roomy());
    let volume = bed.create_as("one", Durability::Ram);
    write(&volume, 0, &noise(1));
    bed.engine.set_durability("one", Durability::Journal).expect("it is there");
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| bed.journal.flush(volume.map()));
        wait_until("a checkpoint is asked for", || bed.journal.needs_checkpoint());
        act(&bed);
        let flushed = flusher.join().expect("it does not panic");
        flushed.expect("there is nothing to be made durable");
    });
    assert!(!bed.journal.needs_checkpoint());
}

#[test]
fn a_flush_does_not_wait_for_the_image_of_a_volume_that_is_not_journaled_any_more() {
    check_let_go(|bed| {
        bed.engine.set_durability("one", Durability::Ram).expect("it is there");
    });
    check_let_go(|bed| bed.engine.delete_volume("one").expect("it is there"));
}

#[test]
fn a_volume_that_becomes_journaled_is_flushed_once_an_image_has_it() {
    let bed = Bed::new(roomy());
    let volume = bed.create_as("one", Durability::Ram);
    write(&volume, 0, &noise(1));
    bed.engine.set_durability("one", Durability::Journal).expect("it is there");
    assert!(!bed.journal.needs_checkpoint());
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| volume.flush().expect("an image has it in the end"));
        wait_until("a checkpoint is asked for", || bed.journal.needs_checkpoint());
        let position = bed.journal.begin_checkpoint();
        assert!(!flusher.is_finished(), "nothing is acknowledged before");
        volume.map().set_anchored(true);
        bed.journal.end_checkpoint(position).expect("the disk works");
    });
    assert!(!bed.journal.needs_checkpoint());
}

#[test]
fn a_flush_in_a_round_that_waits_for_the_disk_waits_for_an_image_that_is_wanted_since() {
    // The disk is retried only when a checkpoint ends.
    let bed = Bed::new(JournalOptions { retry_after: Duration::from_secs(3600), ..roomy() });
    let volume = bed.create("one");
    write(&volume, 0, &noise(1));
    bed.disk.inject(Fault::always(&[WriteDurably, Create], Effect::Io));
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| volume.flush().expect("an image has it in the end"));
        wait_until("the disk fails", || bed.journal.failure().is_some());
        // As after the volume is restored from a snapshot.
        volume.map().set_anchored(false);
        bed.disk.heal();
        let earlier = bed.journal.begin_checkpoint();
        bed.journal.end_checkpoint(earlier).expect("the disk works");
        wait_until("a checkpoint is asked for", || bed.journal.needs_checkpoint());
        assert!(!flusher.is_finished(), "nothing is acknowledged before");
        let position = bed.journal.begin_checkpoint();
        volume.map().set_anchored(true);
        bed.journal.end_checkpoint(position).expect("the disk works");
        flusher.join().expect("no panic");
        let (shadow, _) = read(&bed.disk, position).expect("the journal is whole");
        assert_eq!(shadow.block(volume.id(), 0), Some(noise(1)), "not before the position");
    });
}

#[test]
fn a_flush_that_may_not_wait_for_an_image_fails() {
    let options = JournalOptions { policy: FailurePolicy::ReadOnly, ..roomy() };
    let bed = Bed::new(options);
    let volume = bed.create_as("one", Durability::Ram);
    write(&volume, 0, &noise(1));
    bed.engine.set_durability("one", Durability::Journal).expect("it is there");
    let error = bed.journal.flush(volume.map()).expect_err("no image has it");
    assert_eq!(error.0.kind, JournalErrorKind::Unanchored);
}

#[test]
fn tending_makes_the_next_segment_ready() {
    let bed = Bed::new(small());
    assert!(bed.journal.wants_maintenance());
    bed.journal.maintain().expect("the disk works");
    assert!(!bed.journal.wants_maintenance());
    assert_eq!(bed.disk.files().len(), 1);
    bed.journal.commit_table().expect("the disk works");
    assert_eq!(bed.disk.files().len(), 1, "the segment that was ready is used");
    assert!(bed.journal.wants_maintenance());
}
