//! Promotions after power cuts of the image store, to which a writer mirrors its flushes: they have
//! everything that was acknowledged before the cut, except of volumes that they name as not
//! mirrored.
//!
//! The writer's host is lost, and the store has the state of a disk after a power failure at a
//! random moment. Requests to the store fail or lose their answers, images are saved and settings
//! change meanwhile, and the writer is restarted.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use block_device::BlockDevice;
use durable_set::{DurableSet, MirrorPolicy, Shipped, Shipper};
use model::{Random, for_each_seed_at_once};
use powercut::{Cut, Moment};
use sealing::WrappingKey;
use standby::{LossPolicy, StandbyErrorKind};
use support::shipping::{LONG, NOW, promote};
use support::{PutFate, Puts, Shared, Standby, Writer, noise, read, write};
use volumes::{Durability, VolumeMirror, VolumeSpec};

const HISTORIES: u64 = 24;

/// Delay after a failure of the store.
const SHORT: Duration = Duration::from_millis(1);
const LIVES: usize = 2;
const STEPS: usize = 28;
const CUTS: usize = 12;

/// Few blocks, so that most are written again.
const BLOCKS: u64 = 12;
const VOLUMES_MAX: usize = 4;

static STATES: AtomicU64 = AtomicU64::new(0);
static FLUSHES: AtomicU64 = AtomicU64::new(0);

/// A write, identified by its contents.
struct Write {
    volume: usize,
    block: u64,
    contents: u64,
    begun: Moment,
}

/// An acknowledged flush: the first `writes` writes are durable as far as they are to `volume`.
struct Flush {
    volume: usize,
    writes: usize,
    acknowledged: Moment,
}

/// A change of the setting of a volume. All are mirrored at first.
struct Setting {
    volume: usize,
    mirror: VolumeMirror,
    begun: Moment,
    acknowledged: Moment,
}

/// A writer, and its acknowledgements.
struct History {
    shared: Shared,
    random: Random,
    key: Option<WrappingKey>,
    writes: Vec<Write>,
    flushes: Vec<Flush>,
    settings: Vec<Setting>,
    /// Moments at which the creation of each volume was acknowledged.
    created: Vec<Moment>,
}

#[test]
fn a_promotion_after_a_power_cut_of_the_store_has_every_acknowledged_flush() {
    let command = "cargo test -p standby --test mirrored_cuts";
    for_each_seed_at_once(command, HISTORIES, |seed| {
        let mut history = History::new(seed);
        let writer = history.run();
        for _ in 0..CUTS {
            let cut = Cut::random(history.random.number(), &history.shared.disk);
            history.check(&cut);
        }
        drop(writer);
    });
    let [states, flushes] = [&STATES, &FLUSHES].map(|count| count.load(Relaxed));
    eprintln!("measured: {states} power-cut states of stores after {flushes} mirrored flushes");
    assert!(states > 0 && flushes > states, "{states} states after {flushes} flushes");
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            shared: Shared::mirrored(MirrorPolicy::Wait, LONG),
            key: random.one_in(2).then(|| WrappingKey::new([6; 32])),
            random,
            writes: Vec::new(),
            flushes: Vec::new(),
            settings: Vec::new(),
            created: Vec::new(),
        }
    }

    fn run(&mut self) -> Writer {
        let mut writer = self.shared.writer_with(self.key.as_ref());
        writer.create(&name_of(0), Durability::Journal);
        writer.save();
        self.created.push(self.shared.disk.now());
        for life in 0..LIVES {
            if life > 0 {
                writer = self.shared.restart_with(writer, self.key.as_ref());
                writer.save();
            }
            self.live(&writer);
        }
        writer
    }

    /// Runs steps while another thread ships.
    fn live(&mut self, writer: &Writer) {
        thread::scope(|scope| {
            let puts = Arc::clone(&self.shared.puts);
            let shipping = scope.spawn(move || ship_until_stopped(&writer.set, puts));
            (0..STEPS).for_each(|_| self.step(writer));
            writer.set.mirror().stop();
            shipping.join().expect("no panic");
        });
    }

    fn step(&mut self, writer: &Writer) {
        let volume = self.random.index(self.created.len());
        match self.random.below(20) {
            0..8 => {
                let contents = self.writes.len() as u64 + 1;
                let (block, begun) = (self.random.below(BLOCKS), self.shared.disk.now());
                self.writes.push(Write { volume, block, contents, begun });
                write(&writer.volume(&name_of(volume)), block, contents);
            }
            8..15 => {
                let writes = self.writes.len();
                writer.volume(&name_of(volume)).flush().expect("the store answers in the end");
                let acknowledged = self.shared.disk.now();
                self.flushes.push(Flush { volume, writes, acknowledged });
                FLUSHES.fetch_add(1, Relaxed);
            }
            15..17 => drop(writer.save_and_keep(1 + self.random.index(2))),
            17 if self.created.len() < VOLUMES_MAX => {
                let name = name_of(self.created.len()).parse().expect("a good name");
                let durability = Durability::Journal;
                let spec =
                    VolumeSpec { durability, ..VolumeSpec::new(name, support::VOLUME_BYTES) };
                writer.set.create_volume(spec).expect("there is room");
                self.created.push(self.shared.disk.now());
            }
            18 => {
                let mirror = self.random.pick(&VolumeMirror::ALL);
                let begun = self.shared.disk.now();
                writer.set.set_mirror(&name_of(volume), mirror).expect("there is room");
                let acknowledged = self.shared.disk.now();
                self.settings.push(Setting { volume, mirror, begun, acknowledged });
            }
            _ => {
                let fate = self.random.pick(&[PutFate::Lost, PutFate::AnswerLost]);
                let fault = (self.random.below(3), fate);
                *self.shared.puts.0.lock().expect("no panic") = Some(fault);
            }
        }
    }

    /// Promotes a standby of the store in the state that `cut` leaves.
    fn check(&self, cut: &Cut) {
        STATES.fetch_add(1, Relaxed);
        let mut after = Shared::new();
        after.disk = self.shared.disk.after(cut).disk;
        let keys = self.key.iter().map(|_| WrappingKey::new([6; 32])).collect();
        let standby = after.standby_of(support::POOL_BYTES, keys);
        let promoted = match promote(&standby, LossPolicy::Refuse) {
            Ok(promoted) => promoted,
            Err(error) => {
                let is_early = self.created[0] > cut.moment;
                let is_empty = error.kind == StandbyErrorKind::NoImage;
                assert!(is_early && is_empty, "{cut:?}: {error:?}");
                return;
            }
        };
        assert!(promoted.is_complete, "{cut:?}: {promoted:?}");
        for volume in 0..self.created.len() {
            let is_named = promoted.unmirrored.contains(&name_of(volume));
            let until = self.check_setting(volume, is_named, cut);
            self.check_volume(&standby, volume, cut, until);
        }
    }

    /// Checks that a promotion names a volume as it was set. Returns the moment up to which it must
    /// have what was flushed.
    fn check_setting(&self, number: usize, is_named: bool, cut: &Cut) -> Moment {
        let begun = |it: &&Setting| it.volume == number && it.begun <= cut.moment;
        let settings: Vec<_> = self.settings.iter().filter(begun).collect();
        let is_kept = |it: &&Setting| it.acknowledged <= cut.moment;
        let kept = settings.iter().rposition(is_kept);
        let mut possible = settings[kept.unwrap_or(0)..].iter().map(|it| it.mirror);
        let mirror = if is_named { VolumeMirror::No } else { VolumeMirror::Yes };
        let is_first = kept.is_none() && mirror == VolumeMirror::Yes;
        assert!(is_first || possible.any(|it| it == mirror), "{cut:?}: volume {number}: {mirror}");
        if !is_named {
            return cut.moment;
        }
        let is_mirrored = |it: &&Setting| it.mirror == VolumeMirror::Yes && is_kept(it);
        let after = settings.iter().rposition(is_mirrored).map_or(0, |last| last + 1);
        let mut later = settings[after..].iter();
        let left = later.find(|it| it.mirror == VolumeMirror::No);
        left.expect("it was set so").begun
    }

    fn check_volume(&self, standby: &Standby, number: usize, cut: &Cut, until: Moment) {
        let Ok(volume) = standby.engine().volume(&name_of(number)) else {
            let is_lost = self.created[number] <= cut.moment;
            return assert!(!is_lost, "{cut:?}: volume {number} is lost");
        };
        let acknowledged =
            self.flushes.iter().filter(|it| it.volume == number && it.acknowledged <= until);
        let flushed = acknowledged.map(|it| it.writes).max().unwrap_or(0);
        for block in 0..BLOCKS {
            let of_block = |it: &&Write| it.volume == number && it.block == block;
            let (before, after) = self.writes.split_at(flushed);
            let durable = before.iter().rfind(of_block).map_or(0, |it| it.contents);
            let later = after.iter().filter(of_block).filter(|it| it.begun <= cut.moment);
            let possible: BTreeSet<u64> = later.map(|it| it.contents).chain([durable]).collect();
            let found = read(&volume, block).expect("it is readable");
            let is_possible = possible.iter().any(|&contents| found == contents_of(contents));
            assert!(
                is_possible,
                "{cut:?}: block {block} of volume {number} has none of {possible:?}"
            );
        }
    }
}

/// Ships until the mirror is stopped, and lets flushes ship. After a failure the store is well
/// again.
fn ship_until_stopped(set: &Arc<DurableSet>, puts: Arc<Puts>) {
    let (mut shipper, mirror) = (Shipper::new(Arc::clone(set)), Arc::clone(set.mirror()));
    mirror.begin_rounds(move || match shipper.ship(NOW) {
        Ok(Shipped::All { .. }) => None,
        Ok(Shipped::Some { .. }) => Some(Duration::ZERO),
        Ok(Shipped::NeedsImage) => panic!("an image was saved"),
        Err(_) => {
            *puts.0.lock().expect("no panic") = None;
            Some(SHORT)
        }
    });
    while mirror.wait_for_work(LONG) {
        while mirror.ship().is_some_and(|rest| mirror.rest(rest)) {}
    }
    mirror.end_rounds();
}

fn name_of(volume: usize) -> String {
    format!("volume-{volume}")
}

/// Returns the block of a write. A block of a new volume reads as zeros.
fn contents_of(contents: u64) -> Vec<u8> {
    match contents {
        0 => vec![0; 4096],
        contents => noise(contents),
    }
}
