//! Tests of short extracts, which share files, on simulated disks that lose power.
#![forbid(unsafe_code)]

use std::io::IoSlice;

use image::{
    ExtractName, FolderStore, ImageErrorKind, ImageStore, ObjectName, encode_extract, read_extract,
};
use powercut::{Cut, Disk, Effect, Fault, Loss, Moment};
use storage::{AlignedBuffer, StorageAction};

const WRITER: u128 = 7;
const SET: [u8; 16] = [3; 16];

/// Number of extracts that fill more than two files.
const MANY: u32 = 200;

fn store_on(disk: &Disk) -> FolderStore {
    FolderStore::new(&*disk.folder()).expect("the disk is sound")
}

/// Extracts of one to three blocks, parts of which are zeros.
fn lengths(count: u32) -> Vec<(ExtractName, usize)> {
    let mut offset = 0;
    let one = |index: u32| {
        let length = 4096 * (1 + index % 3);
        let name = ExtractName { writer: WRITER, segment: 1, offset };
        offset += length;
        (name, length as usize)
    };
    (0..count).map(one).collect()
}

fn payload(name: ExtractName, length: usize) -> AlignedBuffer {
    let mut payload = AlignedBuffer::zeroed(length);
    let used = length - 1500;
    for (place, piece) in payload[..used].chunks_exact_mut(4).enumerate() {
        let word = (name.offset ^ name.segment << 20).wrapping_mul(0x9E37_79B9);
        piece.copy_from_slice(
            &word.wrapping_add(1 + u32::try_from(place).expect("few")).to_le_bytes(),
        );
    }
    payload
}

fn put(store: &FolderStore, (name, length): (ExtractName, usize)) {
    let bytes = encode_extract(SET, name, 5, &payload(name, length));
    store.put_extract(name, &bytes).expect("the disk is sound");
}

/// Creates a store with extracts.
fn filled(count: u32) -> (Disk, FolderStore, Vec<(ExtractName, usize)>) {
    let disk = Disk::new(64 << 20);
    let store = store_on(&disk);
    let all = lengths(count);
    all.iter().for_each(|it| put(&store, *it));
    (disk, store, all)
}

fn names_of(extracts: &[(ExtractName, usize)]) -> Vec<ExtractName> {
    extracts.iter().map(|(name, _)| *name).collect()
}

fn listed(store: &FolderStore) -> Vec<ExtractName> {
    let extracts = store.extracts().expect("the disk is sound");
    extracts.into_iter().map(|(name, _)| name).collect()
}

#[track_caller]
fn check_intact(store: &FolderStore, context: &str) {
    for (name, size_bytes) in store.extracts().expect("the disk is sound") {
        let read = read_extract(store, name, size_bytes);
        let (_, found) = read.unwrap_or_else(|error| panic!("{context}: {name}: {error:?}"));
        assert!(found[..] == payload(name, found.len())[..], "{context}: {name}");
    }
}

fn files(disk: &Disk) -> usize {
    disk.folder().folder("journal").and_then(|it| it.list()).expect("the disk is sound").len()
}

#[test]
fn many_extracts_share_few_files_and_are_found_by_name() {
    let (disk, store, all) = filled(MANY);
    let expected = names_of(&all);
    assert_eq!(listed(&store), expected);
    check_intact(&store, "written");
    assert!((2..8).contains(&files(&disk)), "{}", files(&disk));
    assert_eq!(listed(&store_on(&disk)), expected, "opened again");
    let missing = ExtractName { offset: expected[9].offset + 4096, ..expected[8] };
    let mut bytes = vec![0; 4096];
    let beyond = ExtractName { offset: 4096 * 1000, ..missing };
    let error = store.read(ObjectName::Extract(beyond), 0, &mut bytes).expect_err("it is none");
    assert_eq!(error.kind, ImageErrorKind::NotFound);
    // Long ones and those of other segments are among them.
    let next = lengths(MANY + 1)[MANY as usize].0;
    for (name, length) in [
        (next, 1 << 20),
        (ExtractName { offset: next.offset + (1 << 20), ..next }, 4096),
        (ExtractName { segment: 2, offset: 0, ..next }, 4096),
        (ExtractName { segment: 2, offset: 4096, ..next }, (1 << 20) - 4096),
        (ExtractName { segment: 2, offset: 1 << 20, ..next }, 8192),
    ] {
        put(&store, (name, length));
        assert!(listed(&store).contains(&name), "{name}");
    }
    check_intact(&store, "with long ones");
}

#[test]
fn a_short_extract_costs_one_durable_write() {
    let disk = Disk::new(64 << 20);
    let store = store_on(&disk);
    let all = lengths(3);
    put(&store, all[0]);
    let others = [
        StorageAction::Create,
        StorageAction::Write,
        StorageAction::Sync,
        StorageAction::SyncNames,
        StorageAction::Rename,
        StorageAction::Remove,
    ];
    disk.inject(Fault::always(&others, Effect::Io));
    put(&store, all[1]);
    disk.inject(Fault::once(&[StorageAction::WriteDurably], 1, Effect::Io));
    put(&store, all[2]);
}

/// Puts extracts as a shipper does. Returns the moments of the answers.
fn fill(store: &FolderStore, disk: &Disk, all: &[(ExtractName, usize)]) -> Vec<Moment> {
    let fill = |it: &(ExtractName, usize)| {
        put(store, *it);
        disk.now()
    };
    all.iter().map(fill).collect()
}

fn check_cut(disk: &Disk, all: &[(ExtractName, usize)], answered: &[Moment], cut: &Cut) {
    let after = disk.after(cut).disk;
    let store = store_on(&after);
    let there = listed(&store);
    check_intact(&store, &format!("{cut:?}"));
    let count = answered.iter().filter(|moment| **moment <= cut.moment).count();
    for (name, _) in &all[..count] {
        assert!(there.contains(name), "{cut:?}: {name} is lost");
    }
    assert!(there.len() <= count + 1, "{cut:?}");
    // The writer repeats what has no answer, and goes on.
    all[count..].iter().for_each(|it| put(&store, *it));
    assert_eq!(listed(&store).len(), all.len(), "{cut:?}");
    check_intact(&store, &format!("continued after {cut:?}"));
}

#[test]
fn no_power_cut_loses_an_acknowledged_extract_or_shows_a_part_of_one() {
    let disk = Disk::new(64 << 20);
    let all = lengths(100);
    let answered = fill(&store_on(&disk), &disk, &all);
    for seed in 0..300 {
        check_cut(&disk, &all, &answered, &Cut::random(seed, &disk));
    }
    for moment in 0..=disk.now().0 {
        let cut = Cut { moment: Moment(moment), loss: Loss::SomeSectors, seed: moment };
        check_cut(&disk, &all, &answered, &cut);
    }
}

#[test]
fn a_damaged_extract_is_listed_and_not_read() {
    for (index, at) in [(0, 5000), (3, 4096), (9, 9), (9, 20), (9, 4500)] {
        let (disk, store, all) = filled(10);
        let (name, length) = all[index];
        let journal = disk.folder().folder("journal").expect("it is there");
        let file = journal.open(&all[0].0.to_string()).expect("it is the first");
        let mut bytes = encode_extract(SET, name, 5, &payload(name, length));
        bytes[at] ^= 1;
        file.write_durably(2 * u64::from(name.offset), &[IoSlice::new(&bytes)]).expect("sound");
        let extracts = store_on(&disk).extracts().expect("the disk is sound");
        let (_, size) = extracts.into_iter().find(|it| it.0 == name).expect("it is listed");
        let error = read_extract(&store, name, size).expect_err("it is damaged");
        assert_eq!(error.kind, ImageErrorKind::Damaged, "{index}, {at}");
    }
}

#[test]
fn what_is_put_again_is_read_from_where_it_was_put_last() {
    let disk = Disk::new(64 << 20);
    let store = store_on(&disk);
    let all = lengths(12);
    all[..8].iter().for_each(|it| put(&store, *it));
    // A write fails, another process goes on, and requests arrive late.
    disk.inject(Fault::once(&[StorageAction::WriteDurably], 0, Effect::Io));
    let (name, length) = all[8];
    let bytes = encode_extract(SET, name, 5, &payload(name, length));
    store.put_extract(name, &bytes).expect_err("the disk fails");
    disk.heal();
    put(&store, all[8]);
    put(&store, all[3]);
    let other = store_on(&disk);
    all[8..].iter().for_each(|it| put(&other, *it));
    put(&other, all[2]);
    put(&store, all[0]);
    for store in [store, other, store_on(&disk)] {
        assert_eq!(listed(&store), names_of(&all));
        check_intact(&store, "put again");
    }
}

#[test]
fn extracts_are_removed_by_whole_files_with_one_listing() {
    let (disk, store, all) = filled(MANY);
    let names = names_of(&all);
    let file_count = files(&disk);
    assert!(file_count > 2, "{file_count}");
    let (kept, rest) = (&names[MANY as usize - 2..], &names[..MANY as usize - 2]);
    let actions = [
        StorageAction::List,
        StorageAction::WriteDurably,
        StorageAction::Remove,
        StorageAction::SyncNames,
    ];
    let calls = |work: &dyn Fn()| {
        let before = actions.map(|action| disk.calls(action));
        work();
        let after = actions.map(|action| disk.calls(action));
        [0, 1, 2, 3].map(|index| after[index] - before[index])
    };
    // One by one, each costs a listing and a durable write.
    let [lists, writes, _, _] =
        calls(&|| store.remove(ObjectName::Extract(names[3])).expect("the disk is sound"));
    assert_eq!((lists, writes), (1, 1));
    // The newest file has the last two, and some of the others.
    let [lists, writes, removals, syncs] =
        calls(&|| store.remove_extracts(rest).expect("the disk is sound"));
    assert_eq!(listed(&store), kept);
    check_intact(&store, "all but the last are removed");
    assert_eq!(files(&disk), 1);
    let in_newest = writes;
    assert!(in_newest < u64::from(MANY) / 2, "{in_newest}");
    assert_eq!((lists, removals, syncs), (1, file_count as u64 - 1, 1));
    for (seed, loss) in Loss::HONEST.into_iter().enumerate() {
        let cut = Cut { moment: disk.now(), loss, seed: seed as u64 };
        assert_eq!(listed(&store_on(&disk.after(&cut).disk)), kept, "{loss:?}");
    }
    // The rest is removed at once.
    let [lists, writes, _, _] = calls(&|| store.remove_extracts(kept).expect("the disk is sound"));
    assert_eq!(listed(&store), []);
    assert_eq!((lists, writes), (1, 1));
    // The newest file takes others.
    put(&store, all[0]);
    assert_eq!(listed(&store), names[..1]);
    check_intact(&store, "put again");
}

#[test]
fn extracts_that_are_not_named_stay_in_each_file() {
    let (disk, store, all) = filled(MANY);
    let (file_count, names) = (files(&disk), names_of(&all));
    let is_kept = |(index, _): &(usize, &ExtractName)| index % 20 == 3;
    let (kept, removed): (Vec<_>, Vec<_>) = names.iter().enumerate().partition(is_kept);
    let [kept, removed] = [kept, removed]
        .map(|these| these.into_iter().map(|(_, name)| *name).collect::<Vec<ExtractName>>());
    store.remove_extracts(&removed).expect("the disk is sound");
    for store in [&store, &store_on(&disk)] {
        assert_eq!(listed(store), kept);
        check_intact(store, "some are kept");
    }
    assert_eq!(files(&disk), file_count);
    store.remove_extracts(&names).expect("the disk is sound");
    assert_eq!(listed(&store), []);
    assert_eq!(files(&disk), 1, "the newest one is kept");
}

#[test]
fn removed_extracts_are_gone_and_their_files_with_the_last() {
    let (disk, store, all) = filled(MANY);
    let remove = |name| store.remove(ObjectName::Extract(name)).expect("the disk is sound");
    for index in [5, 0, 70] {
        remove(all[index].0);
        remove(all[index].0);
        assert!(!listed(&store_on(&disk)).contains(&all[index].0));
    }
    assert_eq!(listed(&store).len(), all.len() - 3);
    check_intact(&store, "some are removed");
    all.iter().for_each(|(name, _)| remove(*name));
    assert_eq!(listed(&store), []);
    assert_eq!(files(&disk), 1, "the newest one is kept");
    for (seed, loss) in Loss::HONEST.into_iter().enumerate() {
        let cut = Cut { moment: disk.now(), loss, seed: seed as u64 };
        assert_eq!(listed(&store_on(&disk.after(&cut).disk)), [], "{loss:?}");
    }
    put(&store, (ExtractName { segment: 2, ..all[0].0 }, 4096));
    assert_eq!(files(&disk), 1, "it has made room for another");
    check_intact(&store, "in the next segment");
}
