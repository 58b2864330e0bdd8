//! Goal: flushed data survives every power loss, and no block is ever a mixture or was never
//! written. Method: run a random schedule of writes, flushes, checkpoints, failures and restarts on
//! a simulated disk. Cut the power at random moments of its history. Read the remaining journal
//! after the newest image that was durable by then, and compare each block with its permitted
//! values.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use block_device::{BlockDevice, ByteRange};
use journal::{FailurePolicy, Journal, JournalOptions, JournalSpec, Position, Recovered};
use model::{Random, for_each_seed};
use powercut::{Cut, Disk, Effect, Fault, Loss, Moment};
use storage::StorageAction::{Create, WriteDurably};
use support::{BLOCK, Fixture, Shadow, noise, plain_and_sealed, read, roomy, spec, write};
use volumes::Volume;

const VOLUMES: [&str; 2] = ["one", "two"];
const BLOCKS: u64 = 24;
const STEPS: u64 = 60;
const CUTS: u64 = 40;

type Contents = Vec<u8>;

/// Options under which flushes give up after two failures.
fn options() -> JournalOptions {
    JournalOptions { policy: FailurePolicy::ReadOnly, ..roomy() }
}

/// Contents of a block from some moment on.
struct Version {
    written: Moment,
    contents: Contents,
}

/// An image that became durable at some moment.
struct Image {
    durable: Moment,
    position: Position,
    contents: BTreeMap<(u64, u64), Contents>,
}

/// A pool under a random schedule, and a record of all acknowledgements.
struct Storm {
    fixture: Fixture,
    random: Random,
    seed: u64,
    volume_ids: Vec<u64>,
    versions: BTreeMap<(u64, u64), Vec<Version>>,
    /// Per flush: the moment when it ended, the volume, and the number of versions of each block
    /// when it began.
    flushes: Vec<(Moment, u64, BTreeMap<u64, usize>)>,
    images: Vec<Image>,
}

impl Storm {
    fn run(seed: u64) -> Self {
        let fixture = Fixture::new(options());
        let volume_ids = VOLUMES.iter().map(|name| fixture.create(name).id()).collect();
        let mut storm = Self {
            fixture,
            random: Random::new(seed),
            seed,
            volume_ids,
            versions: BTreeMap::new(),
            flushes: Vec::new(),
            images: Vec::new(),
        };
        for step in 0..STEPS {
            match storm.random.below(16) {
                0..8 => storm.write(step),
                8..12 => assert!(storm.flush(), "the disk works"),
                12 => storm.checkpoint(),
                13 => storm.fixture.journal.maintain().expect("nothing fails outside of flushes"),
                14 => storm.fail(),
                _ => storm.restart(),
            }
        }
        storm
    }

    fn volume(&mut self) -> Arc<Volume> {
        let name = self.random.pick(&VOLUMES);
        self.fixture.engine.volume(name).expect("it is there")
    }

    fn write(&mut self, step: u64) {
        let volume = self.volume();
        for number in 0..1 + self.random.below(6) {
            let block = self.random.below(BLOCKS);
            let seed = self.seed * 1_000_000 + step * 100 + number;
            let contents = match self.random.below(6) {
                0 => vec![u8::try_from(seed % 251).expect("small"); 4096],
                1 => format!("text {seed} ").bytes().cycle().take(4096).collect(),
                2 => vec![0; 4096],
                // Contents shared with other blocks.
                3 => noise(seed % 5),
                _ => noise(seed),
            };
            let range = ByteRange::new(block * BLOCK, BLOCK);
            match contents.iter().all(|&byte| byte == 0) {
                true => volume.discard(range).expect("it is there"),
                false => support::write(&volume, block, &contents),
            }
            let written = self.fixture.disk.now();
            let versions = self.versions.entry((volume.id(), block)).or_default();
            versions.push(Version { written, contents });
        }
    }

    /// Flushes, and records the flush if it was acknowledged.
    fn flush(&mut self) -> bool {
        let volume = self.volume();
        let of_volume = self.versions.iter().filter(|((id, _), _)| *id == volume.id());
        let counts = of_volume.map(|(&(_, block), versions)| (block, versions.len())).collect();
        let is_flushed = volume.flush().is_ok();
        if is_flushed {
            self.flushes.push((self.fixture.disk.now(), volume.id(), counts));
        }
        is_flushed
    }

    fn checkpoint(&mut self) {
        let position = self.fixture.journal.begin_checkpoint();
        let last = |versions: &Vec<Version>| versions.last().map(|it| it.contents.clone());
        let contents = self.versions.iter();
        let contents = contents.filter_map(|(&place, versions)| Some((place, last(versions)?)));
        let contents = contents.collect();
        if self.random.one_in(2) {
            self.write(STEPS);
            assert!(self.flush(), "the disk works");
        }
        self.images.push(Image { durable: self.fixture.disk.now(), position, contents });
        self.fixture.journal.end_checkpoint(position).expect("nothing fails outside of flushes");
    }

    /// Makes one or more calls of the next flush fail. The next run must not trust what the failed
    /// flush left.
    fn fail(&mut self) {
        let skipped = self.random.below(2);
        let effect = if self.random.one_in(2) { Effect::Io } else { Effect::NoSpace };
        let fault = Fault::once(&[WriteDurably, Create], skipped, effect);
        self.fixture.disk.inject(Fault { count: 1 + self.random.below(3), ..fault });
        self.write(STEPS + 1);
        let is_flushed = self.flush();
        self.fixture.disk.heal();
        if !is_flushed && self.random.one_in(2) {
            self.restart();
        }
    }

    fn restart(&mut self) {
        let covered = self.images.last().map_or(Position::START, |image| image.position);
        self.fixture.restart_after(covered, options());
    }

    /// Restores from the newest image that was durable by `moment` and the journal.
    fn restore(&self, disk: &Disk, moment: Moment) -> Option<(Restored<'_>, Recovered)> {
        let image = self.images.iter().rfind(|image| image.durable <= moment);
        let from = image.map_or(Position::START, |image| image.position);
        let (journal, recovered) = read(disk, from).map_err(|error| (error, moment)).ok()?;
        Some((Restored { image, journal }, recovered))
    }

    /// Compares the state after a power loss of an honest disk with the guarantees.
    fn judge(&self, cut: &Cut) {
        let aftermath = self.fixture.disk.after(cut);
        let restored = self.restore(&aftermath.disk, cut.moment);
        let Some((restored, recovered)) = restored else {
            let image = self.images.iter().rfind(|image| image.durable <= cut.moment);
            let from = image.map_or(Position::START, |image| image.position);
            panic!("{cut:?}: {:?}", read(&aftermath.disk, from).expect_err("it failed before"));
        };
        assert_eq!(recovered.damaged_blocks, 0, "{cut:?}");
        for (&(id, block), versions) in &self.versions {
            let flushed = self
                .flushes
                .iter()
                .filter(|&&(ended, volume_id, _)| volume_id == id && ended <= cut.moment);
            let kept = flushed.filter_map(|(_, _, counts)| counts.get(&block)).max();
            let kept = kept.copied().unwrap_or(0);
            let found = restored.block(id, block).expect("nothing is damaged");
            let zeros = vec![0; 4096];
            let allowed = |index: usize| match index {
                0 => Some(&zeros),
                _ => Some(&versions[index - 1])
                    .filter(|version| version.written <= cut.moment)
                    .map(|version| &version.contents),
            };
            let is_allowed = (kept..=versions.len()).any(|it| allowed(it) == Some(&found));
            assert!(is_allowed, "{cut:?}: block {block} of volume {id}, {kept} versions flushed");
        }
        // The remaining journal can be continued.
        let covered = restored.image.map_or(Position::START, |image| image.position);
        let spec = JournalSpec { covered: Some(covered), ..spec(&aftermath.disk, roomy()) };
        Journal::open(spec).expect("its end is whole");
    }

    /// After a disk has lied once, contents may be old or reported as lost, but never wrong.
    fn judge_lie(&self, cut: &Cut) {
        let aftermath = self.fixture.disk.after(cut);
        let Some((restored, _)) = self.restore(&aftermath.disk, cut.moment) else { return };
        for (&(id, block), versions) in &self.versions {
            let Some(found) = restored.block(id, block) else { continue };
            let was_written = versions.iter().any(|version| version.contents == found);
            let is_blank = found.iter().all(|&byte| byte == 0);
            assert!(was_written || is_blank, "{cut:?}: block {block} of volume {id}");
        }
    }
}

/// An image with the journal after it.
struct Restored<'storm> {
    image: Option<&'storm Image>,
    journal: Shadow,
}

impl Restored<'_> {
    fn block(&self, id: u64, block: u64) -> Option<Contents> {
        if self.journal.knows(id, block) {
            return self.journal.block(id, block);
        }
        let imaged = self.image.and_then(|image| image.contents.get(&(id, block)));
        Some(imaged.cloned().unwrap_or_else(|| vec![0; 4096]))
    }
}

#[test]
fn what_was_flushed_survives_every_loss_of_power() {
    plain_and_sealed(|| {
        for_each_seed("cargo test -p journal --test power_cuts", 25, |seed| {
            let storm = Storm::run(seed);
            assert_eq!(storm.volume_ids.len(), VOLUMES.len());
            for cut in 0..CUTS {
                storm.judge(&Cut::random(seed * CUTS + cut, &storm.fixture.disk));
            }
        });
    });
}

#[test]
fn a_disk_that_lies_once_never_makes_contents_wrong() {
    plain_and_sealed(|| {
        for_each_seed("cargo test -p journal --test power_cuts", 10, |seed| {
            let storm = Storm::run(seed + 1000);
            for cut in 0..CUTS {
                let mut random = Random::new(seed * CUTS + cut);
                let moment = Moment(random.below(storm.fixture.disk.now().0 + 1));
                storm.judge_lie(&Cut { moment, loss: Loss::Lie, seed: random.number() });
            }
        });
    });
}

/// Number of blocks of a transaction that is written in pieces if encrypted.
const LONG_BLOCKS: u64 = 700;

fn long_options() -> JournalOptions {
    JournalOptions { segment_bytes: 8 << 20, ..roomy() }
}

#[test]
fn a_long_transaction_is_there_whole_or_not_at_all() {
    plain_and_sealed(|| {
        let fixture = Fixture::new(long_options());
        let volume = fixture.create("one");
        volume.flush().expect("the disk works");
        let before = fixture.disk.now();
        (0..LONG_BLOCKS).for_each(|block| write(&volume, block, &noise(block)));
        volume.flush().expect("the disk works");
        let mut random = Random::new(1);
        let is_whole = |cut: &Cut| {
            let (shadow, _) = read(&fixture.disk.after(cut).disk, Position::START)
                .unwrap_or_else(|error| panic!("{cut:?}: {error}"));
            let found = |block: &u64| shadow.knows(volume.id(), *block);
            let found: Vec<u64> = (0..LONG_BLOCKS).filter(found).collect();
            assert!([0, LONG_BLOCKS].contains(&(found.len() as u64)), "{cut:?}: {}", found.len());
            let is_right = |&block: &u64| shadow.block(volume.id(), block) == Some(noise(block));
            assert!(found.iter().all(is_right), "{cut:?}");
            !found.is_empty()
        };
        for _ in 0..100 {
            let moment = Moment(before.0 + random.below(fixture.disk.now().0 - before.0));
            let loss = random.pick(&Loss::HONEST);
            is_whole(&Cut { moment, loss, seed: random.number() });
        }
        let moment = fixture.disk.now();
        assert!(is_whole(&Cut { moment, loss: Loss::Everything, seed: 1 }), "it was flushed");
    });
}
