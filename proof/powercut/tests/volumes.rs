//! Recovery of volumes after power failures, from their disk, journal and images.
//!
//! Class `journal`: flushed writes are present; others are old or new, block by block. Class
//! `image`: the volumes are in their state at the instant of the last image, or of a later one.
//! Both: volumes are created, cloned, renamed, resized, deleted and changed in class as last
//! acknowledged, or later. Volumes of class `guaranteed` are guaranteed again, or the lack of
//! memory is reported. Snapshots are those of the last image, or of a later one, with all contents,
//! for the existing volumes. After a restore from a snapshot, too, a block is old or new until a
//! flush has returned.
//!
//! Volumes have both sector sizes, images are in a folder or in an object store that loses answers,
//! and pools are sometimes full. `powercut` describes the possible faults of a disk.
//! A disk that lied, or has bit rot, loses data. That may be detected, but no data is wrong.
//!
//! Takes some two minutes on two cores, because thousands of states of a disk are recovered.
#![forbid(unsafe_code)]

mod support;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use block_device::{BlockDevice, SectorSize};
use model::{Random, for_each_seed_at_once};
use powercut::{Cut, Disk, Loss};
use support::kinds::{self, count, count_many};
use support::{Fixture, History, Place, Rule, Verdict, judge, judge_disk};
use volumes::{CapacityClass, Durability};

const DISK_BYTES: u64 = 64 << 20;
const STEPS: usize = 70;

/// Number of lives of one pool: each begins in the state after the previous cut.
const LIVES: u64 = 3;

const HISTORIES: u64 = 80;

/// Minimum number of states checked by all histories together.
const STATES_MIN: u64 = 5_000;

const HISTORIES_OF_LIARS: u64 = 40;
const CUTS_A_LIFE: u64 = 20;

/// One in this many recoveries is cut as well, and one in this many disks is damaged before.
const CUT_AGAIN_ONE_IN: u64 = 8;
const DAMAGE_ONE_IN: u64 = 8;

static STATES: AtomicU64 = AtomicU64::new(0);

/// Goal: no power failure loses guaranteed data, even after another one.
/// Method: a random history; cuts at random points, each recovered and checked, some of them cut
/// again during recovery; then the history continues from one of them.
#[test]
fn what_was_flushed_survives_every_cut() {
    let seeds = AtomicU64::new(0);
    for_each_seed_at_once("cargo test -p powercut --test volumes flushed", HISTORIES, |seed| {
        seeds.fetch_add(1, Relaxed);
        let mut random = Random::new(seed);
        let mut history = History::new(&Disk::new(DISK_BYTES), random.number());
        for life in 0..LIVES {
            history = history.run(STEPS);
            let (next, observed) = cut_often(&history, life, &mut random);
            history = History::of(next, &observed, random.number());
        }
    });
    let [seeds, states] = [&seeds, &STATES].map(|count| count.load(Relaxed));
    let [snapshots, guaranteed] =
        ["a snapshot that came back", "a guaranteed volume"].map(kinds::number_of);
    eprintln!(
        "measured: {states} power-cut states with {snapshots} snapshots and {guaranteed} \
         guaranteed volumes, of the histories of {seeds} seeds"
    );
    eprintln!("{}", kinds::told());
    // With explicitly chosen seeds, the number of states is not checked.
    if seeds >= HISTORIES {
        assert!(states >= STATES_MIN, "only {states} states were looked at");
        kinds::check_that_all_happened();
    }
}

/// Returns the pool of the last state twice: as restored, and as inspected.
fn cut_often(history: &History, life: u64, random: &mut Random) -> (Fixture, Fixture) {
    let disk = &history.fixture.disk;
    let mut last = None;
    for _ in 0..CUTS_A_LIFE {
        drop(last.take());
        let cut = Cut::random(random.number(), disk);
        STATES.fetch_add(1, Relaxed);
        let (verdict, fixture) = judge(history, &cut);
        assert_eq!(verdict, Verdict::Recovered);
        let fixture = fixture.expect("it was recovered");
        count_kinds(&fixture);
        if random.one_in(CUT_AGAIN_ONE_IN) {
            cut_recovery(&fixture.disk, history, &cut, random);
        }
        // Damage may bring back contents of an earlier life, which the model does not know.
        if random.one_in(DAMAGE_ONE_IN) && life == 0 {
            damage(history, &cut, random);
        }
        last = Some((cut, fixture));
    }
    let (cut, observed) = last.expect("there were cuts");
    let again = Fixture::recover(&disk.after(&cut).disk, history.fixture.place);
    (again.expect("it was recovered before"), observed)
}

fn count_kinds(fixture: &Fixture) {
    count(match fixture.place {
        Place::Folder => "a state of a folder",
        Place::SealedFolder => "a state of an encrypted folder",
        Place::Objects { .. } => "a state of an object store",
        Place::SealedObjects { .. } => "a state of an encrypted object store",
    });
    count_many("a snapshot that came back", fixture.engine.snapshots().len());
    for volume in fixture.engine.volumes() {
        count(match volume.geometry().sector {
            SectorSize::Bytes512 => "a volume of sectors of 512 bytes",
            SectorSize::Bytes4096 => "a volume of sectors of 4096 bytes",
        });
        count(match volume.durability() {
            Durability::Journal => "a volume of class journal",
            _ => "a volume of class image",
        });
        if volume.capacity_class() == CapacityClass::Guaranteed {
            count("a guaranteed volume");
        }
    }
}

/// Cuts a recovery: the next one must find the same.
fn cut_recovery(disk: &Disk, history: &History, cut: &Cut, random: &mut Random) {
    let again = disk.after(&Cut::random(random.number(), disk)).disk;
    STATES.fetch_add(1, Relaxed);
    let (verdict, _) = judge_disk(&again, history, cut, Rule::Kept);
    assert_eq!(verdict, Verdict::Recovered);
    count("a state of a recovery that was cut");
}

/// Flips a bit of the disk after the cut.
fn damage(history: &History, cut: &Cut, random: &mut Random) {
    let after = history.fixture.disk.after(cut).disk;
    let mut files = after.files();
    files.retain(|file| file.size_bytes > 0);
    let Some(file) = files.get(random.index(files.len().max(1))) else { return };
    after.flip_bit(&file.name, random.below(8 * file.size_bytes));
    STATES.fetch_add(1, Relaxed);
    let (verdict, _) = judge_disk(&after, history, cut, Rule::NeverWrong);
    count("a state with damage");
    if verdict == Verdict::LossNoticed {
        count("damage that is noticed");
    }
}

/// Goal: a disk that lies about one promise loses data, which may be detected, but no data is
/// wrong.
#[test]
fn on_a_disk_that_lied_once_nothing_is_wrong() {
    let [noticed, states, seeds] = [const { AtomicU64::new(0) }; 3];
    let command = "cargo test -p powercut --test volumes lied";
    for_each_seed_at_once(command, HISTORIES_OF_LIARS, |seed| {
        seeds.fetch_add(1, Relaxed);
        let mut random = Random::new(seed);
        let history = History::new(&Disk::new(DISK_BYTES), random.number()).run(STEPS);
        for _ in 0..CUTS_A_LIFE {
            let disk = &history.fixture.disk;
            let cut = Cut { loss: Loss::Lie, ..Cut::random(random.number(), disk) };
            let (verdict, _) = judge(&history, &cut);
            noticed.fetch_add(u64::from(verdict == Verdict::LossNoticed), Relaxed);
            states.fetch_add(1, Relaxed);
        }
    });
    let [noticed, states, seeds] = [noticed, states, seeds].map(AtomicU64::into_inner);
    eprintln!("measured: {states} states of a disk that lied, {noticed} of them noticed");
    // With explicitly chosen seeds, there may be no lies.
    assert!(noticed > 0 || seeds < HISTORIES_OF_LIARS, "no lie was noticed");
}
