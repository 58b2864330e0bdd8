//! The simulated disk produces every kind of state in its fault model, and no other.
#![forbid(unsafe_code)]

use std::io::IoSlice;
use std::sync::Arc;

use powercut::{Aftermath, Cut, Disk, Loss, Moment};
use storage::{BLOCK_BYTES, Folder, StableFile};

const CAPACITY_BYTES: u64 = 1 << 20;
const SEEDS: u64 = 2000;

fn block(letter: u8) -> Vec<u8> {
    vec![letter; BLOCK_BYTES]
}

fn write(file: &Arc<dyn StableFile>, at: u64, letter: u8) {
    file.write(at * 4096, &[IoSlice::new(&block(letter))]).expect("the disk has room");
}

fn write_durably(file: &Arc<dyn StableFile>, at: u64, letter: u8) {
    file.write_durably(at * 4096, &[IoSlice::new(&block(letter))]).expect("the disk has room");
}

fn cut(disk: &Disk, moment: Moment, loss: Loss, seed: u64) -> Aftermath {
    disk.after(&Cut { moment, loss, seed })
}

/// Returns the first byte of each sector of a file, `.` for zero. Runs of 8 equal ones are one
/// letter.
fn letters(disk: &Disk, path: &str) -> String {
    let contents = disk.contents(path);
    let sectors: Vec<char> = contents
        .chunks(512)
        .map(|sector| {
            assert!(sector.iter().all(|&byte| byte == sector[0]), "a sector is whole");
            if sector[0] == 0 { '.' } else { char::from(sector[0]) }
        })
        .collect();
    let of_block = |block: &[char]| match block.iter().all(|it| *it == block[0]) {
        true => block[0].to_string(),
        false => format!("({})", block.iter().collect::<String>()),
    };
    sectors.chunks(8).map(of_block).collect()
}

/// Returns all contents of a file after cuts at the current moment.
fn all_states(disk: &Disk, loss: Loss, path: &str) -> Vec<String> {
    let states = (0..SEEDS).map(|seed| {
        let after = cut(disk, disk.now(), loss, seed);
        let is_there = after.disk.files().iter().any(|file| file.name == path);
        if is_there { letters(&after.disk, path) } else { "missing".to_owned() }
    });
    let mut states: Vec<_> = states.collect();
    states.sort();
    states.dedup();
    states
}

fn disk_with_file(blocks: u64) -> (Disk, Arc<dyn Folder>, Arc<dyn StableFile>) {
    let disk = Disk::new(CAPACITY_BYTES);
    let folder = disk.folder();
    let file = folder.create("log", blocks * 4096).expect("the disk has room");
    (disk, folder, file)
}

#[test]
fn unsynced_writes_arrive_in_any_order_or_not() {
    let (disk, _, file) = disk_with_file(2);
    write(&file, 0, b'a');
    write(&file, 1, b'b');
    assert_eq!(all_states(&disk, Loss::SomeWrites, "log"), ["..", ".b", "a.", "ab"]);
    assert_eq!(all_states(&disk, Loss::Nothing, "log"), ["ab"]);
    assert_eq!(all_states(&disk, Loss::Everything, "log"), [".."]);
}

#[test]
fn a_later_write_is_not_replaced_by_an_earlier_one() {
    let (disk, _, file) = disk_with_file(1);
    write(&file, 0, b'a');
    write(&file, 0, b'b');
    assert_eq!(all_states(&disk, Loss::SomeWrites, "log"), [".", "a", "b"]);
}

#[test]
fn synced_writes_are_there_and_later_ones_may_be() {
    let (disk, _, file) = disk_with_file(3);
    write(&file, 0, b'a');
    file.sync().expect("the disk works");
    write_durably(&file, 1, b'b');
    write(&file, 2, b'c');
    assert_eq!(all_states(&disk, Loss::SomeWrites, "log"), ["ab.", "abc"]);
}

#[test]
fn a_durable_write_keeps_no_write_but_itself() {
    let (disk, _, file) = disk_with_file(2);
    write(&file, 0, b'a');
    write_durably(&file, 1, b'b');
    assert_eq!(all_states(&disk, Loss::SomeWrites, "log"), [".b", "ab"]);
}

#[test]
fn writes_are_torn_between_sectors() {
    let (disk, _, file) = disk_with_file(1);
    write(&file, 0, b'a');
    let states = all_states(&disk, Loss::SomeSectors, "log");
    for expected in [".", "a", "(aaaa....)", "(....aaaa)", "(a.......)", "(aaa.aaaa)"] {
        assert!(states.iter().any(|state| state == expected), "{expected} in {states:?}");
    }
}

#[test]
fn a_durable_write_under_way_may_be_torn_and_is_whole_once_it_returned() {
    let (disk, _, file) = disk_with_file(1);
    let begun = Moment(disk.now().0 + 1);
    write_durably(&file, 0, b'a');
    let torn = (0..SEEDS).filter(|&seed| cut(&disk, begun, Loss::SomeSectors, seed).torn > 0);
    assert!(torn.count() > 100);
    assert_eq!(all_states(&disk, Loss::SomeSectors, "log"), ["a"]);
}

#[test]
fn a_sync_keeps_nothing_that_was_written_while_it_ran() {
    let (disk, _, file) = disk_with_file(2);
    let gate = powercut::Gate::new();
    let held = powercut::Effect::Hold(gate.clone());
    disk.inject(powercut::Fault::once(&[storage::StorageAction::Sync], 0, held));
    write(&file, 0, b'a');
    std::thread::scope(|scope| {
        scope.spawn(|| file.sync().expect("the disk works"));
        gate.wait_until_reached_by(1);
        write(&file, 1, b'b');
        gate.open();
    });
    assert_eq!(all_states(&disk, Loss::SomeWrites, "log"), ["a.", "ab"]);
}

#[test]
fn files_grow_by_zeros_or_by_what_was_written_elsewhere() {
    let (disk, folder, file) = disk_with_file(1);
    write_durably(&file, 0, b'x');
    let grown = folder.create("pack", 0).expect("the disk has room");
    write(&grown, 0, b'a');
    write(&grown, 1, b'b');
    let states = all_states(&disk, Loss::SomeSectors, "pack");
    for expected in ["", "a", "ab", ".b", "xb"] {
        assert!(states.iter().any(|state| state == expected), "{expected:?} in {states:?}");
    }
    let honest = all_states(&disk, Loss::SomeWrites, "pack");
    assert_eq!(honest, ["", ".b", "a", "ab"]);
}

#[test]
fn recycled_room_holds_nothing_from_the_future() {
    let (disk, folder, _) = disk_with_file(1);
    let grown = folder.create("pack", 0).expect("the disk has room");
    write(&grown, 0, b'a');
    write(&grown, 1, b'b');
    let before = disk.now();
    write(&grown, 2, b'z');
    for seed in 0..SEEDS {
        let after = cut(&disk, before, Loss::SomeSectors, seed);
        assert!(!after.disk.contents("pack").contains(&b'z'), "seed {seed}");
    }
}

#[test]
fn created_files_are_there_once_they_are_made() {
    let (disk, folder, _) = disk_with_file(1);
    let begun = Moment(disk.now().0 + 1);
    folder.create("new", 8192).expect("the disk has room");
    assert_eq!(all_states(&disk, Loss::SomeSectors, "new"), [".."]);
    let counts: Vec<_> = (0..SEEDS)
        .map(|seed| cut(&disk, begun, Loss::SomeWrites, seed).disk.files().len())
        .collect();
    assert!(counts.contains(&1) && counts.contains(&2), "under way: there or not");
}

#[test]
fn names_are_old_or_new_until_they_are_synced() {
    let (disk, folder, file) = disk_with_file(1);
    write_durably(&file, 0, b'a');
    let other = folder.create("other", 4096).expect("the disk has room");
    write_durably(&other, 0, b'b');
    folder.rename("other", "log").expect("it exists");
    assert_eq!(all_states(&disk, Loss::SomeWrites, "log"), ["a", "b"]);
    folder.sync_names().expect("the disk works");
    assert_eq!(all_states(&disk, Loss::SomeWrites, "log"), ["b"]);
    folder.remove("log").expect("it exists");
    assert_eq!(all_states(&disk, Loss::SomeWrites, "log"), ["b", "missing"]);
}

#[test]
fn unsynced_changes_of_different_names_are_kept_in_any_combination() {
    let (disk, folder, _) = disk_with_file(1);
    folder.create("other", 0).expect("the disk has room");
    folder.remove("log").expect("it exists");
    folder.remove("other").expect("it exists");
    let mut found: Vec<String> = (0..SEEDS)
        .map(|seed| {
            let files = cut(&disk, disk.now(), Loss::SomeWrites, seed).disk.files();
            files.into_iter().map(|file| file.name + " ").collect()
        })
        .collect();
    found.sort();
    found.dedup();
    assert_eq!(found, ["", "log ", "log other ", "other "]);
}

#[test]
fn no_file_is_lost_under_both_its_names() {
    let (disk, folder, file) = disk_with_file(1);
    write_durably(&file, 0, b'a');
    folder.rename("log", "old").expect("it exists");
    // Makes the name durable, and therefore the renaming before it.
    folder.create("log", 4096).expect("the disk has room");
    assert_eq!(all_states(&disk, Loss::SomeSectors, "old"), ["a"]);
    assert_eq!(all_states(&disk, Loss::SomeSectors, "log"), ["."]);
}

#[test]
fn a_lie_loses_one_promise() {
    let (disk, _, file) = disk_with_file(3);
    for (at, letter) in [(0, b'a'), (1, b'b'), (2, b'c')] {
        write_durably(&file, at, letter);
    }
    let states = all_states(&disk, Loss::Lie, "log");
    for expected in ["abc", ".bc", "a.c", "ab.", "missing"] {
        assert!(states.iter().any(|state| state == expected), "{expected} in {states:?}");
    }
    assert!(!states.iter().any(|state| state.matches('.').count() > 8), "{states:?}");
}

#[test]
fn a_lie_is_made_good_by_the_next_sync() {
    let (disk, _, file) = disk_with_file(1);
    write(&file, 0, b'a');
    file.sync().expect("the disk works");
    file.sync().expect("the disk works");
    let states = all_states(&disk, Loss::Lie, "log");
    assert_eq!(states, ["a", "missing"]);
}

#[test]
fn a_cut_makes_the_same_bytes_each_time() {
    let (disk, folder, file) = disk_with_file(8);
    for at in 0..8 {
        write(&file, at, b'a' + u8::try_from(at).expect("small"));
    }
    folder.rename("log", "other").expect("it exists");
    for seed in 0..200 {
        let chosen = Cut::random(seed, &disk);
        let (one, other) = (disk.after(&chosen), disk.after(&chosen));
        assert_eq!(one.disk.files(), other.disk.files());
        for file in one.disk.files() {
            assert_eq!(one.disk.contents(&file.name), other.disk.contents(&file.name));
        }
    }
}

#[test]
fn cuts_fall_on_every_moment_with_every_loss() {
    let (disk, _, file) = disk_with_file(1);
    write_durably(&file, 0, b'a');
    let cuts: Vec<_> = (0..SEEDS).map(|seed| Cut::random(seed, &disk)).collect();
    for moment in 0..=disk.now().0 {
        for loss in Loss::HONEST {
            assert!(cuts.iter().any(|cut| cut.moment == Moment(moment) && cut.loss == loss));
        }
    }
}

#[test]
fn a_disk_can_be_cut_again_while_it_recovers() {
    let (disk, _, file) = disk_with_file(2);
    write_durably(&file, 0, b'a');
    let after = cut(&disk, disk.now(), Loss::Everything, 1).disk;
    let file = after.folder().open("log").expect("it was kept");
    write(&file, 1, b'b');
    assert_eq!(all_states(&after, Loss::SomeWrites, "log"), ["a.", "ab"]);
}

#[test]
fn folders_within_keep_their_names() {
    let disk = Disk::new(CAPACITY_BYTES);
    let packs = disk.folder().folder("packs").expect("the disk works");
    let file = packs.create("7", 4096).expect("the disk has room");
    write_durably(&file, 0, b'a');
    let after = cut(&disk, disk.now(), Loss::Everything, 1).disk;
    assert_eq!(letters(&after, "packs/7"), "a");
    let packs = after.folder().folder("packs").expect("the disk works");
    assert_eq!(packs.list().expect("the disk works").len(), 1);
}

#[test]
fn decay_flips_the_bit_that_was_asked_for() {
    let (disk, _, file) = disk_with_file(1);
    disk.flip_bit("log", 8 * 100 + 3);
    let mut found = [0; 4096];
    file.read(0, &mut found).expect("the disk works");
    assert_eq!((found[100], found.iter().filter(|&&byte| byte != 0).count()), (8, 1));
}
