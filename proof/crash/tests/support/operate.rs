//! Operations of the model on an engine.

use block_device::{ByteRange, DeviceErrorKind, SectorSize};
use model::{Contents, ModelPool, Operation, Reopening, Request, Shrink, Texture, observe};
use volume::{Engine, Reduction, ShrinkPolicy, VolumeName, VolumeSpec};

const BLOCK_BYTES: usize = 4096;

pub(crate) fn create(slot: usize, size_bytes: u64) -> Operation {
    Operation::Create { slot, size_bytes, reduction: 0 }
}

pub(crate) fn delete(slot: usize) -> Operation {
    Operation::Delete { slot }
}

pub(crate) fn maintain(steps: usize) -> Operation {
    Operation::Maintain { steps }
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

/// Names of several words of memory, which differ in the first and in the last.
pub(crate) fn volume_name(slot: usize) -> VolumeName {
    format!("{slot}-names-a-volume-{slot}").parse().expect("a good name")
}

/// Whether an operation ran out of memory on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Enough,
    RanOut,
}

/// Does one operation. Refusals are answers as any other. `open` opens the pool again.
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
        Operation::Create { slot, size_bytes, reduction } => {
            let spec = VolumeSpec {
                sector: SectorSize::Bytes4096,
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
        Operation::FillUp { .. } => {}
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

/// Lets the model do the same. Where the engine ran out of memory, the model takes over what the
/// engine's blocks are now.
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
        Operation::Create { slot, size_bytes, .. } => {
            let _answer = model.create(&name(slot), size_bytes);
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
        Operation::SetReduction { .. }
        | Operation::Maintain { .. }
        | Operation::FillUp { .. }
        | Operation::Reopen(_) => {}
    }
}
