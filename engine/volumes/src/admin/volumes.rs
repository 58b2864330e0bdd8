//! Creation, changes and deletion of volumes.

use std::sync::Arc;

use block_device::ByteRange;

use crate::admin::engine::Engine;
use crate::blocks::whole_blocks;
use crate::device::discard::trim;
use crate::device::volume::{SnapshotList, Volume};
use crate::error::{SnapshotsLeft, VolumeError, VolumeErrorKind};
use crate::map::table::{self, Commit, Kind, MirrorState, Shape, Stored};
use crate::map::volume_map::{Place, VolumeMap};
use crate::spec::{
    CapacityClass, Durability, Reduction, SIZE_BYTES_MAX, ShrinkPolicy, VolumeName, VolumeSpec,
    is_size,
};

/// Number of map nodes that a deletion frees at once: 512 MiB of blocks. Maintenance frees the
/// rest.
const NODES_DROPPED_AT_ONCE: usize = 256;

impl Engine {
    pub fn create_volume(&self, spec: VolumeSpec) -> Result<Arc<Volume>, VolumeError> {
        let _administration = self.administrate();
        let is_claimed = spec.capacity == CapacityClass::Guaranteed;
        // Until its map is complete, a kill deletes a volume of class `guaranteed`.
        let volume = self.make_volume(spec, None, is_claimed)?;
        if is_claimed {
            let map = &volume.map;
            self.complete_map(map).inspect_err(|_| self.drop_volume(&volume))?;
            map.record().end_filling(&self.pool.store);
            map.set_anchored(map.durability() == Durability::Journal);
        }
        self.list_volume(&volume);
        Ok(volume)
    }

    /// Creates a volume that is not listed yet, with the given id if there is one.
    pub(super) fn make_volume(
        &self,
        spec: VolumeSpec,
        id: Option<u64>,
        is_filling: bool,
    ) -> Result<Arc<Volume>, VolumeError> {
        let name = spec.name.as_str();
        check_size(name, spec.size_bytes)?;
        self.check_free(name)?;
        let store = &self.pool.store;
        if spec.durability != Durability::Ram {
            self.check_durable_count(1, name)?;
        }
        let records = self.free_records(1, name)?;
        let [record] = <[_; 1]>::try_from(records).expect("one was asked for");
        let shape = Shape {
            sector: spec.sector,
            reduction: spec.reduction,
            durability: spec.durability,
            capacity: spec.capacity,
            kind: Kind::Volume,
            mirror: MirrorState::begin(spec.mirror),
        };
        if spec.capacity == CapacityClass::Guaranteed {
            self.claim_for(name, spec.size_bytes)?;
        }
        let stored = Stored {
            name: spec.name,
            id: table::take_id(store, id),
            size_bytes: spec.size_bytes,
            shape,
            written_blocks: 0,
            fill_blocks: 0,
            untried_blocks: 0,
            base: None,
            // Nothing is written, so the journal lacks nothing.
            is_anchored: spec.durability == Durability::Journal && !is_filling,
            origin: None,
        };
        let commit = if is_filling { Commit::WhenFilled } else { Commit::Now };
        record.create(store, &stored, commit);
        let map = VolumeMap::new(Arc::clone(&self.pool), Place::Listed(record), &stored);
        if stored.shape.capacity == CapacityClass::Guaranteed {
            map.note_claimed();
        }
        Ok(self.volume_of(map, Arc::<SnapshotList>::default()))
    }

    /// Deletes a volume. [`Engine::maintain`] frees the memory of a large one in steps. Fails while
    /// the volume has snapshots. Requests through handles that exports still hold fail with `Gone`.
    pub fn delete_volume(&self, name: &str) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let volume = self.changeable(name)?;
        self.check_has_no_snapshots(&volume)?;
        self.drop_volume(&volume);
        Ok(())
    }

    pub(super) fn drop_volume(&self, volume: &Arc<Volume>) {
        self.unlist_and_retire(volume);
        let store = &self.pool.store;
        if !store.reclaim_deferred(NODES_DROPPED_AT_ONCE) {
            store.reclaim();
        }
    }

    pub fn rename_volume(&self, name: &str, new_name: VolumeName) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let volume = self.changeable(name)?;
        if name == new_name.as_str() {
            return Ok(());
        }
        self.check_free(new_name.as_str())?;
        volume.map.record().rename(&self.pool.store, &new_name);
        self.list_under(&volume, new_name.to_string());
        for snapshot in self.snapshots_of(&volume) {
            let name = snapshot_name(new_name.as_str(), &snapshot.snapshot_name());
            self.list_under(&snapshot, name);
        }
        Ok(())
    }

    /// Changes the size of a volume. Blocks past the new end are dropped, if `shrink` allows it.
    pub fn resize_volume(
        &self,
        name: &str,
        size_bytes: u64,
        shrink: ShrinkPolicy,
    ) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let volume = self.changeable(name)?;
        let (map, store) = (&*volume.map, &self.pool.store);
        check_size(name, size_bytes)?;
        self.end_trimming(map)?;
        let old_bytes = map.size_bytes();
        if size_bytes >= old_bytes {
            self.claim_growth(map, size_bytes)?;
            map.record().set_size(store, size_bytes);
            map.set_size_bytes(size_bytes);
            self.note_table_change();
            return Ok(());
        }
        let lost = past_end(size_bytes);
        let is_refused =
            || shrink == ShrinkPolicy::KeepData && map.holds_data_in(whole_blocks(lost));
        let refusal = || VolumeError::new(VolumeErrorKind::DataPastNewEnd, name);
        if is_refused() {
            return Err(refusal());
        }
        // From here on requests past the new end are rejected. One may have run just before.
        map.set_size_bytes(size_bytes);
        store.wait_for_readers();
        if is_refused() {
            map.set_size_bytes(old_bytes);
            return Err(refusal());
        }
        map.record().begin_trimming(store);
        map.record().set_size(store, size_bytes);
        // If there is no memory for copies of shared nodes, the next resize continues.
        if trim(&self.space, map, lost).is_ok() {
            map.record().end_trimming(store);
        }
        map.release_blocks(old_bytes - size_bytes);
        self.note_table_change();
        store.reclaim();
        Ok(())
    }

    /// Discards what an earlier resize left past the volume's end.
    pub(super) fn end_trimming(&self, map: &VolumeMap) -> Result<(), VolumeError> {
        let store = &self.pool.store;
        if map.record().is_trimming(store) {
            let trimmed = trim(&self.space, map, past_end(map.size_bytes()));
            trimmed.map_err(|source| VolumeError {
                source: Some(source.into()),
                ..VolumeError::new(VolumeErrorKind::NoSpace, map.name())
            })?;
            map.record().end_trimming(store);
        }
        Ok(())
    }

    /// Changes the reduction of contents written from now on. Existing pages stay unchanged. Pages
    /// that wait for compression are still compressed.
    pub fn set_reduction(&self, name: &str, reduction: Reduction) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let volume = self.changeable(name)?;
        volume.map.set_shape(Shape { reduction, ..volume.map.shape() });
        self.note_table_change();
        Ok(())
    }

    /// Fails if the volume has snapshots.
    pub(super) fn check_has_no_snapshots(&self, volume: &Volume) -> Result<(), VolumeError> {
        let names: Vec<_> = self.snapshots_of(volume).iter().map(|one| one.name()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let source = Some(SnapshotsLeft { names }.into());
        Err(VolumeError {
            source,
            ..VolumeError::new(VolumeErrorKind::HasSnapshots, volume.name())
        })
    }
}

pub(super) fn check_size(name: &str, size_bytes: u64) -> Result<(), VolumeError> {
    if !is_size(size_bytes) {
        return Err(VolumeError::new(VolumeErrorKind::InvalidSize, name));
    }
    Ok(())
}

/// Returns the byte range past a volume's end.
pub(super) fn past_end(size_bytes: u64) -> ByteRange {
    ByteRange::new(size_bytes, SIZE_BYTES_MAX - size_bytes)
}

/// Returns the full name of a snapshot.
pub(super) fn snapshot_name(volume: &str, snapshot: &str) -> String {
    format!("{volume}@{snapshot}")
}
