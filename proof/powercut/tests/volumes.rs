//! Volumes recovered from what cuts of the power leave of their disk, journal and images.
//!
//! Class `journal`: what was flushed is there; what was not flushed is old or new, block by block.
//! Class `image`: the volumes are as they were at the instant of the last image, or of a later one.
//! Both: volumes are made, cloned, renamed, resized, deleted and put in other classes as was last
//! acknowledged, or later; the ones of class `guaranteed` are guaranteed again, or it is said that
//! there is not enough memory. Snapshots are those of the last image, or of a later one, with all
//! that they hold, of the volumes that are there. Also after a restore from a snapshot a block is
//! old or new until a flush has returned.
//! `powercut` says what a disk may do.
#![forbid(unsafe_code)]

mod support;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use model::{Random, for_each_seed, for_each_seed_at_once};
use powercut::{Cut, Disk, Loss};
use support::{History, Site, Verdict, judge, judge_disk};
use volumes::CapacityClass;

const DISK_BYTES: u64 = 64 << 20;
const STEPS: usize = 70;

/// Lives of one pool: each begins with what the cut before left.
const LIVES: u64 = 3;

const HISTORIES: u64 = 80;

/// So many states are looked at by all histories together, at least.
const STATES_MIN: u64 = 10_000;

const HISTORIES_OF_LIARS: u64 = 40;
const CUTS_A_LIFE: u64 = 40;

/// One in so many recoveries is cut as well.
const CUT_AGAIN_ONE_IN: u64 = 8;

static STATES: AtomicU64 = AtomicU64::new(0);

/// Snapshots, and volumes of class `guaranteed`, that were compared after a recovery.
static SNAPSHOTS: AtomicU64 = AtomicU64::new(0);
static GUARANTEED: AtomicU64 = AtomicU64::new(0);

/// Goal: no loss of power takes what was promised, also not one after another.
/// Method: a random history; cuts anywhere in it, each recovered and judged, some of them cut again
/// during recovery; then the history goes on with what one of them left.
#[test]
fn what_was_flushed_survives_every_cut() {
    let seeds = AtomicU64::new(0);
    for_each_seed_at_once("cargo test -p powercut --test volumes flushed", HISTORIES, |seed| {
        seeds.fetch_add(1, Relaxed);
        let mut random = Random::new(seed);
        let mut history = History::new(&Disk::new(DISK_BYTES), random.number());
        for _ in 0..LIVES {
            history = history.run(STEPS);
            let (next, observed) = cut_often(&history, &mut random);
            history = History::of(next, &observed, random.number());
        }
    });
    let [seeds, states, snapshots, guaranteed] =
        [&seeds, &STATES, &SNAPSHOTS, &GUARANTEED].map(|count| count.load(Relaxed));
    eprintln!(
        "measured: {states} power-cut states with {snapshots} snapshots and {guaranteed} \
         guaranteed volumes, of the histories of {seeds} seeds"
    );
    // Whoever chose the seeds has chosen how many states there are.
    if seeds == HISTORIES {
        assert!(states >= STATES_MIN, "only {states} states were looked at");
        assert!(snapshots > 0 && guaranteed > 0, "there was nothing to compare");
    }
}

/// Returns the pool of the last state twice: as it was restored, and as it was looked at.
fn cut_often(history: &History, random: &mut Random) -> (Site, Site) {
    let (disk, truth) = (&history.site.disk, &history.truth);
    let mut last = None;
    for _ in 0..CUTS_A_LIFE {
        drop(last.take());
        let cut = Cut::random(random.number(), disk);
        STATES.fetch_add(1, Relaxed);
        let (verdict, site) = judge(disk, truth, &cut);
        assert_eq!(verdict, Verdict::Recovered);
        let site = site.expect("it was recovered");
        count_kinds(&site);
        if random.one_in(CUT_AGAIN_ONE_IN) {
            cut_recovery(&site.disk, history, &cut, random);
        }
        last = Some((cut, site));
    }
    let (cut, observed) = last.expect("there were cuts");
    let again = Site::recover(&disk.after(&cut).disk).expect("it was recovered before");
    (again, observed)
}

fn count_kinds(site: &Site) {
    SNAPSHOTS.fetch_add(site.engine.snapshots().len() as u64, Relaxed);
    let mut volumes = site.engine.volumes();
    volumes.retain(|volume| volume.capacity_class() == CapacityClass::Guaranteed);
    GUARANTEED.fetch_add(volumes.len() as u64, Relaxed);
}

/// Cuts a recovery: the next one finds the same.
fn cut_recovery(disk: &Disk, history: &History, cut: &Cut, random: &mut Random) {
    let again = disk.after(&Cut::random(random.number(), disk)).disk;
    STATES.fetch_add(1, Relaxed);
    let (verdict, _) = judge_disk(&again, &history.truth, cut);
    assert_eq!(verdict, Verdict::Recovered);
}

/// Goal: a disk that lies about one promise costs data, and that may be noticed; nothing is wrong.
#[test]
fn on_a_disk_that_lied_once_nothing_is_wrong() {
    let mut noticed = 0;
    let mut states = 0;
    for_each_seed("cargo test -p powercut --test volumes lied", HISTORIES_OF_LIARS, |seed| {
        let mut random = Random::new(seed);
        let history = History::new(&Disk::new(DISK_BYTES), random.number()).run(STEPS);
        for _ in 0..CUTS_A_LIFE {
            let disk = &history.site.disk;
            let cut = Cut { loss: Loss::Lie, ..Cut::random(random.number(), disk) };
            let (verdict, _) = judge(disk, &history.truth, &cut);
            noticed += u64::from(verdict == Verdict::LossNoticed);
            states += 1;
        }
    });
    eprintln!("measured: {states} states of a disk that lied, {noticed} of them noticed");
    assert!(states > 0, "no state was looked at");
}
