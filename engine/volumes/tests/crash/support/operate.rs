//! Operations of the model on an engine.

use block_device::{ByteRange, DeviceErrorKind, SectorSize};
use model::{Contents, ModelPool, Operation, Reopening, Request, Shrink, Texture, observe};
use volumes::{Engine, Reduction, ShrinkPolicy, VolumeName, VolumeSpec};

const BLOCK_BYTES: usize = block_device::BLOCK_BYTES;

pub(crate) fn create(slot: usize, size_bytes: u64) -> Operation {
    let sector = SectorSize::Bytes4096;
    Operation::Create { slot, size_bytes, reduction: 0, sector, is_guaranteed: false }
}

pub(crate) fn delete(slot: usize) -> Operation {
    Operation::Delete { slot }
}

pub(crate) fn maintain(steps: usize) -> Operation {
    Operation::Maintain { steps }
}

pub(crate) fn compress_idle(steps: usize) -> Operation {
    Operation::CompressIdle { steps }
}

/// Writes `count` blocks of a texture from block `first` on.
pub(crate) fn write(slot: usize, first: u64, count: usize, texture: Texture) -> Operation {
    let contents = Contents::new(texture, first ^ 0xABCD);
    let (offset, length) = (first * BLOCK_BYTES as u64, count * BLOCK_BYTES);
    Operation::Request { slot, request: Request::Write { offset, length, contents } }
}

pub(crate) fn discard(slot: usize, first: u64, count: u64) -> Operation {
    let range = ByteRange::new(first * BLOCK_BYTES as u64, count * BLOCK_BYTES as u64);
    Operation::Request { slot, request: Request::Discard(range) }
}

pub(crate) fn snapshot(slots: [usize; 2], snapshot: usize) -> Operation {
    Operation::Snapshot { slots, snapshot }
}

pub(crate) fn snapshot_name(snapshot: usize) -> VolumeName {
    format!("snapshot-{snapshot}").parse().expect("a good name")
}

/// Returns the names of the volumes in `slots`, each once.
fn names_of(slots: [usize; 2]) -> Vec<String> {
    let mut names: Vec<String> = slots.iter().map(|&slot| volume_name(slot).to_string()).collect();
    names.dedup();
    names
}

/// Returns the name of a clone's source.
fn source_name(slot: usize, snapshot: Option<usize>) -> String {
    let name = volume_name(slot);
    snapshot.map_or(name.to_string(), |one| format!("{name}@{}", snapshot_name(one)))
}

/// Returns a name of several words of memory, which differ in the first and in the last.
pub(crate) fn volume_name(slot: usize) -> VolumeName {
    format!("{slot}-names-a-volume-{slot}").parse().expect("a good name")
}

/// Outcome of an operation with respect to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Enough,
    RanOut,
}

/// Performs one operation. Rejections are valid answers. `open` opens the pool again.
pub(crate) fn operate(
    engine: Engine,
    operation: &Operation,
    open: &dyn Fn() -> Engine,
) -> (Engine, Memory) {
    let name = |slot| volume_name(slot).to_string();
    match *operation {
        Operation::Request { slot, request } => {
            let volume = engine.volume(&name(slot));
            let answer = volume.map(|volume| request.run(&*volume));
            if matches!(answer, Ok(Err(DeviceErrorKind::NoSpace))) {
                return (engine, Memory::RanOut);
            }
        }
        Operation::Create { slot, size_bytes, reduction, sector, .. } => {
            let spec = VolumeSpec {
                sector,
                reduction: Reduction::ALL[reduction],
                ..VolumeSpec::new(volume_name(slot), size_bytes)
            };
            let _answer = engine.create_volume(spec);
        }
        Operation::Delete { slot } => {
            let _answer = engine.delete_volume(&name(slot));
        }
        Operation::Rename { slot, to } => {
            let _answer = engine.rename_volume(&name(slot), volume_name(to));
        }
        Operation::Resize { slot, size_bytes, shrink } => {
            let shrink = match shrink {
                Shrink::KeepData => ShrinkPolicy::KeepData,
                Shrink::DropData => ShrinkPolicy::DropData,
            };
            let _answer = engine.resize_volume(&name(slot), size_bytes, shrink);
        }
        Operation::SetReduction { slot, reduction } => {
            let _answer = engine.set_reduction(&name(slot), Reduction::ALL[reduction]);
        }
        Operation::Maintain { steps } => {
            let _worked = (0..steps).take_while(|_| engine.maintain()).count();
        }
        Operation::CompressIdle { steps } => {
            engine.begin_idle_period();
            let _worked = (0..steps).take_while(|_| engine.compress_idle()).count();
        }
        Operation::FillUp { .. }
        | Operation::SnapshotRequest { .. }
        | Operation::SetCapacity { .. }
        | Operation::SetDurability { .. }
        | Operation::Freeze { .. }
        | Operation::ResizePool { .. } => {}
        Operation::Snapshot { .. }
        | Operation::RenameSnapshot { .. }
        | Operation::DeleteSnapshot { .. }
        | Operation::Clone { .. }
        | Operation::Restore { .. } => copy(&engine, operation),
        Operation::Reopen(reopening) => {
            match reopening {
                Reopening::Clean => engine.close(),
                Reopening::Unclean => drop(engine),
            }
            return (open(), Memory::Enough);
        }
    }
    (engine, Memory::Enough)
}

fn copy(engine: &Engine, operation: &Operation) {
    let name = |slot| volume_name(slot).to_string();
    let short = |snapshot| snapshot_name(snapshot).to_string();
    let _answer = match *operation {
        Operation::Snapshot { slots, snapshot } => {
            let names = names_of(slots);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            engine.create_snapshots(&names, &snapshot_name(snapshot), 7).map(drop)
        }
        Operation::RenameSnapshot { slot, snapshot, to } => {
            engine.rename_snapshot(&name(slot), &short(snapshot), &snapshot_name(to))
        }
        Operation::DeleteSnapshot { slot, snapshot } => {
            engine.delete_snapshot(&name(slot), &short(snapshot))
        }
        Operation::Clone { slot, snapshot, to } => {
            engine.clone_volume(&source_name(slot, snapshot), volume_name(to)).map(drop)
        }
        Operation::Restore { slot, snapshot } => {
            engine.restore_snapshot(&name(slot), &short(snapshot))
        }
        other => unreachable!("{other:?} is about no copy"),
    };
}

fn follow_copy(model: &mut ModelPool, operation: &Operation) {
    let name = |slot| volume_name(slot).to_string();
    let short = |snapshot| snapshot_name(snapshot).to_string();
    let _answer = match *operation {
        Operation::Snapshot { slots, snapshot } => {
            let names = names_of(slots);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            model.create_snapshots(&names, &short(snapshot))
        }
        Operation::RenameSnapshot { slot, snapshot, to } => {
            model.rename_snapshot(&name(slot), &short(snapshot), &short(to))
        }
        Operation::DeleteSnapshot { slot, snapshot } => {
            model.delete_snapshot(&name(slot), &short(snapshot))
        }
        Operation::Clone { slot, snapshot, to } => {
            model.clone_volume(&source_name(slot, snapshot), &name(to))
        }
        Operation::Restore { slot, snapshot } => model.restore(&name(slot), &short(snapshot)),
        other => unreachable!("{other:?} is about no copy"),
    };
}

/// Performs the operation on the model. If the engine ran out of memory, the model takes over the
/// current blocks of the engine.
pub(crate) fn follow(
    model: &mut ModelPool,
    operation: &Operation,
    engine: &Engine,
    memory: Memory,
) {
    let name = |slot| volume_name(slot).to_string();
    match *operation {
        Operation::Request { slot, request } => {
            let Ok(volume) = model.volume(&name(slot)) else { return };
            let _answer = request.run(&*volume);
            if memory == Memory::RanOut {
                let real = engine.volume(&name(slot)).expect("it ran the request");
                for block in request.blocks() {
                    volume.set_block(block, observe(&*real, block));
                }
            }
        }
        Operation::Create { slot, size_bytes, sector, .. } => {
            let _answer = model.create(&name(slot), size_bytes, sector);
        }
        Operation::Delete { slot } => {
            let _answer = model.delete(&name(slot));
        }
        Operation::Rename { slot, to } => {
            let _answer = model.rename(&name(slot), &name(to));
        }
        Operation::Resize { slot, size_bytes, shrink } => {
            let _answer = model.resize(&name(slot), size_bytes, shrink);
        }
        Operation::Snapshot { .. }
        | Operation::RenameSnapshot { .. }
        | Operation::DeleteSnapshot { .. }
        | Operation::Clone { .. }
        | Operation::Restore { .. } => follow_copy(model, operation),
        Operation::SetReduction { .. }
        | Operation::SnapshotRequest { .. }
        | Operation::Maintain { .. }
        | Operation::CompressIdle { .. }
        | Operation::FillUp { .. }
        | Operation::SetCapacity { .. }
        | Operation::SetDurability { .. }
        | Operation::Freeze { .. }
        | Operation::ResizePool { .. }
        | Operation::Reopen(_) => {}
    }
}
