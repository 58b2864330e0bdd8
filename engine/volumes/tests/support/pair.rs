//! Running operations on an engine and on the model, and comparing.

use std::collections::BTreeSet;
use std::sync::Arc;

use block_device::{BlockDevice, ByteRange, ChangeKind, DeviceErrorKind, SectorSize};
use model::{
    Contents, ModelPool, ModelRefusal, ModelVolume, Operation, Reopening, Request, Shrink, Texture,
    check_same, observe,
};
use volumes::{
    Engine, Reduction, ShrinkPolicy, Volume, VolumeError, VolumeErrorKind, VolumeName, VolumeSpec,
};

use super::pool::{Pool, check_sound_when_empty, check_sums, settle};

/// Bytes written at once to fill a pool up.
const FILL_UP_BYTES: usize = 64 << 10;

/// Slabs that may be free when new data finds no memory: the reserve, and one for rounding.
const RESERVE_SLABS_MAX: u64 = 4;
const SLAB_BYTES: u64 = 128 << 10;

/// An engine and the model of what it shall hold.
pub(crate) struct Pair {
    pool: Pool,
    engine: Engine,
    model: ModelPool,
    /// A handle to a volume that is deleted.
    stale: Option<Arc<Volume>>,
}

impl Pair {
    pub(crate) fn new(pool: Pool) -> Self {
        let engine = pool.open();
        Self { pool, engine, model: ModelPool::default(), stale: None }
    }

    /// Runs the operations in order, and checks the pool as a whole in the end.
    pub(crate) fn run(mut self, operations: &[Operation]) {
        for (index, operation) in operations.iter().enumerate() {
            let trace = Trace { index, operation };
            self = self.step(operation);
            drop(trace);
        }
        self.check_all();
        check_sound_when_empty(&self.engine);
    }

    fn step(mut self, operation: &Operation) -> Self {
        match *operation {
            Operation::Request { slot, request } => self.request(slot, request),
            Operation::FillUp { slot, seed } => self.fill_up(slot, seed),
            Operation::Create { slot, size_bytes, reduction } => {
                let spec = VolumeSpec {
                    sector: SectorSize::Bytes4096,
                    reduction: Reduction::ALL[reduction],
                    ..VolumeSpec::new(volume_name(slot), size_bytes)
                };
                let created = self.engine.create_volume(spec).map(drop);
                check_refusal(created, self.model.create(&name(slot), size_bytes));
            }
            Operation::Delete { slot } => {
                let stale = self.engine.volume(&name(slot)).ok();
                let deleted = self.engine.delete_volume(&name(slot));
                let is_deleted = deleted.is_ok();
                check_refusal(deleted, self.model.delete(&name(slot)));
                self.stale = stale.filter(|_| is_deleted).or(self.stale);
            }
            Operation::Rename { slot, to } => {
                let renamed = self.engine.rename_volume(&name(slot), volume_name(to));
                check_refusal(renamed, self.model.rename(&name(slot), &name(to)));
            }
            Operation::Resize { slot, size_bytes, shrink } => {
                let policy = match shrink {
                    Shrink::KeepData => ShrinkPolicy::KeepData,
                    Shrink::DropData => ShrinkPolicy::DropData,
                };
                let resized = self.engine.resize_volume(&name(slot), size_bytes, policy);
                check_refusal(resized, self.model.resize(&name(slot), size_bytes, shrink));
            }
            Operation::SetReduction { slot, reduction } => {
                let changed = self.engine.set_reduction(&name(slot), Reduction::ALL[reduction]);
                check_refusal(changed, self.model.volume(&name(slot)).map(drop));
            }
            Operation::Maintain { steps } => {
                let _worked = (0..steps).take_while(|_| self.engine.maintain()).count();
            }
            Operation::Reopen(reopening) => return self.reopen(reopening),
            Operation::Snapshot { .. }
            | Operation::RenameSnapshot { .. }
            | Operation::DeleteSnapshot { .. }
            | Operation::SnapshotRequest { .. }
            | Operation::Clone { .. }
            | Operation::Restore { .. } => self.copy(operation),
        }
        self
    }

    /// Operations on copies.
    fn copy(&mut self, operation: &Operation) {
        let Self { engine, model, .. } = self;
        match *operation {
            Operation::Snapshot { slots, snapshot } => {
                let names = slots.map(name);
                let count = if slots[0] == slots[1] { 1 } else { 2 };
                let names: Vec<&str> = names.iter().take(count).map(String::as_str).collect();
                let (short, full) = (snapshot_name(snapshot), snapshot_name(snapshot).to_string());
                let created = engine.create_snapshots(&names, &short, 7).map(drop);
                check_refusal(created, model.create_snapshots(&names, &full));
            }
            Operation::RenameSnapshot { slot, snapshot, to } => {
                let old = snapshot_name(snapshot).to_string();
                let renamed = engine.rename_snapshot(&name(slot), &old, &snapshot_name(to));
                let expected = model.rename_snapshot(&name(slot), &old, snapshot_name(to).as_str());
                check_refusal(renamed, expected);
            }
            Operation::DeleteSnapshot { slot, snapshot } => {
                let snapshot = snapshot_name(snapshot);
                let deleted = engine.delete_snapshot(&name(slot), snapshot.as_str());
                check_refusal(deleted, model.delete_snapshot(&name(slot), snapshot.as_str()));
            }
            Operation::SnapshotRequest { slot, snapshot, request } => {
                let full = format!("{}@{}", name(slot), snapshot_name(snapshot));
                let Ok(expected) = model.volume(&full) else {
                    let missing = engine.volume(&full).map(drop);
                    check_refusal(missing, Err(ModelRefusal::NotFound));
                    return;
                };
                let found = request.run(&*engine.volume(&full).expect("the model has it too"));
                let expected = request.run(&*expected);
                assert!(found == expected, "{} instead of {}", brief(&found), brief(&expected));
            }
            Operation::Clone { slot, snapshot, to } => {
                let source = match snapshot {
                    Some(snapshot) => format!("{}@{}", name(slot), snapshot_name(snapshot)),
                    None => name(slot),
                };
                let cloned = engine.clone_volume(&source, volume_name(to)).map(drop);
                check_refusal(cloned, model.clone_volume(&source, &name(to)));
            }
            Operation::Restore { slot, snapshot } => {
                let snapshot = snapshot_name(snapshot);
                let restored = engine.restore_snapshot(&name(slot), snapshot.as_str());
                check_refusal(restored, model.restore(&name(slot), snapshot.as_str()));
            }
            other => unreachable!("{other:?} is about no copy"),
        }
    }

    /// The same request to both, with the same answer; or the engine had no memory for all of it.
    fn request(&mut self, slot: usize, request: Request) {
        let Ok(model) = self.model.volume(&name(slot)) else {
            let missing = self.engine.volume(&name(slot)).map(drop);
            check_refusal(missing, Err(ModelRefusal::NotFound));
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
            self.check_is_full();
            follow(&volume, &model, request);
            return;
        }
        let expected = request.run(&*model);
        assert!(found == expected, "{} instead of {}", brief(&found), brief(&expected));
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
                self.check_is_full();
                follow(&volume, &model, request);
                return;
            }
            assert_eq!(found, request.run(&*model));
        }
    }

    fn check_is_full(&self) {
        let usage = self.engine.usage();
        let free_bytes = usage.size_bytes - usage.used_bytes;
        assert!(free_bytes <= RESERVE_SLABS_MAX * SLAB_BYTES, "no space, yet {usage:?}");
    }

    fn reopen(self, reopening: Reopening) -> Self {
        let Self { pool, engine, model, stale } = self;
        drop(stale);
        match reopening {
            Reopening::Clean => engine.close(),
            Reopening::Unclean => drop(engine),
        }
        let engine = pool.open();
        let pair = Self { pool, engine, model, stale: None };
        if reopening == Reopening::Clean {
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
            check_same(&*self.engine.volume(name).expect("it is listed"), model);
        }
        self.check_differences();
    }

    /// Each two of what there is differ where their models do.
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

/// Lets the model follow a request that found no memory: each of its blocks is old or new.
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

/// Whether the engine finds the differences that there are in blocks that either holds, and none
/// in some others.
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

fn snapshot_name(snapshot: usize) -> VolumeName {
    format!("snapshot-{snapshot}").parse().expect("a good name")
}

fn name(slot: usize) -> String {
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

/// An answer, cut to what fits a line or two.
fn brief(answer: &impl std::fmt::Debug) -> String {
    let mut text = format!("{answer:?}");
    text.truncate(300);
    text
}

/// Says which operation failed.
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
