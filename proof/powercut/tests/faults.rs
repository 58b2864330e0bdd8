//! The simulated disk fails as requested, and loses writes whose sync failed.
#![forbid(unsafe_code)]

use std::io::IoSlice;

use powercut::{Cut, Disk, Effect, Fault, Gate, Loss};
use storage::{StorageAction, StorageError, StorageErrorKind};

const BLOCK: [u8; 4096] = [b'a'; 4096];

#[track_caller]
fn kind<T>(result: Result<T, StorageError>) -> StorageErrorKind {
    match result {
        Ok(_) => panic!("it should have failed"),
        Err(error) => error.kind,
    }
}

#[test]
fn the_nth_write_fails_and_others_do_not() {
    let disk = Disk::new(1 << 20);
    let file = disk.folder().create("log", 8192).expect("the disk has room");
    disk.inject(Fault::once(&[StorageAction::Write], 1, Effect::Io));
    let write = || file.write(0, &[IoSlice::new(&BLOCK)]);
    write().expect("it is the first");
    assert_eq!(kind(write()), StorageErrorKind::Io);
    write().expect("it is the third");
}

#[test]
fn every_call_can_fail() {
    let disk = Disk::new(1 << 20);
    let folder = disk.folder();
    let file = folder.create("log", 8192).expect("the disk has room");
    disk.inject(Fault::always(&[], Effect::Io));
    let io = StorageErrorKind::Io;
    assert_eq!(kind(folder.create("new", 0)), io);
    assert_eq!(kind(folder.open("log")), io);
    assert_eq!(kind(folder.folder("within")), io);
    assert_eq!(kind(folder.list()), io);
    assert_eq!(kind(folder.rename("log", "new")), io);
    assert_eq!(kind(folder.remove("log")), io);
    assert_eq!(kind(folder.sync_names()), io);
    assert_eq!(kind(folder.free_bytes()), io);
    assert_eq!(kind(file.read(0, &mut [0])), io);
    assert_eq!(kind(file.write(0, &[IoSlice::new(&BLOCK)])), io);
    assert_eq!(kind(file.write_durably(0, &[IoSlice::new(&BLOCK)])), io);
    assert_eq!(kind(file.sync()), io);
    disk.heal();
    file.sync().expect("the disk is healed");
    assert_eq!(folder.list().expect("the disk is healed").len(), 1);
}

#[test]
fn a_write_that_fails_may_have_written_a_part() {
    let disk = Disk::new(1 << 20);
    let file = disk.folder().create("log", 4096).expect("the disk has room");
    disk.inject(Fault::once(&[StorageAction::WriteDurably], 0, Effect::NoSpace));
    let written = file.write_durably(0, &[IoSlice::new(&BLOCK)]);
    assert_eq!(kind(written), StorageErrorKind::NoSpace);
    let contents = disk.contents("log");
    assert!(contents.contains(&b'a') && contents.contains(&0));
}

#[test]
fn a_full_disk_takes_nothing_more_until_something_is_removed() {
    let disk = Disk::new(12288);
    let folder = disk.folder();
    let first = folder.create("one", 8192).expect("the disk has room");
    assert_eq!(kind(folder.create("two", 8192)), StorageErrorKind::NoSpace);
    let second = folder.create("two", 4096).expect("the disk has room");
    let grow = || second.write(4096, &[IoSlice::new(&BLOCK)]);
    assert_eq!(kind(grow()), StorageErrorKind::NoSpace);
    second.write(0, &[IoSlice::new(&BLOCK)]).expect("it takes no more room");
    folder.remove("one").expect("it exists");
    assert_eq!(kind(grow()), StorageErrorKind::NoSpace, "it is still open");
    drop(first);
    grow().expect("there is room now");
    assert_eq!(folder.free_bytes().expect("the disk works"), 4096);
    disk.set_capacity(8192);
    assert_eq!(folder.free_bytes().expect("the disk works"), 0);
}

#[test]
fn a_slow_sync_returns_when_the_gate_is_opened() {
    let disk = Disk::new(1 << 20);
    let file = disk.folder().create("log", 4096).expect("the disk has room");
    let gate = Gate::new();
    disk.inject(Fault::once(&[StorageAction::Sync], 0, Effect::Hold(gate.clone())));
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| file.sync());
        gate.wait_until_reached_by(1);
        assert!(!syncing.is_finished());
        gate.open();
        syncing.join().expect("it does not panic").expect("the disk works");
    });
}

/// Returns the number of cuts, of many after all operations, that preserve the write.
fn found_after(fail: &[StorageAction], act: impl Fn(&dyn storage::StableFile)) -> usize {
    let disk = Disk::new(1 << 20);
    let file = disk.folder().create("log", 8192).expect("the disk has room");
    file.write(0, &[IoSlice::new(&BLOCK)]).expect("the disk has room");
    disk.inject(Fault::once(fail, 0, Effect::Io));
    act(&*file);
    let found = (0..100).filter(|&seed| {
        let cut = Cut { moment: disk.now(), loss: Loss::SomeWrites, seed };
        disk.after(&cut).disk.contents("log").starts_with(&BLOCK)
    });
    found.count()
}

#[test]
fn no_later_sync_keeps_what_a_failed_one_left_in_doubt() {
    let found = found_after(&[StorageAction::Sync], |file| {
        assert_eq!(kind(file.sync()), StorageErrorKind::Io);
        file.sync().expect("it is the second");
    });
    assert!((1..100).contains(&found), "{found}");
}

#[test]
fn a_failed_durable_write_leaves_earlier_writes_in_doubt() {
    let found = found_after(&[StorageAction::WriteDurably], |file| {
        let written = file.write_durably(4096, &[IoSlice::new(&BLOCK)]);
        assert_eq!(kind(written), StorageErrorKind::Io);
        file.sync().expect("the disk works");
    });
    assert!((1..100).contains(&found), "{found}");
}

#[test]
fn what_is_written_again_after_a_failed_sync_is_kept() {
    let found = found_after(&[StorageAction::Sync], |file| {
        assert_eq!(kind(file.sync()), StorageErrorKind::Io);
        file.write(0, &[IoSlice::new(&BLOCK)]).expect("the disk has room");
        file.sync().expect("it is the second");
    });
    assert_eq!(found, 100);
}

#[test]
fn a_file_whose_making_failed_may_be_found_after_a_cut() {
    let disk = Disk::new(1 << 20);
    disk.inject(Fault::once(&[StorageAction::Create], 0, Effect::Io));
    assert_eq!(kind(disk.folder().create("log", 4096)), StorageErrorKind::Io);
    assert_eq!(disk.files(), []);
    let counts = (0..100).map(|seed| {
        let cut = Cut { moment: disk.now(), loss: Loss::SomeWrites, seed };
        disk.after(&cut).disk.files().len()
    });
    let counts: Vec<_> = counts.collect();
    assert!(counts.contains(&0) && counts.contains(&1));
}
