//! A pool that is full while its volumes are used.

use block_device::BlockDevice;
use model::{Contents, ModelVolume, Request, Texture, observe};
use volumes::{CapacityClass, Volume, VolumeSpec};

use crate::support::History;
use crate::support::fixture::POOL_BYTES;
use crate::support::history::name_of;
use crate::support::kinds::count;
use crate::support::truth::Step;

/// A volume of class `ram`, which only takes memory.
pub(crate) const FILLER: &str = "filler";

const FILL_BYTES: usize = 64 << 10;

impl History {
    /// Returns whether the pool is filled.
    pub(crate) fn is_filled(&self) -> bool {
        self.fixture.engine.volume(FILLER).is_ok()
    }

    /// Fills the pool, or frees memory again.
    pub(crate) fn fill_or_drain(&mut self) {
        if self.is_filled() {
            return self.fixture.engine.delete_volume(FILLER).expect("it was just seen");
        }
        let spec = VolumeSpec::new(name_of(FILLER), 2 * POOL_BYTES);
        let Ok(filler) = self.fixture.engine.create_volume(spec) else { return };
        let seed = self.random.number();
        let is_full = (0..2 * POOL_BYTES).step_by(FILL_BYTES).any(|offset| {
            let contents = Contents::new(Texture::Noise, seed ^ offset);
            filler.write(offset, &contents.bytes(FILL_BYTES)).is_err()
        });
        assert!(is_full, "twice as much as the pool has does not fit it");
        count("the pool is filled");
    }

    /// Updates the expected state after a request that found no memory: each of its blocks is old
    /// or new.
    pub(crate) fn follow(&mut self, step: Step, volume: &Volume, request: Request) {
        let is_guaranteed = |volume: &Volume| volume.capacity_class() == CapacityClass::Guaranteed;
        assert!(!is_guaranteed(volume), "{request:?} fails on a volume that is guaranteed");
        let is_claimed = self.fixture.engine.volumes().iter().any(|volume| is_guaranteed(volume));
        assert!(
            self.is_filled() || is_claimed,
            "{request:?} finds no memory in a pool that has some"
        );
        let truth = self.truth.volumes.get_mut(&volume.id()).expect("every volume is known");
        let old = ModelVolume::clone(&truth.now);
        request.run(&truth.now).expect("the model has room");
        for block in request.blocks() {
            let found = observe(volume, block);
            let is_either = found == old.block(block) || found == truth.now.block(block);
            assert!(is_either, "block {block} is neither old nor new after a full pool");
            truth.now.set_block(block, found);
            truth.note_block(step, block);
        }
        count("a request that finds the pool full");
    }
}
