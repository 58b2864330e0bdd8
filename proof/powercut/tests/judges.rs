//! Incorrect logs are detected, whatever their fault, and a correct one is not.
//!
//! Each log appends numbers. After a cut it reads them back. Every acknowledged number must be
//! present, and none that was never written. Each incorrect log omits one precaution.
#![forbid(unsafe_code)]

use std::io::IoSlice;
use std::sync::Arc;

use powercut::{Cut, Disk, Loss, Moment};
use storage::{BLOCK_BYTES, Folder, StableFile};

const ENTRIES: u64 = 12;

/// Size of an entry: two blocks, so that it can be torn.
const ENTRY_BYTES: usize = 2 * BLOCK_BYTES;

/// Precaution that a log omits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Omission {
    None,
    /// Entries are accepted by their number alone.
    Checksum,
    /// Entries are acknowledged before they are durable.
    Sync,
    /// Entries are accepted after a missing one.
    Order,
}

/// Effect of a cut on the promises of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Kept,
    AcknowledgedLost,
    WrongData,
}

/// Returns an entry: a number, and bytes determined by it. The checksum is their sum.
fn entry(number: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..ENTRY_BYTES)
        .map(|at| u8::try_from((at as u64 * 7 + number) % 251).expect("small"))
        .collect();
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let sum: u64 = bytes[16..].iter().map(|&byte| u64::from(byte)).sum();
    bytes[8..16].copy_from_slice(&(sum * 31 + number).to_le_bytes());
    bytes
}

fn place(number: u64) -> u64 {
    (number - 1) * ENTRY_BYTES as u64
}

/// Appends every entry. Returns the moments of their acknowledgements.
fn run(disk: &Disk, omission: Omission) -> Vec<Moment> {
    let file = disk.folder().create("log", ENTRIES * ENTRY_BYTES as u64).expect("there is room");
    let mut acknowledged = Vec::new();
    for number in 1..=ENTRIES {
        let bytes = entry(number);
        let parts = [IoSlice::new(&bytes)];
        match omission {
            Omission::Sync => file.write(place(number), &parts).expect("there is room"),
            // Several writes for one sync: their order is not preserved.
            Omission::Order | Omission::None if number % 3 != 0 => {
                file.write(place(number), &parts).expect("there is room");
                continue;
            }
            Omission::Order | Omission::None => {
                file.write(place(number), &parts).expect("there is room");
                file.sync().expect("the disk works");
            }
            Omission::Checksum => file.write_durably(place(number), &parts).expect("there is room"),
        }
        acknowledged.resize(usize::try_from(number).expect("few"), disk.now());
    }
    acknowledged
}

/// Returns the last accepted entry, and whether all entries up to it are correct.
fn recover(file: &Arc<dyn StableFile>, omission: Omission) -> (u64, bool) {
    let mut last = 0;
    let mut is_right = true;
    for number in 1..=ENTRIES {
        let mut found = vec![0; ENTRY_BYTES];
        file.read(place(number), &mut found).expect("the disk works");
        let is_whole = found == entry(number);
        let is_believed = match omission {
            Omission::Checksum => found[..8] == number.to_le_bytes(),
            _ => is_whole,
        };
        match (is_believed, omission) {
            (true, _) => {
                is_right &= is_whole && last == number - 1;
                last = number;
            }
            (false, Omission::Order) => {}
            (false, _) => break,
        }
    }
    (last, is_right)
}

fn judge(disk: &Disk, acknowledged: &[Moment], omission: Omission, cut: &Cut) -> Verdict {
    let after = disk.after(cut).disk;
    let promised = acknowledged.iter().filter(|&&moment| moment <= cut.moment).count() as u64;
    let Ok(file) = after.folder().open("log") else {
        return if promised == 0 { Verdict::Kept } else { Verdict::AcknowledgedLost };
    };
    match recover(&file, omission) {
        (_, false) => Verdict::WrongData,
        (last, _) if last < promised => Verdict::AcknowledgedLost,
        _ => Verdict::Kept,
    }
}

fn verdicts(omission: Omission, cuts: impl Fn(&Disk, u64) -> Cut) -> Vec<Verdict> {
    let disk = Disk::new(1 << 20);
    let acknowledged = run(&disk, omission);
    (0..3000).map(|seed| judge(&disk, &acknowledged, omission, &cuts(&disk, seed))).collect()
}

fn honest(omission: Omission) -> Vec<Verdict> {
    verdicts(omission, |disk, seed| Cut::random(seed, disk))
}

#[test]
fn a_right_log_passes() {
    assert!(honest(Omission::None).iter().all(|&verdict| verdict == Verdict::Kept));
}

#[test]
fn a_log_without_checksums_is_caught_with_wrong_data() {
    assert!(honest(Omission::Checksum).contains(&Verdict::WrongData));
}

#[test]
fn a_log_that_does_not_sync_is_caught_losing_data() {
    assert!(honest(Omission::Sync).contains(&Verdict::AcknowledgedLost));
}

#[test]
fn a_log_that_jumps_over_gaps_is_caught_with_wrong_data() {
    assert!(honest(Omission::Order).contains(&Verdict::WrongData));
}

#[test]
fn on_a_disk_that_lies_a_right_log_loses_data_and_is_never_wrong() {
    let found =
        verdicts(Omission::None, |disk, seed| Cut { loss: Loss::Lie, ..Cut::random(seed, disk) });
    assert!(found.contains(&Verdict::AcknowledgedLost));
    assert!(!found.contains(&Verdict::WrongData));
}

/// Replaces a file by another. `sync` says whether its contents are synced before.
fn replace(folder: &Arc<dyn Folder>, letter: u8, sync: bool) {
    let new = folder.create("new", 0).expect("there is room");
    new.write(0, &[IoSlice::new(&[letter; BLOCK_BYTES])]).expect("there is room");
    if sync {
        new.sync().expect("the disk works");
    }
    folder.rename("new", "head").expect("it exists");
    folder.sync_names().expect("the disk works");
}

/// Returns whether the file is one of its versions after every cut.
fn is_always_whole(sync: bool) -> bool {
    let disk = Disk::new(1 << 20);
    let folder = disk.folder();
    replace(&folder, b'a', true);
    let first = disk.now();
    replace(&folder, b'b', sync);
    (0..1000).all(|seed| {
        let chosen = Cut::random(seed, &disk);
        let cut = Cut { moment: chosen.moment.max(first), ..chosen };
        let found = disk.after(&cut).disk.contents("head");
        found == [b'a'; BLOCK_BYTES] || found == [b'b'; BLOCK_BYTES]
    })
}

#[test]
fn a_file_that_is_replaced_before_its_contents_are_synced_is_caught() {
    assert!(is_always_whole(true));
    assert!(!is_always_whole(false));
}
