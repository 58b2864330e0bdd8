//! Tests with disks that fail, fill up or hang: nothing is acknowledged that is not durable.

mod support;

use std::io::IoSlice;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use block_device::{BlockDevice, DeviceErrorKind};
use journal::format::{PreviousEnd, SegmentHeader};
use journal::{Clock, FailurePolicy, JournalErrorKind, JournalOptions, JournalState};
use powercut::{Cut, Disk, Effect, Fault, Gate, Loss};
use storage::StorageAction::{Create, Remove, Sync, Write, WriteDurably};
use support::{Fixture, noise, roomy, sealed, wait_until, write};

fn read_only() -> JournalOptions {
    JournalOptions { policy: FailurePolicy::ReadOnly, ..roomy() }
}

fn is_failing(fixture: &Fixture) -> bool {
    matches!(fixture.journal.status().state, JournalState::Failing { .. })
}

/// A manually advanced clock.
#[derive(Debug, Default)]
struct SetClock(Mutex<Duration>);

impl SetClock {
    fn advance(&self, time: Duration) {
        *self.0.lock().expect("no thread panics") += time;
    }
}

impl Clock for SetClock {
    fn now(&self) -> Duration {
        *self.0.lock().expect("no thread panics")
    }
}

/// Fills several segments and then the rest of the disk.
fn fill_disk(fixture: &Fixture) -> Arc<volumes::Volume> {
    let volume = fixture.create("one");
    for block in 0..150 {
        write(&volume, block, &noise(block));
        volume.flush().expect("the disk works");
    }
    let used: u64 = fixture.disk.files().iter().map(|file| file.size_bytes).sum();
    assert!(used > 2 * u64::from(roomy().segment_bytes));
    fixture.disk.set_capacity(used);
    volume
}

/// Checks that a flush waits while the disk fails in this way.
#[track_caller]
fn check_waits(effect: Effect, kind: JournalErrorKind, cause: &str) {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    write(&volume, 0, &noise(1));
    volume.flush().expect("the disk works");
    fixture.disk.inject(Fault::always(&[WriteDurably, Create], effect));
    write(&volume, 0, &noise(2));
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| volume.flush().expect("the disk recovers"));
        wait_until("the failure shows", || is_failing(&fixture));
        let JournalState::Failing { since, failure } = fixture.journal.status().state else {
            panic!("it failed a moment ago")
        };
        assert_eq!(failure.kind, kind);
        assert!(failure.cause.contains("segment") && failure.cause.contains(cause), "{failure:?}");
        assert!(failure.at >= since);
        assert!(fixture.journal.takes_writes(), "memory takes them");
        assert!(!flusher.is_finished(), "nothing is acknowledged");
        fixture.disk.heal();
    });
    assert!(!is_failing(&fixture));
    assert!(fixture.journal.status().last_failure.is_some(), "it is remembered");
    assert_eq!(fixture.recover().block(volume.id(), 0), Some(noise(2)));
}

#[test]
fn a_flush_waits_for_a_disk_that_fails() {
    check_waits(Effect::Io, JournalErrorKind::Disk, "disk I/O error");
}

#[test]
fn a_flush_waits_for_a_disk_that_is_full() {
    check_waits(Effect::NoSpace, JournalErrorKind::NoSpace, "free space");
}

#[test]
fn one_failed_write_is_repeated_in_another_segment() {
    for policy in [roomy(), read_only()] {
        let fixture = Fixture::new(policy);
        let volume = fixture.create("one");
        for block in 0..10 {
            write(&volume, block, &noise(block));
            fixture.disk.inject(Fault::once(&[WriteDurably], 0, Effect::Io));
            volume.flush().expect("the second attempt succeeds");
        }
        let (shadow, recovered) =
            support::read(&fixture.disk, journal::Position::START).expect("it is whole");
        assert!((0..10).all(|block| shadow.block(volume.id(), block) == Some(noise(block))));
        assert_eq!((recovered.transactions, recovered.damaged_blocks), (10, 0));
    }
}

/// A long encrypted transaction is written in pieces, then synced.
#[test]
fn a_long_encrypted_transaction_is_repeated_whichever_piece_fails() {
    sealed(|| {
        for (action, skipped) in [(Write, 0), (Write, 1), (Write, 2), (Sync, 0)] {
            let fixture = Fixture::new(JournalOptions { segment_bytes: 8 << 20, ..roomy() });
            let volume = fixture.create("one");
            volume.flush().expect("the disk works");
            (0..700).for_each(|block| write(&volume, block, &noise(block)));
            fixture.disk.inject(Fault::once(&[action], skipped, Effect::Io));
            volume.flush().expect("the second attempt succeeds");
            assert!(fixture.journal.status().last_failure.is_some(), "{action:?} {skipped}");
            let (shadow, recovered) =
                support::read(&fixture.disk, journal::Position::START).expect("it is whole");
            assert!((0..700).all(|block| shadow.block(volume.id(), block) == Some(noise(block))));
            assert_eq!(recovered.damaged_blocks, 0);
        }
    });
}

#[test]
fn what_a_failed_write_left_is_not_read_once_another_took_its_place() {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    write(&volume, 0, &noise(1));
    volume.flush().expect("the disk works");
    for round in 0..20 {
        write(&volume, 0, &noise(100 + round));
        write(&volume, 1 + round, &noise(round));
        fixture.disk.inject(Fault::once(&[WriteDurably], round % 3, Effect::Io));
        volume.flush().expect("a later attempt succeeds");
        assert_eq!(fixture.recover().block(volume.id(), 0), Some(noise(100 + round)));
    }
}

/// Returns the disk's state after a power loss now.
fn cut(disk: &Disk, loss: Loss) -> Disk {
    disk.after(&Cut { moment: disk.now(), loss, seed: 1 }).disk
}

/// Makes the next durable write fail, although it may have arrived. No other segment can be
/// created.
fn fail_one_write(fixture: &Fixture) {
    fixture.disk.inject(Fault::once(&[WriteDurably], 0, Effect::Io));
    fixture.disk.inject(Fault::always(&[Create, Remove], Effect::Io));
    let volume = fixture.engine.volume("one").expect("it is there");
    volume.flush().expect_err("the disk fails");
    fixture.disk.heal();
}

#[test]
fn what_a_failed_write_left_is_not_read_after_a_checkpoint() {
    let fixture = Fixture::new(read_only());
    let volume = fixture.create("one");
    write(&volume, 0, &noise(1));
    volume.flush().expect("the disk works");
    write(&volume, 0, &noise(2));
    fail_one_write(&fixture);
    write(&volume, 0, &noise(3));
    // An image saved now contains the third version.
    let position = fixture.journal.begin_checkpoint();
    let (shadow, _) =
        support::read(&cut(&fixture.disk, Loss::Nothing), position).expect("it is whole");
    assert!(shadow.block(volume.id(), 0) != Some(noise(2)));
    assert!(fixture.recover().block(volume.id(), 0) == Some(noise(1)));
}

#[test]
fn the_next_run_relies_on_nothing_that_a_failed_write_left() {
    let mut fixture = Fixture::new(read_only());
    let volume = fixture.create("one");
    write(&volume, 0, &noise(1));
    volume.flush().expect("the disk works");
    let position = fixture.journal.begin_checkpoint();
    fixture.journal.cancel_checkpoint(position);
    fixture.journal.maintain().expect("the disk works");
    write(&volume, 0, &noise(2));
    // The write of the second segment's header fails, although it is readable.
    fail_one_write(&fixture);
    drop(volume);
    fixture.restart(read_only());
    let volume = fixture.engine.volume("one").expect("it is there");
    volume.flush().expect("the disk works");
    let after = cut(&fixture.disk, Loss::Everything);
    let (shadow, _) = support::read(&after, journal::Position::START).expect("it is whole");
    assert!(shadow.block(volume.id(), 0) == Some(noise(2)));
}

#[test]
fn a_removed_segment_that_comes_back_hides_nothing() {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    write(&volume, 0, &noise(1));
    volume.flush().expect("the disk works");
    let first = fixture.disk.files()[0].clone();
    let position = fixture.journal.begin_checkpoint();
    fixture.journal.cancel_checkpoint(position);
    write(&volume, 0, &noise(2));
    volume.flush().expect("the disk works");

    // Left by an earlier run that tried to continue after the first transaction.
    let header = SegmentHeader::decode(&fixture.disk.contents(&first.name)).expect("it is whole");
    let previous = Some(PreviousEnd { number: header.number, end: 4096 + 8192 });
    let stale = SegmentHeader { epoch: 2, number: 9, first_sequence: 2, previous, ..header };
    let file = fixture.disk.folder().create("journal-00000009", first.size_bytes);
    let bytes = stale.encode();
    file.and_then(|file| file.write_durably(0, &[IoSlice::new(&bytes)])).expect("the disk works");

    assert!(fixture.recover().block(volume.id(), 0) == Some(noise(2)));
    let later = Fixture::on(fixture.disk.clone(), journal::Position::START, roomy());
    later.journal.commit_table().expect("the disk works");
    let (_, recovered) =
        support::read(&fixture.disk, journal::Position::START).expect("it is whole");
    assert_eq!(recovered.transactions, 3, "what is written now continues what was there");
}

#[test]
fn a_flush_that_may_not_wait_fails_and_the_journal_resumes_when_the_disk_does() {
    let fixture = Fixture::new(read_only());
    let volume = fixture.create("one");
    write(&volume, 0, &noise(1));
    fixture.disk.inject(Fault::always(&[WriteDurably], Effect::Io));
    let error = volume.flush().expect_err("the disk fails");
    assert_eq!(error.kind, DeviceErrorKind::NotDurable);
    assert!(!fixture.journal.takes_writes());
    fixture.journal.maintain().expect_err("the disk fails still");
    assert!(!fixture.journal.takes_writes());
    fixture.disk.heal();
    fixture.journal.maintain().expect("the disk works");
    assert!(fixture.journal.takes_writes() && !is_failing(&fixture));
    volume.flush().expect("the disk works");
    assert_eq!(fixture.recover().block(volume.id(), 0), Some(noise(1)), "it was still dirty");
}

#[test]
fn a_flush_meets_the_failure_that_a_write_back_met() {
    let fixture = Fixture::new(read_only());
    let volume = fixture.create("one");
    write(&volume, 0, &noise(1));
    fixture.disk.inject(Fault::always(&[WriteDurably], Effect::Io));
    volume.write_back();
    assert!(is_failing(&fixture));
    assert_eq!(fixture.journal.status().unjournaled_blocks, 1);
    let error = volume.flush().expect_err("the disk fails");
    assert_eq!(error.kind, DeviceErrorKind::NotDurable);
    fixture.disk.heal();
    volume.write_back();
    assert_eq!(
        fixture.journal.status().unjournaled_blocks,
        1,
        "it is left to flushes while it fails"
    );
    volume.flush().expect("the disk works");
    assert_eq!(fixture.recover().block(volume.id(), 0), Some(noise(1)));
}

#[test]
fn a_failing_disk_does_not_fill_up_with_attempts() {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    write(&volume, 0, &noise(1));
    fixture.disk.inject(Fault::always(&[WriteDurably, Remove], Effect::Io));
    std::thread::scope(|scope| {
        scope.spawn(|| volume.flush().expect("the disk recovers"));
        let mut failures = std::collections::BTreeSet::new();
        wait_until("it is tried many times", || {
            let failure = fixture.journal.status().last_failure;
            failures.extend(failure.map(|it| it.at));
            failures.len() > 20
        });
        let files = fixture.disk.files();
        assert!(files.len() <= 2, "{files:?}");
        fixture.disk.heal();
    });
}

#[test]
fn a_write_that_hangs_is_not_acknowledged_and_shows() {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    write(&volume, 0, &noise(1));
    let gate = Gate::new();
    fixture.disk.inject(Fault::once(&[WriteDurably], 1, Effect::Hold(gate.clone())));
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| volume.flush().expect("it takes its time"));
        gate.wait_until_reached_by(1);
        assert!(fixture.journal.status().writing_for.is_some());
        assert!(!flusher.is_finished());
        gate.open();
    });
    assert_eq!(fixture.journal.status().writing_for, None);
    assert_eq!(fixture.recover().block(volume.id(), 0), Some(noise(1)));
}

#[test]
fn a_journal_that_is_stopped_lets_go_of_flushes_that_wait() {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    write(&volume, 0, &noise(1));
    fixture.disk.inject(Fault::always(&[WriteDurably, Create], Effect::Io));
    std::thread::scope(|scope| {
        let flusher =
            scope.spawn(|| fixture.journal.flush(volume.map()).expect_err("it was stopped"));
        wait_until("the failure shows", || is_failing(&fixture));
        fixture.journal.stop();
        let error = flusher.join().expect("no panic");
        assert_eq!(error.0.kind, JournalErrorKind::Stopped);
    });
    let error = fixture.journal.flush(volume.map()).expect_err("it stays stopped");
    assert_eq!(error.0.kind, JournalErrorKind::Stopped);
    assert!(volume.map().unjournaled_blocks() > 0);
}

#[test]
fn a_pool_that_is_closed_is_not_journaled() {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    let support::Parts { journal, .. } = fixture.close_engine();
    let error = journal.flush(volume.map()).expect_err("the engine is gone");
    assert_eq!(error.0.kind, JournalErrorKind::Stopped);
}

#[test]
fn a_full_disk_asks_for_a_checkpoint_that_makes_room_before_a_flush_waits() {
    let fixture = Fixture::new(roomy());
    let volume = fill_disk(&fixture);
    assert!(!fixture.journal.needs_checkpoint(), "it is not known yet");
    let error = fixture.journal.maintain().expect_err("the next file does not fit");
    assert_eq!(error.kind, JournalErrorKind::NoSpace);
    assert!(!is_failing(&fixture), "there is room in the last file");
    assert!(!fixture.journal.wants_maintenance(), "nothing is tried all the time");
    assert!(fixture.journal.needs_checkpoint() && !fixture.journal.is_out_of_room());
    let position = fixture.journal.begin_checkpoint();
    fixture.journal.end_checkpoint(position).expect("the disk works");
    assert!(!fixture.journal.needs_checkpoint());
    fixture.journal.maintain().expect("there is room again");
    for block in 0..100 {
        write(&volume, block, &noise(1000 + block));
        volume.flush().expect("there is room again");
    }
}

#[test]
fn flushes_that_wait_for_a_full_disk_go_on_when_a_checkpoint_has_made_room() {
    let fixture = Fixture::new(roomy());
    let volume = fill_disk(&fixture);
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| {
            for block in 0..100 {
                write(&volume, block, &noise(1000 + block));
                volume.flush().expect("it waits and does not fail");
            }
        });
        wait_until("a checkpoint is asked for", || fixture.journal.needs_checkpoint());
        wait_until("a flush waits", || is_failing(&fixture));
        let position = fixture.journal.begin_checkpoint();
        assert!(!flusher.is_finished(), "there is no room");
        fixture.journal.end_checkpoint(position).expect("the disk works");
        while !flusher.is_finished() {
            if fixture.journal.needs_checkpoint() {
                let position = fixture.journal.begin_checkpoint();
                fixture.journal.end_checkpoint(position).expect("the disk works");
            }
            std::thread::yield_now();
        }
    });
    assert!(!is_failing(&fixture));
}

#[test]
fn checkpoints_of_no_avail_are_asked_for_ever_more_rarely() {
    let clock = Arc::new(SetClock::default());
    let fixture = Fixture::with_clock(roomy(), Arc::clone(&clock) as Arc<dyn Clock>);
    fill_disk(&fixture);
    fixture.journal.maintain().expect_err("the next file does not fit");
    let mut asked = 0;
    for _ in 0..3600 {
        if fixture.journal.needs_checkpoint() {
            asked += 1;
            // The image does not fit either.
            let position = fixture.journal.begin_checkpoint();
            fixture.journal.cancel_checkpoint(position);
        }
        assert!(!fixture.journal.needs_checkpoint(), "one is enough for now");
        clock.advance(Duration::from_secs(1));
    }
    assert!((5..=20).contains(&asked), "{asked} in an hour");
}

#[test]
fn a_disk_that_others_have_filled_asks_for_no_checkpoint() {
    let fixture = Fixture::new(roomy());
    fixture.create("one").flush().expect("the disk works");
    let used: u64 = fixture.disk.files().iter().map(|file| file.size_bytes).sum();
    fixture.disk.set_capacity(used);
    fixture.journal.maintain().expect_err("the next file does not fit");
    assert!(!fixture.journal.needs_checkpoint(), "it would make no room");
    assert!(fixture.journal.is_out_of_room());
    fixture.disk.set_capacity(1 << 30);
    fixture.journal.maintain().expect("there is room now");
    assert!(!fixture.journal.is_out_of_room());
}
