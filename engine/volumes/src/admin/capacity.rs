//! Capacity classes: claims for the memory that volumes of class `guaranteed` can need.

use block_device::{Action, ByteRange, DeviceError};
use codec::{BLOCK_BYTES, Block};
use page_store::{NODE_ENTRY_COUNT, Purpose};

use crate::admin::engine::Engine;
use crate::blocks::{LEAF_BLOCKS, LEAF_BYTES, block_range, leaves_in};
use crate::error::{VolumeError, refusal};
use crate::map::claims::{Stage, block_slots, is_page, node_slots};
use crate::map::entries::Update;
use crate::map::table::Shape;
use crate::map::volume_map::VolumeMap;
use crate::spec::CapacityClass;

impl Engine {
    /// Changes the capacity class of a volume. A change to `guaranteed` fails unless the full size
    /// fits beside the existing claims. Existing pages are then rewritten, uncompressed and
    /// unshared.
    pub fn set_capacity(&self, name: &str, class: CapacityClass) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let volume = self.changeable(name)?;
        if volume.capacity_class() == class {
            return Ok(());
        }
        // The blocks of the volume are counted from now on.
        self.end_leak_check();
        match class {
            CapacityClass::Thin => {
                record_class(&volume.map, class);
                let _held = self.pool.locks.lock_all();
                volume.map.leave_guaranteed();
            }
            CapacityClass::Guaranteed => self.become_guaranteed(&volume.map)?,
        }
        self.write_listing().note_classes(&volume);
        self.note_table_change();
        Ok(())
    }

    /// Claims the memory that a new volume can need. Fails if it does not fit.
    pub(super) fn claim_for(&self, name: &str, size_bytes: u64) -> Result<(), VolumeError> {
        let slots = block_slots(size_bytes) + 2 * node_slots(size_bytes);
        self.space.claim(slots).map_err(|refused| VolumeError::of_claim(name, refused))
    }

    /// Creates the complete map of a volume of class `guaranteed`, for which memory is claimed
    /// already.
    pub(super) fn complete_map(&self, map: &VolumeMap) -> Result<(), VolumeError> {
        if map.claims.is_claimed() {
            self.make_leaves(map, 0, map.size_bytes())?;
            map.keep_for_nodes(map.size_bytes());
            map.release_nodes();
        }
        Ok(())
    }

    /// Claims the memory for the growth of a volume, and creates the rest of its map.
    pub(super) fn claim_growth(&self, map: &VolumeMap, to_bytes: u64) -> Result<(), VolumeError> {
        if !map.claims.is_claimed() {
            return Ok(());
        }
        let from_bytes = map.size_bytes();
        let more_bytes = to_bytes - from_bytes;
        let store = &self.pool.store;
        let slots = block_slots(more_bytes) + 2 * node_slots(more_bytes);
        let claimed = self.space.claim(slots);
        claimed.map_err(|refused| VolumeError::of_claim(map.name(), refused))?;
        let made = self.make_leaves(map, from_bytes, to_bytes);
        match made {
            Ok(()) => map.keep_for_nodes(to_bytes),
            Err(_) => store.release_claim(block_slots(more_bytes)),
        }
        store.release_claim(2 * node_slots(more_bytes));
        made
    }

    /// Claims memory for additional blocks. The caller must hold neither a pin nor a lane.
    pub(super) fn claim_blocks(&self, map: &VolumeMap, more_bytes: u64) -> Result<(), VolumeError> {
        if !map.claims.is_claimed() || more_bytes == 0 {
            return Ok(());
        }
        let nodes = node_slots(more_bytes);
        let claimed = self.space.claim(block_slots(more_bytes) + nodes);
        claimed.map_err(|refused| VolumeError::of_claim(map.name(), refused))?;
        map.keep_for_nodes(map.size_bytes() + more_bytes);
        self.pool.store.release_claim(nodes);
        Ok(())
    }

    fn become_guaranteed(&self, map: &VolumeMap) -> Result<(), VolumeError> {
        let store = &self.pool.store;
        let size_bytes = map.size_bytes();
        // Slots that the volume already uses.
        let (there, _) = map.count_pages(|entry| store.is_raw_of_one(entry));
        let slots = block_slots(size_bytes).saturating_sub(there) + 2 * node_slots(size_bytes);
        let claimed = self.space.claim(slots);
        claimed.map_err(|refused| VolumeError::of_claim(map.name(), refused))?;
        {
            let _held = self.pool.locks.lock_all();
            map.claims.set_stage(Stage::Becoming);
        }
        let made = self.make_leaves(map, 0, size_bytes);
        let stored = made.and_then(|()| self.store_all_alone(map));
        if let Err(error) = stored {
            let _held = self.pool.locks.lock_all();
            map.claims.set_stage(Stage::Thin);
            store.release_claim(slots);
            return Err(error);
        }
        record_class(map, CapacityClass::Guaranteed);
        let _held = self.pool.locks.lock_all();
        map.enter_guaranteed(slots);
        Ok(())
    }

    /// Creates the leaves of a byte range.
    fn make_leaves(
        &self,
        map: &VolumeMap,
        from_bytes: u64,
        to_bytes: u64,
    ) -> Result<(), VolumeError> {
        for leaf in from_bytes / LEAF_BYTES..leaves_in(to_bytes) {
            let range = ByteRange::new(leaf * LEAF_BYTES, 0);
            let fail = |error| DeviceError::new(refusal(error), Action::Write, range);
            let make = || map.make_one_leaf(leaf).map_err(fail);
            let made = self.space.find(map, || false, make);
            made.map_err(|error| VolumeError::of_request(map.name(), error))?;
        }
        Ok(())
    }

    /// Stores every page of the volume uncompressed, in an unshared slot.
    fn store_all_alone(&self, map: &VolumeMap) -> Result<(), VolumeError> {
        let store = &self.pool.store;
        let mut from = 0;
        loop {
            let (leaf, blocks) = {
                let pinned = store.pin();
                let next = map.tree.next_leaf(store, &pinned, from);
                let Some((leaf, node)) = next else { return Ok(()) };
                let is_todo = |&index: &usize| {
                    let entry = store.entry(&pinned, node, index);
                    is_page(entry) && !store.is_unshared_raw(entry)
                };
                let todo = (0..NODE_ENTRY_COUNT).filter(is_todo);
                (leaf, todo.map(|index| leaf * LEAF_BLOCKS + index as u64).collect::<Vec<_>>())
            };
            for block in blocks {
                let stored = self.space.find(map, || false, || store_alone(map, block));
                stored.map_err(|error| VolumeError::of_request(map.name(), error))?;
            }
            from = leaf + 1;
        }
    }
}

fn record_class(map: &VolumeMap, capacity: CapacityClass) {
    map.set_shape(Shape { capacity, ..map.shape() });
}

fn store_alone(map: &VolumeMap, block: u64) -> Result<(), DeviceError> {
    let store = &map.pool.store;
    let mut writer = store.writer();
    let stored = map.update_own(&mut writer, block, |writer, now| {
        let mut contents: Block = [0; BLOCK_BYTES];
        // An unreadable page stays: reads of it fail until it is overwritten.
        if !is_page(now)
            || store.is_unshared_raw(now)
            || store.read_verified(&writer.pinned, now, &mut contents).is_err()
        {
            return Ok(None);
        }
        let page =
            writer.lane.store_page(&writer.pinned, &contents, map.policy(), || Purpose::Claimed)?;
        Ok(Some(Update::Page(page)))
    });
    let fail = |error| DeviceError::new(refusal(error), Action::Write, block_range(block));
    stored.map(drop).map_err(fail)
}
