//! Runs operations on an engine and on the model, and compares them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use block_device::{BlockDevice, ByteRange, ChangeKind, DeviceErrorKind};
use model::{
    Contents, ModelPool, ModelRefusal, ModelVolume, Operation, Promise, Reopening, Request, Shrink,
    Texture, check_same, observe,
};
use volumes::{
    CapacityClass, Durability, Engine, Recovery, Reduction, ShrinkPolicy, Volume, VolumeError,
    VolumeErrorKind, VolumeName, VolumeSpec,
};

use super::pool::{Pool, check_sound_when_empty, check_sums, compress_idle, settle};
use super::promises::{FlushesNothing, FrozenPair};

/// Number of bytes written at once to fill a pool.
const FILL_UP_BYTES: usize = 64 << 10;

/// Maximum number of free slabs when new data finds no memory: the reserve, and one for rounding.
const RESERVE_SLABS_MAX: u64 = 4;
const SLAB_BYTES: u64 = 128 << 10;

/// Number of successful operations of each kind.
pub(crate) type Done = BTreeMap<&'static str, u64>;

/// An engine and the model of its contents.
pub(crate) struct Pair {
    pub(super) pool: Pool,
    pub(super) engine: Engine,
    pub(super) model: ModelPool,
    /// Handle of a deleted volume.
    stale: Option<Arc<Volume>>,
    /// Dropped before the engine.
    pub(super) frozen: Option<FrozenPair>,
    pub(super) done: Done,
}

impl Pair {
    pub(crate) fn new(pool: Pool) -> Self {
        let engine = pool.open();
        engine.set_flush_target(Arc::new(FlushesNothing));
        let (stale, frozen) = (None, None);
        Self { pool, engine, model: ModelPool::default(), stale, frozen, done: Done::new() }
    }

    /// Runs the operations in order, and checks the whole pool at the end. Returns the operations
    /// that were performed.
    pub(crate) fn run(mut self, operations: &[Operation]) -> Done {
        for (index, operation) in operations.iter().enumerate() {
            let trace = Trace { index, operation };
            self = self.step(operation);
            drop(trace);
        }
        self.thaw();
        self.check_all();
        check_sound_when_empty(&self.engine);
        self.done
    }

    pub(super) fn count(&mut self, kind: &'static str) {
        *self.done.entry(kind).or_default() += 1;
    }

    fn step(mut self, operation: &Operation) -> Self {
        match *operation {
            Operation::Request { slot, request } => self.request(slot, request),
            Operation::FillUp { slot, seed } => self.fill_up(slot, seed),
            Operation::Create { slot, size_bytes, reduction, sector, is_guaranteed } => {
                let capacity = capacity_of(is_guaranteed);
                let reduction = Reduction::ALL[reduction];
                let spec = VolumeSpec::new(volume_name(slot), size_bytes);
                let spec = VolumeSpec { sector, reduction, capacity, ..spec };
                let created = self.engine.create_volume(spec).map(drop);
                let is_created = created.is_ok();
                self.compare("create", created, |model| {
                    model.create(&name(slot), size_bytes, sector)
                });
                if is_created && is_guaranteed {
                    self.count("create guaranteed");
                    let model = self.model.volume(&name(slot)).expect("it was just made");
                    model.set_promise(Promise { is_guaranteed, ..model.promise() });
                }
            }
            Operation::Delete { slot } => {
                let stale = self.engine.volume(&name(slot)).ok();
                let deleted = self.engine.delete_volume(&name(slot));
                let is_deleted = deleted.is_ok();
                self.compare("delete", deleted, |model| model.delete(&name(slot)));
                self.stale = stale.filter(|_| is_deleted).or(self.stale.take());
            }
            Operation::Rename { slot, to } => {
                let renamed = self.engine.rename_volume(&name(slot), volume_name(to));
                self.compare("rename", renamed, |model| model.rename(&name(slot), &name(to)));
            }
            Operation::Resize { slot, size_bytes, shrink } => {
                let policy = match shrink {
                    Shrink::KeepData => ShrinkPolicy::KeepData,
                    Shrink::DropData => ShrinkPolicy::DropData,
                };
                let resized = self.engine.resize_volume(&name(slot), size_bytes, policy);
                let resize = |model: &mut ModelPool| model.resize(&name(slot), size_bytes, shrink);
                self.compare("resize", resized, resize);
            }
            Operation::SetReduction { slot, reduction } => {
                let changed = self.engine.set_reduction(&name(slot), Reduction::ALL[reduction]);
                let exists = |model: &mut ModelPool| model.volume(&name(slot)).map(drop);
                self.compare("set reduction", changed, exists);
            }
            Operation::Maintain { steps } => {
                if (0..steps).take_while(|_| self.engine.maintain()).count() > 0 {
                    self.count("maintain");
                }
            }
            Operation::CompressIdle { steps } => self.compress_idle(steps),
            Operation::Reopen(reopening) => return self.reopen(reopening),
            Operation::SetCapacity { slot, is_guaranteed } => {
                self.set_capacity(slot, is_guaranteed);
            }
            Operation::SetDurability { slot, durability } => self.set_durability(slot, durability),
            Operation::Freeze { slots } => self.freeze(slots),
            Operation::ResizePool { eighths } => self.resize_pool(eighths),
            Operation::Snapshot { .. }
            | Operation::RenameSnapshot { .. }
            | Operation::DeleteSnapshot { .. }
            | Operation::SnapshotRequest { .. }
            | Operation::Clone { .. }
            | Operation::Restore { .. } => self.copy(operation),
        }
        self
    }

    fn compress_idle(&mut self, steps: usize) {
        compress_idle(&self.engine, steps);
        if self.engine.usage().idle_page_count > 0 {
            self.count("compress what is idle");
        }
    }

    /// Performs operations on copies.
    fn copy(&mut self, operation: &Operation) {
        let engine = &self.engine;
        match *operation {
            Operation::Snapshot { slots, snapshot } => {
                let names = slots.map(name);
                let count = if slots[0] == slots[1] { 1 } else { 2 };
                let names: Vec<&str> = names.iter().take(count).map(String::as_str).collect();
                let (short, full) = (snapshot_name(snapshot), snapshot_name(snapshot).to_string());
                let created = engine.create_snapshots(&names, &short, 7).map(drop);
                let create = |model: &mut ModelPool| model.create_snapshots(&names, &full);
                self.compare("snapshot", created, create);
            }
            Operation::RenameSnapshot { slot, snapshot, to } => {
                let old = snapshot_name(snapshot).to_string();
                let renamed = engine.rename_snapshot(&name(slot), &old, &snapshot_name(to));
                self.compare("rename a snapshot", renamed, |model| {
                    model.rename_snapshot(&name(slot), &old, snapshot_name(to).as_str())
                });
            }
            Operation::DeleteSnapshot { slot, snapshot } => {
                let snapshot = snapshot_name(snapshot);
                let deleted = engine.delete_snapshot(&name(slot), snapshot.as_str());
                self.compare("delete a snapshot", deleted, |model| {
                    model.delete_snapshot(&name(slot), snapshot.as_str())
                });
            }
            Operation::SnapshotRequest { slot, snapshot, request } => {
                let full = format!("{}@{}", name(slot), snapshot_name(snapshot));
                let Ok(expected) = self.model.volume(&full) else {
                    let missing = engine.volume(&full).map(drop);
                    return self.compare("", missing, |_| Err(ModelRefusal::NotFound));
                };
                let found = request.run(&*engine.volume(&full).expect("the model has it too"));
                let expected = request.run(&*expected);
                assert!(found == expected, "{} instead of {}", brief(&found), brief(&expected));
                self.count("request of a snapshot");
            }
            Operation::Clone { slot, snapshot, to } => {
                let source = match snapshot {
                    Some(snapshot) => format!("{}@{}", name(slot), snapshot_name(snapshot)),
                    None => name(slot),
                };
                let cloned = engine.clone_volume(&source, volume_name(to)).map(drop);
                self.compare("clone", cloned, |model| model.clone_volume(&source, &name(to)));
            }
            Operation::Restore { slot, snapshot } => {
                let snapshot = snapshot_name(snapshot);
                let restored = engine.restore_snapshot(&name(slot), snapshot.as_str());
                self.compare("restore", restored, |model| {
                    model.restore(&name(slot), snapshot.as_str())
                });
            }
            other => unreachable!("{other:?} is about no copy"),
        }
    }

    /// Performs the operation on the model, and compares the answers. An operation that fails for
    /// lack of memory, in a full pool or beside many claims, must have changed nothing.
    pub(super) fn compare(
        &mut self,
        kind: &'static str,
        found: Result<(), VolumeError>,
        expected: impl FnOnce(&mut ModelPool) -> Result<(), ModelRefusal>,
    ) {
        if matches!(&found, Err(error) if error.kind == VolumeErrorKind::NoSpace) {
            let guaranteed = self.engine.volumes();
            let mut guaranteed = guaranteed.iter().map(|volume| volume.capacity_class());
            if !guaranteed.any(|class| class == CapacityClass::Guaranteed)
                && !matches!(kind, "create" | "guarantee")
            {
                self.check_is_full();
            }
            return self.count("refusal for lack of memory");
        }
        let is_done = found.is_ok();
        check_refusal(found, expected(&mut self.model));
        if is_done {
            self.count(kind);
        }
    }

    /// Performs a request on both and compares the answers, unless the engine lacked memory.
    fn request(&mut self, slot: usize, request: Request) {
        let Ok(model) = self.model.volume(&name(slot)) else {
            let missing = self.engine.volume(&name(slot)).map(drop);
            self.compare("", missing, |_| Err(ModelRefusal::NotFound));
            if let Some(stale) = &self.stale {
                let is_refused = matches!(
                    request.run(&**stale),
                    Err(DeviceErrorKind::Gone | DeviceErrorKind::TooLong)
                );
                assert!(is_refused, "a deleted volume is gone");
            }
            return;
        };
        let volume = self.engine.volume(&name(slot)).expect("the model has it too");
        let found = request.run(&*volume);
        if found == Err(DeviceErrorKind::NoSpace) {
            return self.lack_memory(&volume, &model, request);
        }
        let expected = request.run(&*model);
        assert!(found == expected, "{} instead of {}", brief(&found), brief(&expected));
        if found.is_ok() {
            self.count(kind_of(request));
        }
    }

    /// Updates the model after a request that found no memory.
    fn lack_memory(&mut self, volume: &Volume, model: &ModelVolume, request: Request) {
        assert!(!model.promise().is_guaranteed, "a guaranteed volume never lacks memory");
        self.check_is_full();
        follow(volume, model, request);
        self.count("request that lacks memory");
    }

    fn fill_up(&mut self, slot: usize, seed: u64) {
        let Ok(model) = self.model.volume(&name(slot)) else { return };
        let volume = self.engine.volume(&name(slot)).expect("the model has it too");
        let room = model.geometry().size_bytes.min(self.pool.size_bytes * 2);
        for offset in (0..room).step_by(FILL_UP_BYTES) {
            let length = usize::try_from(room - offset).expect("small").min(FILL_UP_BYTES);
            let contents = Contents::new(Texture::Noise, seed ^ offset);
            let request = Request::Write { offset, length, contents };
            let found = request.run(&*volume);
            if found == Err(DeviceErrorKind::NoSpace) {
                self.lack_memory(&volume, &model, request);
                return self.count("fill up");
            }
            assert_eq!(found, request.run(&*model));
        }
    }

    fn check_is_full(&self) {
        let usage = self.engine.usage();
        let free_bytes = usage.size_bytes - usage.committed_bytes();
        // Writes of claimed memory have their own reserve, also when all of it is in use.
        let reserved_bytes = usage.reserved_bytes + SLAB_BYTES;
        let reserved_bytes = reserved_bytes.max(RESERVE_SLABS_MAX * SLAB_BYTES);
        assert!(free_bytes <= reserved_bytes, "no space, yet {usage:?}");
    }

    fn reopen(mut self, reopening: Reopening) -> Self {
        self.thaw();
        let Self { pool, engine, model, stale, frozen, mut done } = self;
        drop((stale, frozen));
        let kind = match reopening {
            Reopening::Clean => "reopen after an end",
            Reopening::Unclean => "reopen after a kill",
        };
        match reopening {
            Reopening::Clean => engine.close(),
            Reopening::Unclean => drop(engine),
        }
        let engine = pool.open();
        engine.set_flush_target(Arc::new(FlushesNothing));
        *done.entry(kind).or_default() += 1;
        let pair = Self { pool, engine, model, stale: None, frozen: None, done };
        // The blocks that stable storage lacks, also of snapshots, are counted again, and all
        // others with them.
        let is_ram = |(_, volume): (&str, &ModelVolume)| volume.promise().durability == 0;
        let is_counted = pair.engine.recovery() == Recovery::Complete;
        let keeps_counts = reopening == Reopening::Clean && pair.model.all().all(is_ram);
        assert!(is_counted || !keeps_counts, "an end in order keeps what was counted");
        if is_counted {
            pair.check_counts();
        }
        pair
    }

    fn check_all(&self) {
        settle(&self.engine);
        check_sums(&self.engine);
        self.check_counts();
        let names = |list: Vec<Arc<Volume>>| list.iter().map(|one| one.name()).collect::<Vec<_>>();
        let volumes: Vec<&str> = self.model.volumes().map(|(name, _)| name).collect();
        assert_eq!(names(self.engine.volumes()), volumes);
        let snapshots: Vec<&str> = self.model.snapshots().map(|(name, _)| name).collect();
        assert_eq!(names(self.engine.snapshots()), snapshots);
        for (name, model) in self.model.all() {
            let volume = self.engine.volume(name).expect("it is listed");
            check_same(&*volume, model);
            assert_eq!(volume.geometry(), model.geometry(), "{name}");
        }
        for (name, model) in self.model.volumes() {
            let volume = self.engine.volume(name).expect("it is listed");
            let Promise { is_guaranteed, durability } = model.promise();
            let classes = (volume.capacity_class(), volume.durability());
            let expected = (capacity_of(is_guaranteed), Durability::ALL[durability]);
            assert_eq!(classes, expected, "{name}");
        }
        self.check_differences();
    }

    /// Compares all pairs of volumes: they must differ where their models do.
    fn check_differences(&self) {
        for (from_name, from_model) in self.model.all() {
            for (to_name, to_model) in self.model.all() {
                let from = self.engine.volume(from_name).expect("it is listed");
                let to = self.engine.volume(to_name).expect("it is listed");
                check_difference(&self.engine, (&from, &to), (from_model, to_model));
            }
        }
    }

    fn check_counts(&self) {
        let usage = self.engine.usage();
        assert_eq!(usage.written_bytes, self.model.written_bytes());
        assert_eq!(usage.fill_bytes, self.model.fill_bytes());
    }
}

/// Updates the model after a request that found no memory: each of its blocks is old or new.
fn follow(volume: &Volume, model: &ModelVolume, request: Request) {
    let old = model.clone();
    request.run(model).expect("the model has memory");
    let touched = request.blocks();
    let blocks: BTreeSet<u64> =
        old.written_blocks().into_iter().chain(model.written_blocks()).collect();
    for block in blocks.into_iter().filter(|block| touched.contains(block)) {
        let found = observe(volume, block);
        let is_either = found == old.block(block) || found == model.block(block);
        assert!(is_either, "block {block} is neither old nor new");
        model.set_block(block, found);
    }
}

/// Checks that the engine reports exactly the differences in blocks that either volume has, and
/// none in some others.
fn check_difference(
    engine: &Engine,
    (from, to): (&Volume, &Volume),
    (from_model, to_model): (&ModelVolume, &ModelVolume),
) {
    let (from_bytes, to_bytes) = (from.geometry().size_bytes, to.geometry().size_bytes);
    let mut changed = BTreeSet::new();
    let mut at = 0;
    while at < to_bytes.min(from_bytes) {
        let range = ByteRange::new(at, to_bytes.min(from_bytes) - at);
        let runs = engine.diff(from, to, range, 5).expect("the maps are compared");
        assert!(!runs.is_empty(), "a range that is not empty has runs");
        for run in runs {
            assert_eq!(run.range.start, at, "runs follow each other");
            at += run.range.length;
            if run.kind == ChangeKind::Changed {
                changed.extend(run.range.start / 4096..at / 4096);
            }
        }
    }
    let block = |model: &ModelVolume, block| model.block(block).unwrap_or([0; 4096]);
    let held: BTreeSet<u64> =
        from_model.written_blocks().into_iter().chain(to_model.written_blocks()).collect();
    let limit = to_bytes.min(from_bytes) / 4096;
    let expected: BTreeSet<u64> = held
        .into_iter()
        .filter(|&at| at < limit && block(from_model, at) != block(to_model, at))
        .collect();
    assert!(changed == expected, "{changed:?} instead of {expected:?}");
}

/// Returns the kind under which a request is counted.
fn kind_of(request: Request) -> &'static str {
    match request {
        Request::Read { .. } => "read",
        Request::ReadInPlace(_) => "read in place",
        Request::Write { .. } => "write",
        Request::WriteZeroes(..) => "write zeroes",
        Request::Discard(_) => "discard",
        Request::Flush => "flush",
        Request::Extents { .. } => "extents",
    }
}

pub(super) fn capacity_of(is_guaranteed: bool) -> CapacityClass {
    match is_guaranteed {
        true => CapacityClass::Guaranteed,
        false => CapacityClass::Thin,
    }
}

fn snapshot_name(snapshot: usize) -> VolumeName {
    format!("snapshot-{snapshot}").parse().expect("a good name")
}

pub(super) fn name(slot: usize) -> String {
    format!("volume-{slot}")
}

fn volume_name(slot: usize) -> VolumeName {
    name(slot).parse().expect("a good name")
}

#[track_caller]
fn check_refusal(found: Result<(), VolumeError>, expected: Result<(), ModelRefusal>) {
    let found = found.map_err(|error| match error.kind {
        VolumeErrorKind::AlreadyExists => ModelRefusal::AlreadyExists,
        VolumeErrorKind::NotFound => ModelRefusal::NotFound,
        VolumeErrorKind::DataPastNewEnd => ModelRefusal::DataPastNewEnd,
        VolumeErrorKind::HasSnapshots => ModelRefusal::HasSnapshots,
        other => panic!("{other:?} instead of {expected:?}"),
    });
    assert_eq!(found, expected);
}

/// Formats an answer, truncated to a line or two.
fn brief(answer: &impl std::fmt::Debug) -> String {
    let mut text = format!("{answer:?}");
    text.truncate(300);
    text
}

/// Reports the operation that failed.
struct Trace<'run> {
    index: usize,
    operation: &'run Operation,
}

impl Drop for Trace<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("operation {} failed: {:?}", self.index, self.operation);
        }
    }
}
