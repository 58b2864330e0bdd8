//! Conditions that must hold after any end of a run.

use std::collections::BTreeSet;

use block_device::BlockDevice;
use model::{
    Contents, ModelPool, Operation, Texture, check_old_or_new, check_same, is_same, observe,
};
use volumes::{Engine, Recovery, VolumeSpec};

use super::operate::volume_name;

/// Limit on steps of recovery, which no recovery of these pools reaches.
const STEPS_MAX: usize = 100_000;

/// Limit on bytes of an empty pool that belong to nothing: the remainder of the division into
/// slabs.
const REST_BYTES_MAX: u64 = 256 << 10;

/// Slot of a volume that no scenario uses.
const FRESH_SLOT: usize = 9;

/// States of the model before and after the operation that was in progress at the end of the run.
pub(crate) struct Before<'run> {
    pub(crate) old: &'run ModelPool,
    pub(crate) new: &'run ModelPool,
    pub(crate) under_way: Option<&'run Operation>,
}

impl Before<'_> {
    /// Checks a pool that was just opened again, and empties it.
    pub(crate) fn judge(&self, engine: &Engine) {
        let model = self.recognize(engine);
        // Requests during the leak check participate in it.
        self.disturb(engine, &model);
        settle(engine);
        check_pool(engine, &model);
        for (name, volume) in model.volumes() {
            let real = engine.volume(name).expect("it was there before");
            write_some(&*real, 77);
            write_some(volume, 77);
        }
        create_fresh(engine, &model);
        check_pool(engine, &model);
        check_emptied(engine);
    }

    /// Determines the state of the model that matches: each volume and block is old or new.
    fn recognize(&self, engine: &Engine) -> ModelPool {
        let found = listing(engine);
        let is_request = matches!(self.under_way, Some(Operation::Request { .. }));
        let holds = |(name, volume): (&str, &model::ModelVolume)| {
            is_same(&*engine.volume(name).expect("it is listed"), volume)
        };
        // Operations other than block requests are atomic.
        let is_old = found == model_listing(self.old) && (is_request || self.old.all().all(holds));
        let base = if is_old { self.old } else { self.new };
        assert_eq!(found, model_listing(base), "the volumes are neither the old nor the new ones");
        let recognized = base.snapshot();
        for (name, volume) in recognized.all() {
            let real = engine.volume(name).expect("it is listed");
            if !is_request || real.is_snapshot() {
                check_same(&*real, volume);
                continue;
            }
            let old = self.old.volume(name).expect("requests change no list");
            let new = self.new.volume(name).expect("requests change no list");
            check_old_or_new(&*real, &old, &new);
            let blocks: BTreeSet<u64> =
                old.written_blocks().into_iter().chain(new.written_blocks()).collect();
            for block in blocks {
                volume.set_block(block, observe(&*real, block));
            }
        }
        recognized
    }

    /// Makes small changes before the leak check has ended.
    fn disturb(&self, engine: &Engine, model: &ModelPool) {
        for (name, volume) in model.volumes() {
            let real = engine.volume(name).expect("it was there before");
            let range = block_device::ByteRange::new(0, 8192);
            let size_bytes = volume.geometry().size_bytes;
            if range.fits(size_bytes) && size_bytes % 8192 == 0 {
                real.discard(range).expect("a discard always works");
                volume.discard(range).expect("the model discards");
            }
        }
    }
}

pub(crate) fn settle(engine: &Engine) {
    let steps = (0..STEPS_MAX).take_while(|_| engine.maintain()).count();
    assert!(steps < STEPS_MAX, "maintenance does not end");
    assert_eq!(engine.recovery(), Recovery::Complete);
}

fn check_pool(engine: &Engine, model: &ModelPool) {
    assert_eq!(engine.damaged_entries(), 0, "entries name what is not there");
    assert_eq!(listing(engine), model_listing(model));
    for (name, volume) in model.all() {
        check_same(&*engine.volume(name).expect("it is listed"), volume);
    }
    let usage = engine.usage();
    assert_eq!(usage.written_bytes, model.written_bytes());
    assert_eq!(usage.fill_bytes, model.fill_bytes());
}

/// Writes a little to a device, as far as there is memory.
fn write_some(device: &dyn BlockDevice, seed: u64) {
    let length = usize::try_from(device.geometry().size_bytes).unwrap_or(usize::MAX).min(4096);
    // One block: written or rejected as a whole.
    let _full = device.write(0, &Contents::new(Texture::Fill, seed).bytes(length));
}

fn create_fresh(engine: &Engine, _model: &ModelPool) {
    let spec = VolumeSpec::new(volume_name(FRESH_SLOT), 1 << 20);
    let fresh = engine.create_volume(spec).expect("a volume can be made");
    let contents = Contents::new(Texture::Mixed, 5).bytes(64 << 10);
    if fresh.write(0, &contents).is_ok() {
        let mut bytes = vec![0xEE; contents.len()];
        fresh.read(0, &mut bytes).expect("the read succeeds");
        assert!(bytes == contents, "a new volume holds what is written");
    }
    drop(fresh);
    engine.delete_volume(volume_name(FRESH_SLOT).as_str()).expect("the volume is deleted");
}

/// Deletes all volumes, and checks that no memory is in use, including memory lost earlier.
pub(crate) fn check_emptied(engine: &Engine) {
    for volume in engine.volumes() {
        for snapshot in engine.snapshots_of(&volume) {
            let deleted = engine.delete_snapshot(&volume.name(), &snapshot.snapshot_name());
            deleted.expect("the snapshot is deleted");
        }
        engine.delete_volume(&volume.name()).expect("the volume is deleted");
    }
    settle(engine);
    let usage = engine.usage();
    assert_eq!((usage.page_count, usage.page_bytes, usage.map_bytes), (0, 0, 0), "{usage:?}");
    assert_eq!((usage.written_bytes, usage.fill_bytes), (0, 0), "{usage:?}");
    assert!(usage.slack_bytes < REST_BYTES_MAX, "no slab is lost: {usage:?}");
    assert_eq!(engine.damaged_entries(), 0);
}

fn listing(engine: &Engine) -> Vec<(String, u64)> {
    let one =
        |volume: &std::sync::Arc<volumes::Volume>| (volume.name(), volume.geometry().size_bytes);
    let mut list: Vec<_> = engine.volumes().iter().chain(&engine.snapshots()).map(one).collect();
    list.sort();
    list
}

fn model_listing(model: &ModelPool) -> Vec<(String, u64)> {
    let one = |(name, volume): (&str, &model::ModelVolume)| {
        (name.to_owned(), volume.geometry().size_bytes)
    };
    model.all().map(one).collect()
}
