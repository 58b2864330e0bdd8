//! Tests that checkpoints shorten the journal and never remove required parts.

mod support;

use std::time::Duration;

use block_device::BlockDevice;
use journal::{FailurePolicy, JournalErrorKind, JournalOptions, Position};
use powercut::{Effect, Fault};
use storage::StorageAction::{Create, WriteDurably};
use support::{Fixture, noise, read, roomy, small, wait_until, write};
use volumes::Durability;

/// Flushes that fill several segments.
fn fill(fixture: &Fixture, volume: &volumes::Volume, seed: u64) {
    for block in 0..100 {
        write(volume, block, &noise(seed + block));
        volume.flush().expect("the disk works");
    }
    assert!(fixture.journal.status().length_bytes > 3 * u64::from(roomy().segment_bytes));
}

#[test]
fn a_checkpoint_drops_what_lies_before_it() {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    fill(&fixture, &volume, 0);
    let position = fixture.journal.begin_checkpoint();
    write(&volume, 7, &noise(7000));
    volume.flush().expect("the disk works");
    let before = fixture.disk.files().len();
    fixture.journal.end_checkpoint(position).expect("the disk works");
    assert!(fixture.disk.files().len() + 3 <= before);

    let (shadow, recovered) = read(&fixture.disk, position).expect("the rest is whole");
    assert_eq!(recovered.transactions, 1);
    assert_eq!(shadow.block(volume.id(), 7), Some(noise(7000)));
    assert_eq!(shadow.names(), ["one"], "the table comes with what is left");
    let error = read(&fixture.disk, Position::START).expect_err("the beginning is gone");
    assert_eq!(error.kind, JournalErrorKind::Missing);
}

#[test]
fn nothing_after_a_checkpoint_refers_to_pages_before_it() {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    fill(&fixture, &volume, 0);
    let position = fixture.journal.begin_checkpoint();
    // Pages already in the journal, in other blocks.
    (0..100).for_each(|block| write(&volume, 1000 + block, &noise(block)));
    volume.flush().expect("the disk works");
    fixture.journal.end_checkpoint(position).expect("the disk works");
    let (shadow, recovered) = read(&fixture.disk, position).expect("the rest is whole");
    assert_eq!(recovered.damaged_blocks, 0);
    for block in 0..100 {
        assert_eq!(shadow.block(volume.id(), 1000 + block), Some(noise(block)));
    }
}

#[test]
fn until_a_checkpoint_has_ended_both_ways_of_reading_work() {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    fill(&fixture, &volume, 0);
    let position = fixture.journal.begin_checkpoint();
    fill(&fixture, &volume, 500);
    let whole = fixture.recover();
    let (rest, _) = read(&fixture.disk, position).expect("it is whole");
    assert!((0..100).all(|block| whole.block(volume.id(), block) == Some(noise(500 + block))));
    assert_eq!(whole, rest);
    fixture.journal.cancel_checkpoint(position);
    assert_eq!(fixture.recover(), whole, "a cancelled checkpoint drops nothing");
}

#[test]
fn a_checkpoint_is_asked_for_at_half_of_the_length() {
    let fixture = Fixture::new(small());
    let volume = fixture.create("one");
    let mut block = 0;
    wait_until("the journal grows", || {
        write(&volume, block, &noise(block));
        volume.flush().expect("the disk works");
        block += 1;
        fixture.journal.needs_checkpoint()
    });
    let status = fixture.journal.status();
    assert!(status.length_bytes * 2 >= status.length_bytes_max, "{status:?}");
    let position = fixture.journal.begin_checkpoint();
    assert!(!fixture.journal.needs_checkpoint(), "one is enough");
    write(&volume, 0, &noise(1));
    volume.flush().expect("the disk works");
    fixture.journal.end_checkpoint(position).expect("the disk works");
    assert!(!fixture.journal.needs_checkpoint());
}

#[test]
fn a_full_journal_holds_flushes_until_a_checkpoint_ends() {
    let fixture = Fixture::new(small());
    let volume = fixture.create("one");
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| {
            for block in 0..400 {
                write(&volume, block, &noise(block));
                volume.flush().expect("it waits and does not fail");
            }
        });
        while !flusher.is_finished() {
            wait_until("the flusher is done, or a checkpoint is needed", || {
                flusher.is_finished() || fixture.journal.needs_checkpoint()
            });
            let position = fixture.journal.begin_checkpoint();
            let held = || {
                let status = fixture.journal.status();
                status.last_failure.is_some_and(|it| it.kind == JournalErrorKind::Limit)
            };
            wait_until("the journal is full", || flusher.is_finished() || held());
            let bytes: u64 = fixture.disk.files().iter().map(|file| file.size_bytes).sum();
            assert!(bytes <= small().length_bytes_max, "{bytes}");
            fixture.journal.end_checkpoint(position).expect("the disk works");
        }
    });
    assert_eq!(fixture.journal.status().blocks, 400);
}

#[test]
fn a_full_journal_that_may_not_wait_fails_flushes_and_keeps_their_blocks() {
    let options = JournalOptions { policy: FailurePolicy::ReadOnly, ..small() };
    let fixture = Fixture::new(options);
    let volume = fixture.create("one");
    let mut failed = None;
    for block in 0..400 {
        write(&volume, block, &noise(block));
        failed = fixture.journal.flush(volume.map()).err();
        if failed.is_some() {
            break;
        }
    }
    let error = failed.expect("400 blocks do not fit");
    assert_eq!(error.0.kind, JournalErrorKind::Limit);
    assert!(!fixture.journal.takes_writes());
    let unjournaled = volume.map().unjournaled_blocks();
    assert!(unjournaled > 0);

    let position = fixture.journal.begin_checkpoint();
    fixture.journal.end_checkpoint(position).expect("the disk works");
    fixture.journal.maintain().expect("there is room again");
    assert!(fixture.journal.takes_writes());
    volume.flush().expect("there is room again");
    let (shadow, _) = read(&fixture.disk, position).expect("the rest is whole");
    assert_eq!(shadow.block_count() as u64, unjournaled);
}

#[test]
fn an_image_that_knows_more_than_the_journal_is_continued() {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    fill(&fixture, &volume, 0);
    // The journal's last segments were lost, but a saved image covers them.
    let covered = Position(fixture.journal.status().position.0 + 50);
    let later = Fixture::on(fixture.disk.clone(), covered, roomy());
    assert_eq!(later.journal.status().position, covered);
    later.journal.commit_table().expect("the disk works");
    let (_, recovered) = read(&fixture.disk, covered).expect("what the image lacks is there");
    assert_eq!((recovered.transactions, recovered.next_sequence), (1, covered.0 + 1));
    let error = read(&fixture.disk, Position::START).expect_err("there is a gap");
    assert_eq!(error.kind, JournalErrorKind::Missing);
}

/// Checks that a flush waiting for an image returns once `act` removes the reason.
#[track_caller]
fn check_let_go(act: impl FnOnce(&Fixture)) {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create_as("one", Durability::Ram);
    write(&volume, 0, &noise(1));
    fixture.engine.set_durability("one", Durability::Journal).expect("it is there");
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| fixture.journal.flush(volume.map()));
        wait_until("a checkpoint is asked for", || fixture.journal.needs_checkpoint());
        act(&fixture);
        let flushed = flusher.join().expect("it does not panic");
        flushed.expect("there is nothing to be made durable");
    });
    assert!(!fixture.journal.needs_checkpoint());
}

#[test]
fn a_flush_does_not_wait_for_the_image_of_a_volume_that_is_not_journaled_any_more() {
    check_let_go(|fixture| {
        fixture.engine.set_durability("one", Durability::Ram).expect("it is there");
    });
    check_let_go(|fixture| fixture.engine.delete_volume("one").expect("it is there"));
}

#[test]
fn a_volume_that_becomes_journaled_is_flushed_once_an_image_has_it() {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create_as("one", Durability::Ram);
    write(&volume, 0, &noise(1));
    fixture.engine.set_durability("one", Durability::Journal).expect("it is there");
    assert!(!fixture.journal.needs_checkpoint());
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| volume.flush().expect("an image has it in the end"));
        wait_until("a checkpoint is asked for", || fixture.journal.needs_checkpoint());
        let position = fixture.journal.begin_checkpoint();
        assert!(!flusher.is_finished(), "nothing is acknowledged before");
        volume.map().set_anchored(true);
        fixture.journal.end_checkpoint(position).expect("the disk works");
    });
    assert!(!fixture.journal.needs_checkpoint());
}

#[test]
fn a_flush_in_a_round_that_waits_for_the_disk_waits_for_an_image_that_is_wanted_since() {
    // The disk is retried only when a checkpoint ends.
    let fixture =
        Fixture::new(JournalOptions { retry_after: Duration::from_secs(3600), ..roomy() });
    let volume = fixture.create("one");
    write(&volume, 0, &noise(1));
    fixture.disk.inject(Fault::always(&[WriteDurably, Create], Effect::Io));
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| volume.flush().expect("an image has it in the end"));
        wait_until("the disk fails", || fixture.journal.failure().is_some());
        // As after the volume is restored from a snapshot.
        volume.map().set_anchored(false);
        fixture.disk.heal();
        let earlier = fixture.journal.begin_checkpoint();
        fixture.journal.end_checkpoint(earlier).expect("the disk works");
        wait_until("a checkpoint is asked for", || fixture.journal.needs_checkpoint());
        assert!(!flusher.is_finished(), "nothing is acknowledged before");
        let position = fixture.journal.begin_checkpoint();
        volume.map().set_anchored(true);
        fixture.journal.end_checkpoint(position).expect("the disk works");
        flusher.join().expect("no panic");
        let (shadow, _) = read(&fixture.disk, position).expect("the journal is whole");
        assert_eq!(shadow.block(volume.id(), 0), Some(noise(1)), "not before the position");
    });
}

#[test]
fn a_flush_that_may_not_wait_for_an_image_fails() {
    let options = JournalOptions { policy: FailurePolicy::ReadOnly, ..roomy() };
    let fixture = Fixture::new(options);
    let volume = fixture.create_as("one", Durability::Ram);
    write(&volume, 0, &noise(1));
    fixture.engine.set_durability("one", Durability::Journal).expect("it is there");
    let error = fixture.journal.flush(volume.map()).expect_err("no image has it");
    assert_eq!(error.0.kind, JournalErrorKind::Unanchored);
}

#[test]
fn tending_makes_the_next_segment_ready() {
    let fixture = Fixture::new(small());
    assert!(fixture.journal.wants_maintenance());
    fixture.journal.maintain().expect("the disk works");
    assert!(!fixture.journal.wants_maintenance());
    assert_eq!(fixture.disk.files().len(), 1);
    fixture.journal.commit_table().expect("the disk works");
    assert_eq!(fixture.disk.files().len(), 1, "the segment that was ready is used");
    assert!(fixture.journal.wants_maintenance());
}
