//! Classes of volumes, frozen copies and the pool's size, in an engine beside the model.

use std::ops::ControlFlow;

use model::{ModelVolume, Promise, check_same};
use volumes::{
    Durability, FlushTarget, Frozen, HookError, ResizeErrorKind, ResizeProgress, VolumeMap,
};

use super::pair::{Pair, capacity_of, name};

const UNIT_BYTES: u64 = 2 << 20;

/// Stable storage for which every flush succeeds at once.
#[derive(Debug)]
pub(super) struct FlushesNothing;

impl FlushTarget for FlushesNothing {
    fn flush(&self, _volume: &VolumeMap) -> Result<(), HookError> {
        Ok(())
    }

    fn write_back(&self, _volume: &VolumeMap) {}
}

/// Frozen copies with the contents of their volumes at their creation.
pub(super) struct FrozenPair {
    frozen: Frozen,
    held: Vec<ModelVolume>,
}

impl Pair {
    pub(super) fn set_capacity(&mut self, slot: usize, is_guaranteed: bool) {
        let changed = self.engine.set_capacity(&name(slot), capacity_of(is_guaranteed));
        let kind = if is_guaranteed { "guarantee" } else { "make thin" };
        self.compare(kind, changed, |model| {
            let volume = model.volume(&name(slot))?;
            volume.set_promise(Promise { is_guaranteed, ..volume.promise() });
            Ok(())
        });
    }

    pub(super) fn set_durability(&mut self, slot: usize, durability: usize) {
        let changed = self.engine.set_durability(&name(slot), Durability::ALL[durability]);
        let kind = match Durability::ALL[durability] {
            Durability::Ram => "make it ram",
            Durability::Image => "make it image",
            Durability::Journal => "make it journal",
        };
        self.compare(kind, changed, |model| {
            let volume = model.volume(&name(slot))?;
            volume.set_promise(Promise { durability, ..volume.promise() });
            Ok(())
        });
    }

    /// Freezes those of the two volumes that exist.
    pub(super) fn freeze(&mut self, mut slots: [usize; 2]) {
        self.thaw();
        slots.sort_unstable();
        let count = if slots[0] == slots[1] { 1 } else { 2 };
        let models = slots[..count].iter().filter_map(|&slot| {
            let model = self.model.volume(&name(slot)).ok()?;
            Some((self.engine.volume(&name(slot)).expect("the model has it too"), model))
        });
        let (volumes, held): (Vec<_>, Vec<_>) =
            models.map(|(volume, model)| (volume, ModelVolume::clone(&model))).unzip();
        if volumes.is_empty() {
            return;
        }
        match self.engine.freeze(&volumes) {
            Ok(frozen) => self.frozen = Some(FrozenPair { frozen, held }),
            Err(error) => self.compare("freeze", Err(error), |_| Ok(())),
        }
    }

    /// Compares frozen copies, unless they were given up for a writer, and drops them.
    pub(super) fn thaw(&mut self) {
        let Some(FrozenPair { frozen, held }) = self.frozen.take() else { return };
        if !frozen.is_whole() {
            return self.count("frozen copies that gave way");
        }
        for (copy, held) in frozen.volumes().iter().zip(&held) {
            check_same(&**copy, held);
        }
        self.count("frozen copies that stayed");
    }

    /// Resizes the pool. If that fails, the pool keeps its size.
    pub(super) fn resize_pool(&mut self, eighths: u64) {
        let before = self.engine.size_bytes();
        let size_bytes = (self.pool.size_bytes * eighths / 8).next_multiple_of(UNIT_BYTES);
        let mut go_on = |_: ResizeProgress| ControlFlow::Continue(());
        let kind = match self.engine.set_size(size_bytes, &mut go_on) {
            Ok(()) if size_bytes > before => "grow the pool",
            Ok(()) if size_bytes < before => "shrink the pool",
            Ok(()) => return,
            Err(error) => {
                let is_known = matches!(
                    error.kind,
                    ResizeErrorKind::InUse { .. } | ResizeErrorKind::TooSmall { .. }
                );
                assert!(is_known && size_bytes < before, "{before} to {size_bytes}: {error}");
                assert_eq!(self.engine.size_bytes(), before, "it is refused");
                return self.count("refusal to shrink the pool");
            }
        };
        assert_eq!(self.engine.size_bytes(), size_bytes);
        self.count(kind);
    }
}
