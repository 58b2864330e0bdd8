//! Copies of whole maps: snapshots, clones, and the initial state of frozen copies.
//!
//! A copy begins as a second reference to the same root. It takes only a record of the table, and
//! the same time for volumes of any size. All blocks of the pool are locked meanwhile, so all
//! volumes that are copied together have the same instant: a copy contains every write acknowledged
//! before it, and no write without those that precede it.
//!
//! ```text
//!  records of a new group ─▶ blocks locked: roots shared, root words stored ─▶ group committed
//!  ── a kill leaves no copy ──────────────────────────────────────────────────┤── all of them ─
//! ```

use std::sync::Arc;

use block_device::{ByteRange, ChangeExtent, DeviceError};
use page_store::NoSpace;

use crate::admin::engine::Engine;
use crate::admin::volumes::snapshot_name;
use crate::device::volume::{SnapshotList, Volume};
use crate::error::{VolumeError, VolumeErrorKind};
use crate::map::table::{self, Commit, Kind, MirrorState, Origin, Stored};
use crate::map::volume_map::{Place, VolumeMap};
use crate::spec::{CapacityClass, Durability, VolumeName};

/// Parameters of the copies to be created.
pub(super) struct Plan {
    /// Name of each copy. If `None`, each copy takes the name of its source.
    name: Option<VolumeName>,
    kind: Kind,
    created_unix_seconds: u64,
    /// Id to reuse for a single copy. If `None`, a new id is allocated.
    id: Option<u64>,
}

impl Plan {
    pub(super) fn frozen() -> Self {
        Self { name: None, kind: Kind::Frozen, created_unix_seconds: 0, id: None }
    }
}

impl Engine {
    /// Creates a snapshot `VOLUME@NAME` of each volume, all at the same instant. The call is
    /// atomic, also across a kill of the process: all snapshots are created, or none. They take
    /// memory only as the volumes change.
    pub fn create_snapshots(
        &self,
        volumes: &[&str],
        snapshot: &VolumeName,
        created_unix_seconds: u64,
    ) -> Result<Vec<Arc<Volume>>, VolumeError> {
        let (name, kind) = (Some(snapshot.clone()), Kind::Snapshot);
        let plan = Plan { name, kind, created_unix_seconds, id: None };
        self.make_snapshots(volumes, snapshot, &plan)
    }

    /// Recreates a snapshot with its former id, after the pool was lost.
    pub fn create_snapshot_again(
        &self,
        volume: &str,
        snapshot: &VolumeName,
        created_unix_seconds: u64,
        id: u64,
    ) -> Result<(), VolumeError> {
        let (name, kind) = (Some(snapshot.clone()), Kind::Snapshot);
        let plan = Plan { name, kind, created_unix_seconds, id: Some(id) };
        self.make_snapshots(&[volume], snapshot, &plan).map(drop)
    }

    fn make_snapshots(
        &self,
        volumes: &[&str],
        snapshot: &VolumeName,
        plan: &Plan,
    ) -> Result<Vec<Arc<Volume>>, VolumeError> {
        let _administration = self.administrate();
        let mut sources = Vec::new();
        for (index, &name) in volumes.iter().enumerate() {
            sources.push(self.changeable(name)?);
            let full_name = snapshot_name(name, snapshot.as_str());
            if volumes[..index].contains(&name) {
                return Err(VolumeError::new(VolumeErrorKind::AlreadyExists, full_name));
            }
            self.check_free(&full_name)?;
        }
        let copies = self.copy_maps(&maps_of(&sources), plan)?;
        let list = |(source, copy): (&Arc<Volume>, Arc<VolumeMap>)| {
            copy.set_name(snapshot_name(&source.name(), snapshot.as_str()));
            source.snapshots.add(&copy);
            let copy = self.volume_of(copy, Arc::clone(&source.snapshots));
            self.list_volume(&copy);
            copy
        };
        Ok(sources.iter().zip(copies).map(list).collect())
    }

    pub fn snapshot(&self, volume: &str, snapshot: &str) -> Result<Arc<Volume>, VolumeError> {
        self.volume(&snapshot_name(volume, snapshot))
    }

    /// Deletes a snapshot. Snapshots can be deleted in any order. [`Engine::maintain`] frees the
    /// memory that only this snapshot used, in steps.
    pub fn delete_snapshot(&self, volume: &str, snapshot: &str) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let snapshot = self.snapshot(volume, snapshot)?;
        self.unlist_and_retire(&snapshot);
        Ok(())
    }

    pub fn rename_snapshot(
        &self,
        volume: &str,
        snapshot: &str,
        new_name: &VolumeName,
    ) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let (name, new) =
            (snapshot_name(volume, snapshot), snapshot_name(volume, new_name.as_str()));
        let snapshot = self.volume(&name)?;
        if name != new {
            self.check_free(&new)?;
            snapshot.map.record().rename(&self.pool.store, new_name);
            self.list_under(&snapshot, new);
        }
        Ok(())
    }

    /// Creates a clone of a volume or of a snapshot (`VOLUME@SNAPSHOT`). The clone does not depend
    /// on its source, and takes memory only as either changes.
    pub fn clone_volume(
        &self,
        source: &str,
        new_name: VolumeName,
    ) -> Result<Arc<Volume>, VolumeError> {
        let _administration = self.administrate();
        let source = self.volume(source)?;
        self.check_free(new_name.as_str())?;
        let (name, kind) = (Some(new_name.clone()), Kind::Volume);
        let plan = Plan { name, kind, created_unix_seconds: 0, id: None };
        let copies = self.copy_maps(&maps_of(&[source]), &plan)?;
        let [map] = <[_; 1]>::try_from(copies).expect("one copy was made");
        map.dirty_leaves.set_first(map.leaf_count());
        let clone = self.volume_of(map, Arc::<SnapshotList>::default());
        self.list_volume(&clone);
        Ok(clone)
    }

    /// Rolls a volume back to one of its snapshots, including its size. The current contents are
    /// lost. The snapshot stays. Concurrent requests see the old or the new contents of each block.
    pub fn restore_snapshot(&self, volume: &str, snapshot: &str) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let (target, snapshot) = (self.changeable(volume)?, self.snapshot(volume, snapshot)?);
        let (target, snapshot) = (&*target.map, &*snapshot.map);
        self.end_trimming(target)?;
        self.end_leak_check();
        let store = &self.pool.store;
        let (old_bytes, new_bytes) = (target.size_bytes(), snapshot.size_bytes());
        if new_bytes < old_bytes {
            // From here on requests past the new end are rejected.
            target.set_size_bytes(new_bytes);
            store.wait_for_readers();
        }
        let claimed = self.claim_blocks(target, new_bytes.saturating_sub(old_bytes));
        let exchanged = claimed.and_then(|()| {
            let exchanged = self.exchange_map(target, snapshot);
            let unused_bytes = match exchanged {
                Ok(()) => old_bytes.saturating_sub(new_bytes),
                Err(_) => new_bytes.saturating_sub(old_bytes),
            };
            target.release_blocks(unused_bytes);
            exchanged
        });
        if let Err(error) = exchanged {
            target.set_size_bytes(old_bytes);
            return Err(error);
        }
        target.set_size_bytes(new_bytes);
        self.note_table_change();
        Ok(())
    }

    /// Compares `range` of `to` with `from`. Returns runs of bytes, changed or unchanged, that
    /// cover the range from its start: at most `count_max` runs, so the last may end before the
    /// range does, and at least one unless the range is empty. Bytes past the end of `from` count
    /// as changed. The time depends on the number of nodes that the maps do not share. The result
    /// is exact for blocks that do not change meanwhile.
    pub fn diff(
        &self,
        from: &Volume,
        to: &Volume,
        range: ByteRange,
        count_max: usize,
    ) -> Result<Vec<ChangeExtent>, DeviceError> {
        to.list_changes(&from.map, range, count_max)
    }

    /// Creates copies that are not listed yet.
    pub(super) fn copy_maps(
        &self,
        sources: &[Arc<VolumeMap>],
        plan: &Plan,
    ) -> Result<Vec<Arc<VolumeMap>>, VolumeError> {
        let copies = self.try_to_copy_maps(sources, plan);
        match &copies {
            // Lasting copies take precedence over frozen ones, whose reader can retry.
            Err(error) if error.kind == VolumeErrorKind::NoSpace && plan.kind != Kind::Frozen => {
                match self.space.take_back_frozen() {
                    true => self.try_to_copy_maps(sources, plan),
                    false => copies,
                }
            }
            _ => copies,
        }
    }

    fn try_to_copy_maps(
        &self,
        sources: &[Arc<VolumeMap>],
        plan: &Plan,
    ) -> Result<Vec<Arc<VolumeMap>>, VolumeError> {
        // Counts of a volume's blocks are exact only after the leak check.
        self.end_leak_check();
        let store = &self.pool.store;
        let places = self.places_for(sources, plan.kind)?;
        let group = table::next_group(store);
        let copies: Vec<_> = sources
            .iter()
            .zip(places)
            .map(|(source, place)| self.begin_copy(source, place, plan, group))
            .collect();
        self.share_maps(sources, &copies, group)
            .inspect_err(|_| copies.iter().for_each(|copy| copy.retire()))?;
        Ok(copies)
    }

    /// Finds a free place for the copy of each source.
    fn places_for(
        &self,
        sources: &[Arc<VolumeMap>],
        kind: Kind,
    ) -> Result<Vec<Place>, VolumeError> {
        let count = sources.len();
        if kind == Kind::Frozen {
            let places = self.free_frozen_places(count);
            return match sources.get(places.len()) {
                None => Ok(places),
                Some(next) => Err(VolumeError::new(VolumeErrorKind::TooManyVolumes, next.name())),
            };
        }
        let Some(first) = sources.first() else { return Ok(Vec::new()) };
        let durable = sources.iter().filter(|it| it.durability() != Durability::Ram).count();
        if durable > 0 {
            self.check_durable_count(durable, &first.name())?;
        }
        let records = self.free_records(count, &first.name())?;
        Ok(records.into_iter().map(Place::Listed).collect())
    }

    /// Creates an empty copy that is not committed yet.
    fn begin_copy(
        &self,
        source: &VolumeMap,
        place: Place,
        plan: &Plan,
        group: u64,
    ) -> Arc<VolumeMap> {
        let store = &self.pool.store;
        let mut shape = source.shape();
        shape.kind = plan.kind;
        shape.capacity = CapacityClass::Thin;
        shape.mirror = MirrorState::begin(source.mirror());
        let own_name = || source.record().name(store).expect("the volume was made with a name");
        let stored = Stored {
            name: plan.name.clone().unwrap_or_else(own_name),
            id: table::take_id(store, plan.id),
            size_bytes: source.size_bytes(),
            shape,
            written_blocks: 0,
            fill_blocks: 0,
            untried_blocks: 0,
            base: None,
            is_anchored: false,
            origin: Some(Origin {
                volume_id: source.id(),
                created_unix_seconds: plan.created_unix_seconds,
            }),
        };
        if let Place::Listed(record) = place {
            record.create(store, &stored, Commit::WithGroup(group));
        }
        VolumeMap::new(Arc::clone(&self.pool), place, &stored)
    }

    /// Shares the roots of all sources at one instant. Fails if the reference count of a root is at
    /// its maximum, or if a volume of class `guaranteed` cannot claim memory for copies of its
    /// pages.
    fn share_maps(
        &self,
        sources: &[Arc<VolumeMap>],
        copies: &[Arc<VolumeMap>],
        group: u64,
    ) -> Result<(), VolumeError> {
        let store = &self.pool.store;
        let _all_held = self.pool.locks.lock_all();
        let pinned = store.pin();
        for (source, copy) in sources.iter().zip(copies) {
            if copy.kind != Kind::Frozen {
                let shared = source.share_pages();
                shared.map_err(|refused| VolumeError::of_claim(source.name(), refused))?;
            }
            copy.become_copy_of(source, &pinned).map_err(|NoSpace| no_space(source))?;
        }
        table::commit_group(store, group);
        Ok(())
    }

    /// Replaces the map of a volume by the map of a snapshot.
    fn exchange_map(&self, target: &VolumeMap, snapshot: &VolumeMap) -> Result<(), VolumeError> {
        let _all_held = self.pool.locks.lock_all();
        let pinned = self.pool.store.pin();
        let shared = target.share_pages();
        shared.map_err(|refused| VolumeError::of_claim(target.name(), refused))?;
        target.revert_to(snapshot, &pinned).map_err(|NoSpace| no_space(target))
    }
}

fn no_space(map: &VolumeMap) -> VolumeError {
    VolumeError::new(VolumeErrorKind::NoSpace, map.name())
}

pub(super) fn maps_of(volumes: &[Arc<Volume>]) -> Vec<Arc<VolumeMap>> {
    volumes.iter().map(|volume| Arc::clone(&volume.map)).collect()
}
