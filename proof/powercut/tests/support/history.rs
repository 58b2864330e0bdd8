//! Random histories of volumes in a pool, with their expected state.

use std::cmp::Ordering;

use block_device::{BlockDevice, ByteRange, DeviceErrorKind, SectorSize, Zeroes};
use durable_set::{DurableError, DurableErrorKind, SaveExtent, SaveRequest};
use image::Unwatched;
use model::{Contents, Random, Request, observe};
use powercut::{Disk, Effect, Fault, Moment};
use storage::StorageAction;
use volumes::{CapacityClass, Durability, Reduction, ShrinkPolicy, Volume, VolumeName, VolumeSpec};

use crate::support::fixture::{Fixture, Place};
use crate::support::full_pool::FILLER;
use crate::support::judge::snapshots_of;
use crate::support::kinds::count;
use crate::support::truth::{Listed, Step, Truth, VolumeTruth};

const BLOCK_BYTES: u64 = block_device::BLOCK_BYTES as u64;
pub(crate) const SLOTS: u64 = 4;

/// Sizes of volumes in blocks. The last ends in a second leaf.
const SIZES: [u64; 4] = [24, 64, 200, 560];

/// Requests begin below the first number, or near the border of two leaves.
const LOW_BLOCKS: u64 = 48;
const BORDER: std::ops::Range<u64> = 500..530;

/// A pool and its expected state.
pub(crate) struct History {
    pub(crate) fixture: Fixture,
    pub(crate) truth: Truth,
    pub(crate) random: Random,
    classes: Classes,
    /// True if the pool is sometimes full.
    fills: bool,
}

/// One in this many histories has no contents in the journal, fills its pool, or has its images in
/// an object store.
const NO_JOURNAL_ONE_IN: u64 = 4;
const FILLS_ONE_IN: u64 = 3;
const OBJECTS_ONE_IN: u64 = 3;

/// One in this many histories is encrypted, wherever its images are.
const SEALED_ONE_IN: u64 = 2;

/// Maximum number of saves tried at the end of a life: one number may belong to a manifest whose
/// creation failed.
const LAST_SAVES_MAX: u32 = 3;

/// Durability classes of the volumes of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Classes {
    All,
    /// The journal contains the table of volumes, and no contents.
    NoJournal,
}

pub(crate) fn slot_name(slot: u64) -> String {
    format!("volume-{slot}")
}

impl History {
    pub(crate) fn new(disk: &Disk, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let classes = match random.one_in(NO_JOURNAL_ONE_IN) {
            true => Classes::NoJournal,
            false => Classes::All,
        };
        let is_remote = random.one_in(OBJECTS_ONE_IN);
        let place = match (is_remote, random.one_in(SEALED_ONE_IN)) {
            (true, false) => Place::Objects { seed: random.number() },
            (true, true) => Place::SealedObjects { seed: random.number() },
            (false, true) => Place::SealedFolder,
            (false, false) => Place::Folder,
        };
        let (fixture, truth) = (Fixture::new(disk, place), Truth::default());
        let fills = random.one_in(FILLS_ONE_IN);
        let mut history = Self { fixture, truth, random, classes, fills };
        let step = history.truth.begin_step(Moment(0));
        history.note_table(step);
        history
    }

    /// Continues with a correct pool, all of whose contents are durable. `observed` is the same
    /// pool again, for inspection, because inspection fetches absent blocks into memory.
    pub(crate) fn of(fixture: Fixture, observed: &Fixture, seed: u64) -> Self {
        let (mut random, classes) = (Random::new(seed), Classes::All);
        let fills = random.one_in(FILLS_ONE_IN);
        let mut history = Self { fixture, truth: Truth::default(), random, classes, fills };
        let step = history.truth.begin_step(Moment(0));
        let mut imaged = Vec::new();
        for volume in observed.engine.volumes() {
            let mut truth = VolumeTruth::new(volume.geometry().size_bytes);
            for block in 0..volume.geometry().size_bytes / BLOCK_BYTES {
                let found = observe(&*volume, block);
                if found.is_some() {
                    truth.now.set_block(block, found);
                    truth.note_block(step, block);
                }
            }
            truth.note_covered(step + 1, Moment(0));
            // Its changes from the journal are in no image.
            truth.is_unchanged = false;
            history.truth.volumes.insert(volume.id(), truth);
            imaged.push(volume.id());
        }
        history.truth.snapshots = snapshots_of(observed);
        history.note_table(step);
        history.truth.note_table_covered(step + 1, Moment(0));
        if observed.engine.volumes().iter().all(|it| it.durability() != Durability::Journal) {
            history.classes = Classes::NoJournal;
        }
        history.truth.note_image(step, Some(Moment(0)), imaged);
        history
    }

    pub(crate) fn run(mut self, steps: usize) -> Self {
        for _ in 0..steps {
            self = self.step();
            if self.fixture.set.journal().needs_checkpoint() {
                self.save_or_not();
            }
        }
        self.fixture.heal();
        let mut tries = 0;
        while let Err(error) = self.checkpoint() {
            tries += 1;
            assert!(tries < LAST_SAVES_MAX, "no save works though nothing fails: {error:?}");
        }
        self
    }

    fn step(mut self) -> Self {
        match self.random.below(100) {
            0..40 => self.request(),
            40..60 => self.flush(),
            60..68 => self.copy(),
            68..72 => self.create(),
            72..81 => self.administrate(),
            81..85 => self.save_or_not(),
            85..87 => self.maintain_set(),
            87..89 => self.fetch(),
            89..91 => self.maintain(),
            91..93 if self.fills => self.fill_or_drain(),
            91..93 => self.maintain(),
            93..97 => self.inject(),
            _ => {
                self.fixture.disk.heal();
                let is_full = self.is_filled();
                count(if is_full {
                    "the daemon is killed with a full pool"
                } else {
                    "the daemon is killed"
                });
                self.fixture = self.fixture.restart();
            }
        }
        self
    }

    pub(crate) fn begin_step(&mut self) -> Step {
        self.truth.begin_step(self.fixture.disk.now())
    }

    /// Returns a random volume of any class, by name and id.
    pub(crate) fn some_volume(&mut self) -> Option<(String, u64)> {
        let mut volumes = self.fixture.engine.volumes();
        volumes.retain(|volume| volume.name() != FILLER);
        let place = self.random.below(volumes.len().max(1) as u64);
        let volume = volumes.get(usize::try_from(place).expect("few"))?;
        Some((volume.name(), volume.id()))
    }

    fn request(&mut self) {
        let Some((name, id)) = self.some_volume() else { return self.create() };
        let volume = self.fixture.engine.volume(&name).expect("it was just seen");
        let block_count = volume.geometry().size_bytes / BLOCK_BYTES;
        let request = self.random_request(block_count);
        let step = self.begin_step();
        match request.run(&*volume) {
            Err(DeviceErrorKind::NoSpace) => return self.follow(step, &volume, request),
            answer => answer.expect("there is no other reason to fail"),
        };
        self.count_request(&volume, request);
        let truth = self.truth.volumes.get_mut(&id).expect("every volume is known");
        request.run(&truth.now).expect("the model has room");
        request.blocks().for_each(|block| truth.note_block(step, block));
    }

    fn count_request(&self, volume: &Volume, request: Request) {
        let is_whole = (request.range().start | request.range().length).is_multiple_of(BLOCK_BYTES);
        count(match request {
            Request::Write { .. } if is_whole => "a write",
            Request::Write { .. } => "a write of parts of blocks",
            Request::WriteZeroes(_, Zeroes::Unmap) => "zeroes that unmap",
            Request::WriteZeroes(..) => "zeroes that keep",
            _ => "a discard",
        });
        let is_guaranteed = volume.capacity_class() == CapacityClass::Guaranteed;
        if is_guaranteed && self.is_filled() && matches!(request, Request::Write { .. }) {
            count("a guaranteed write into a full pool");
        }
    }

    fn random_request(&mut self, block_count: u64) -> Request {
        let random = &mut self.random;
        let first = match random.one_in(4) && block_count > BORDER.start {
            true => BORDER.start + random.below(BORDER.end - BORDER.start),
            false => random.below(LOW_BLOCKS),
        };
        let first = first.min(block_count - 1);
        let count = (1 + random.below(8)).min(block_count - first);
        let whole = ByteRange::new(first * BLOCK_BYTES, count * BLOCK_BYTES);
        // Sometimes only a part of the first and of the last block.
        let cut = if random.one_in(4) { 512 * (1 + random.below(7)) } else { 0 };
        let range = match whole.length > 2 * cut {
            true => ByteRange::new(whole.start + cut, whole.length - 2 * cut),
            false => whole,
        };
        match random.below(10) {
            0 => Request::Discard(whole),
            1 => Request::WriteZeroes(range, random.pick(&[Zeroes::Unmap, Zeroes::KeepAllocated])),
            _ => {
                let length = usize::try_from(range.length).expect("short");
                let contents = Contents::random(random);
                Request::Write { offset: range.start, length, contents }
            }
        }
    }

    fn flush(&mut self) {
        let Some((name, id)) = self.some_volume() else { return };
        let step = self.begin_step();
        let volume = self.fixture.engine.volume(&name).expect("it was just seen");
        let is_journaled = volume.durability() == Durability::Journal;
        if is_journaled && !volume.map().is_anchored() {
            return self.save_or_not();
        }
        let flushed = volume.flush();
        count(if flushed.is_ok() { "a flush" } else { "a flush that fails" });
        if !is_journaled {
            flushed.expect("a flush of memory does not fail");
        } else if flushed.is_ok() {
            let now = self.fixture.disk.now();
            let truth = self.truth.volumes.get_mut(&id).expect("every volume is known");
            truth.note_covered(step, now);
            self.truth.note_table_covered(step, now);
        }
    }

    fn create(&mut self) {
        let name = slot_name(self.random.below(SLOTS));
        if self.fixture.engine.volume(&name).is_ok() {
            return;
        }
        let size_bytes = self.random.pick(&SIZES) * BLOCK_BYTES;
        let durability = match self.random.below(8) {
            0 => Durability::Ram,
            1 | 2 => Durability::Image,
            _ if self.classes == Classes::NoJournal => Durability::Image,
            _ => Durability::Journal,
        };
        let spec = VolumeSpec {
            sector: self.random.pick(&[SectorSize::Bytes512, SectorSize::Bytes4096]),
            reduction: self.random.pick(&Reduction::ALL),
            durability,
            capacity: self.random_capacity(),
            ..VolumeSpec::new(name_of(&name), size_bytes)
        };
        self.heal_before_making();
        let step = self.begin_step();
        let is_guaranteed = spec.capacity == CapacityClass::Guaranteed;
        let volume = match self.fixture.set.create_volume(spec) {
            Ok(volume) => volume,
            // It does not fit, or the journal has its maximum length: nothing has changed.
            Err(error)
                if is_guaranteed || self.is_filled() || error.kind == DurableErrorKind::Journal =>
            {
                return count("a volume is refused");
            }
            Err(error) => panic!("the name is free: {error}"),
        };
        count("a volume is made");
        self.truth.volumes.insert(volume.id(), VolumeTruth::new(size_bytes));
        self.changed_table(step, volume.id(), true);
    }

    /// Heals the disk before a creation. Records that could not be written and are reverted may
    /// still exist after a cut, until another record is written: under an id that was never
    /// reported.
    pub(crate) fn heal_before_making(&mut self) {
        self.fixture.disk.heal();
    }

    fn random_capacity(&mut self) -> CapacityClass {
        match self.random.one_in(4) {
            true => CapacityClass::Guaranteed,
            false => CapacityClass::Thin,
        }
    }

    /// Changes a volume as a whole.
    fn administrate(&mut self) {
        let Some((name, id)) = self.some_volume() else { return };
        let change = self.random.below(12);
        if change < 2 {
            self.delete_snapshots_of(id);
        }
        let step = self.begin_step();
        let mut kind = "a volume is reduced otherwise";
        let changed = match change {
            // Fails if a snapshot could not be deleted.
            0..2 => {
                kind = "a volume is deleted";
                self.fixture.set.delete_volume(&name)
            }
            2..4 => {
                kind = "a volume is renamed";
                let to = slot_name(self.random.below(SLOTS));
                // Fails if there is one of that name.
                self.fixture.set.rename_volume(&name, name_of(&to))
            }
            4..7 => return self.resize(&name, id),
            7..9 => return self.set_durability(step, &name, id),
            9..11 => {
                let class = self.random.pick(&CapacityClass::ALL);
                kind = match class {
                    CapacityClass::Thin => "a volume becomes thin",
                    CapacityClass::Guaranteed => "a volume becomes guaranteed",
                };
                self.fixture.set.set_capacity(&name, class)
            }
            _ => {
                let reduction = self.random.pick(&Reduction::ALL);
                self.fixture.set.set_reduction(&name, reduction)
            }
        };
        if is_made(&changed) {
            count(kind);
        }
        self.changed_table(step, id, changed.is_ok());
    }

    /// Sometimes grows a volume again immediately after it was shrunk, also if the journal could
    /// not record the shrink.
    fn resize(&mut self, name: &str, id: u64) {
        let blocks = self.random.pick(&SIZES);
        let longer: Vec<u64> = SIZES.iter().copied().filter(|it| *it > blocks).collect();
        if longer.is_empty() || self.random.one_in(2) {
            return self.resize_to(name, id, blocks);
        }
        if self.random.one_in(2) {
            self.fixture.disk.inject(Fault::always(&[StorageAction::WriteDurably], Effect::Io));
        }
        self.resize_to(name, id, blocks);
        self.fixture.disk.heal();
        let blocks = self.random.pick(&longer);
        self.resize_to(name, id, blocks);
    }

    fn resize_to(&mut self, name: &str, id: u64, block_count: u64) {
        let step = self.begin_step();
        let size_bytes = block_count * BLOCK_BYTES;
        let resized = self.fixture.set.resize_volume(name, size_bytes, ShrinkPolicy::DropData);
        if !is_made(&resized) {
            // It does not fit, or could not be recorded: nothing has changed.
            return;
        }
        let truth = self.truth.volumes.get_mut(&id).expect("every volume is known");
        match truth.size_bytes().cmp(&size_bytes) {
            Ordering::Less => count("a volume is made longer"),
            Ordering::Greater => count("a volume is made shorter"),
            Ordering::Equal => {}
        }
        truth.now.resize(size_bytes);
        truth.is_unchanged = false;
        let cut_off: Vec<u64> =
            truth.known_blocks().filter(|block| *block >= block_count).collect();
        cut_off.into_iter().for_each(|block| truth.note_block(step, block));
        if self.class_of(id) != Some(Durability::Ram) {
            self.truth.note_cut(step, id, block_count);
        }
        self.changed_table(step, id, resized.is_ok());
    }

    fn set_durability(&mut self, step: Step, name: &str, id: u64) {
        let volume = self.fixture.engine.volume(name).expect("it was just seen");
        let was = volume.durability();
        let classes = match self.classes {
            Classes::All => &Durability::ALL[..],
            Classes::NoJournal => &[Durability::Ram, Durability::Image],
        };
        let changed = self.fixture.set.set_durability(name, self.random.pick(classes));
        if !is_made(&changed) {
            return;
        }
        let to = volume.durability();
        if was != to {
            count(match to {
                Durability::Ram => "a volume becomes one of class ram",
                Durability::Image => "a volume becomes one of class image",
                Durability::Journal => "a volume becomes one of class journal",
            });
        }
        self.note_class(step, id, to);
        let truth = self.truth.volumes.get_mut(&id).expect("every volume is known");
        truth.is_unchanged &= was == to;
        if was != to && to == Durability::Journal {
            truth.unanchored_since.get_or_insert(step);
        }
        if was == Durability::Ram && to != was {
            truth.forget_covered();
            truth.note_all(step);
        }
        self.changed_table(step, id, changed.is_ok());
    }

    /// Returns the class of an existing volume.
    fn class_of(&self, id: u64) -> Option<Durability> {
        let volumes = self.fixture.engine.volumes();
        volumes.iter().find(|volume| volume.id() == id).map(|volume| volume.durability())
    }

    /// Records that everything acknowledged of a volume is durable, unless its class guarantees
    /// nothing.
    pub(crate) fn changed_table(&mut self, step: Step, id: u64, is_acknowledged: bool) {
        let was_noted = self.truth.is_listed(id);
        self.note_table(step);
        if is_acknowledged && (was_noted || self.truth.is_listed(id)) {
            let now = self.fixture.disk.now();
            let step = self.begin_step();
            self.truth.note_table_covered(step, now);
        }
    }

    pub(crate) fn note_table(&mut self, step: Step) {
        let kept = self.fixture.engine.volumes().into_iter();
        let kept = kept.filter(|volume| volume.durability() != Durability::Ram);
        let table = kept.map(|volume| (volume.id(), Listed::of(&volume))).collect();
        self.truth.note_table(step, table);
    }

    /// A failed save is repeated later.
    fn save_or_not(&mut self) {
        let _answer = self.checkpoint();
    }

    /// Saves an image, and truncates the journal.
    fn checkpoint(&mut self) -> Result<(), DurableError> {
        let step = self.begin_step();
        let request = SaveRequest {
            extent: SaveExtent::Durable,
            created_seconds: 1,
            label: String::new(),
            bytes_a_second_max: None,
        };
        let kept = self.fixture.engine.volumes().into_iter();
        let kept = kept.filter(|volume| volume.durability() != Durability::Ram);
        let ids: Vec<u64> = kept.map(|volume| volume.id()).collect();
        let saved = self.fixture.set.save(&request, &Unwatched);
        count(match (&saved, self.is_filled()) {
            (Ok(_), false) => "an image",
            (Ok(_), true) => "an image of a full pool",
            (Err(_), _) => "an image that fails",
        });
        let since = saved.is_ok().then(|| self.fixture.disk.now());
        if let Some(now) = since {
            for id in &ids {
                let truth = self.truth.volumes.get_mut(id).expect("every volume is known");
                truth.note_covered(step, now);
            }
            self.truth.note_table_covered(step, now);
        }
        self.truth.note_image(step, since, ids);
        if self.random.one_in(2) {
            self.begin_step();
            // Images that cannot be removed now are removed later.
            let removed = self.fixture.set.retain(1 + self.random.index(2));
            if removed.is_ok_and(|removed| !removed.images.is_empty()) {
                count("images are deleted");
            }
        }
        saved.map(drop)
    }

    /// Fetches absent blocks into memory.
    fn fetch(&mut self) {
        self.begin_step();
        match self.fixture.set.stream(&Unwatched) {
            Ok(streamed) if streamed.present_blocks > 0 => count("absent blocks are fetched"),
            Err(error) if !self.is_filled() => panic!("reading does not fail: {error}"),
            _ => {}
        }
    }

    fn maintain_set(&mut self) {
        self.begin_step();
        // A failing disk is retried next time.
        if self.fixture.set.maintain().is_ok() {
            count("upkeep of the set");
        }
    }

    fn maintain(&mut self) {
        let steps = 1 + self.random.below(20);
        if (0..steps).take_while(|_| self.fixture.engine.maintain()).count() > 0 {
            count("upkeep of the pool");
        }
    }

    /// Injects a fault of the disk.
    fn inject(&mut self) {
        let action = self.random.pick(&[
            StorageAction::WriteDurably,
            StorageAction::WriteDurably,
            StorageAction::Write,
            StorageAction::Sync,
            StorageAction::SyncNames,
            StorageAction::Create,
            StorageAction::Remove,
            StorageAction::Rename,
        ]);
        let effect = self.random.pick(&[true, false]);
        let effect = if effect { Effect::Io } else { Effect::NoSpace };
        let mut fault = Fault::once(&[action], self.random.below(3), effect);
        fault.count = match self.random.one_in(4) {
            // Until it is healed.
            true => u64::MAX,
            false => 1 + self.random.below(3),
        };
        count("a fault of the disk");
        self.fixture.disk.inject(fault);
    }
}

/// Returns whether a change was made, also if it could not be recorded.
pub(crate) fn is_made(changed: &Result<(), DurableError>) -> bool {
    match changed {
        Ok(()) => true,
        Err(error) if error.is_made() => {
            count("a change that the journal was not told");
            true
        }
        Err(_) => false,
    }
}

pub(crate) fn name_of(name: &str) -> VolumeName {
    name.parse().expect("a good name")
}
