//! A pool and the lists of its volumes.

use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sync::atomic::{AtomicU64, Ordering};

use crate::admin::listing::Listing;
use crate::admin::maintenance::{Maintenance, Work};
use crate::device::hooks::Hooks;
use crate::device::volume::{SnapshotList, Volume};
use crate::error::{VolumeError, VolumeErrorKind};
use crate::map::table::{self, Record};
use crate::map::volume_map::VolumeMap;
use crate::pool::shared::Pool;
use crate::space::find::Space;
use crate::spec::Durability;

/// The volumes of one pool. Shared by reference between threads: every method may be called from
/// any thread.
#[derive(Debug)]
pub struct Engine {
    pub(super) pool: Arc<Pool>,
    pub(super) space: Arc<Space>,
    pub(super) hooks: Arc<Hooks>,
    listing: RwLock<Listing>,
    /// Held by operations that change the volume table.
    pub(super) administration: Mutex<()>,
    maintenance: Mutex<Maintenance>,
    /// Held while the pool's size changes.
    pub(super) resizing: Mutex<()>,
    table_version: AtomicU64,
    /// Error of the last attempt to take memory for the pool, if that failed.
    pub(super) memory_shortage: Mutex<Option<String>>,
}

impl Engine {
    /// Creates the engine from the volumes found in a pool.
    pub(super) fn new(space: Arc<Space>, hooks: Arc<Hooks>, listing: Listing) -> Self {
        listing.all().for_each(|volume| space.maps.add(&volume.map));
        let store = &space.pool.store;
        let free = table::all(store).filter(|record| record.is_free(store)).map(Record::number);
        space.pool.lock_free_records().extend(free);
        Self {
            pool: Arc::clone(&space.pool),
            space,
            hooks,
            listing: RwLock::new(listing),
            administration: Mutex::new(()),
            maintenance: Mutex::new(Maintenance::new()),
            resizing: Mutex::new(()),
            table_version: AtomicU64::new(0),
            memory_shortage: Mutex::default(),
        }
    }

    /// Finds a volume by name, or a snapshot as `VOLUME@SNAPSHOT`.
    pub fn volume(&self, name: &str) -> Result<Arc<Volume>, VolumeError> {
        let found = self.read_listing().get(name).cloned();
        found.ok_or_else(|| VolumeError::new(VolumeErrorKind::NotFound, name))
    }

    /// Returns all volumes without their snapshots, by name.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        self.read_listing().all().filter(|volume| !volume.is_snapshot()).cloned().collect()
    }

    /// Returns the volumes, without their snapshots, of class `image` or `journal`, by id. The time
    /// does not depend on the number of other volumes.
    pub fn durable_volumes(&self) -> Vec<Arc<Volume>> {
        self.read_listing().durable().cloned().collect()
    }

    /// Returns whether any volume is of class `image` or `journal`.
    pub fn has_durable_volumes(&self) -> bool {
        self.read_listing().durable().next().is_some()
    }

    /// Returns whether any volume is of class `journal`. The time does not depend on the number of
    /// volumes of class `ram`.
    pub fn has_journaled_volumes(&self) -> bool {
        let is_journaled = |volume: &Arc<Volume>| volume.durability() == Durability::Journal;
        self.read_listing().durable().any(is_journaled)
    }

    /// Returns all snapshots, by name.
    pub fn snapshots(&self) -> Vec<Arc<Volume>> {
        let mut snapshots: Vec<_> = self.read_listing().snapshots().cloned().collect();
        snapshots.sort_by_cached_key(|snapshot| snapshot.name());
        snapshots
    }

    /// Returns the snapshots of a volume, oldest first.
    pub fn snapshots_of(&self, volume: &Volume) -> Vec<Arc<Volume>> {
        self.read_listing().snapshots_of(volume.id()).cloned().collect()
    }

    /// Returns all volumes and snapshots, by name.
    pub(super) fn listed(&self) -> Vec<Arc<Volume>> {
        self.read_listing().all().cloned().collect()
    }

    /// Finds a volume that is not a snapshot.
    pub(super) fn changeable(&self, name: &str) -> Result<Arc<Volume>, VolumeError> {
        let volume = self.volume(name)?;
        match volume.is_snapshot() {
            true => Err(VolumeError::new(VolumeErrorKind::IsSnapshot, name)),
            false => Ok(volume),
        }
    }

    pub(super) fn check_free(&self, name: &str) -> Result<(), VolumeError> {
        match self.volume(name) {
            Ok(_) => Err(VolumeError::new(VolumeErrorKind::AlreadyExists, name)),
            Err(_) => Ok(()),
        }
    }

    pub(super) fn list_volume(&self, volume: &Arc<Volume>) {
        self.space.maps.add(&volume.map);
        self.write_listing().insert(Arc::clone(volume));
        self.note_table_change();
    }

    /// Creates the handle of a volume that is not listed yet.
    pub(super) fn volume_of(
        &self,
        map: Arc<VolumeMap>,
        snapshots: Arc<SnapshotList>,
    ) -> Arc<Volume> {
        Volume::new(map, &self.space, &self.hooks, snapshots)
    }

    /// Renames a listed volume or snapshot.
    pub(super) fn list_under(&self, volume: &Arc<Volume>, name: String) {
        self.write_listing().rename(volume, name);
        self.note_table_change();
    }

    /// Deletes a volume or snapshot. Maintenance frees the contents of its map.
    pub(super) fn unlist_and_retire(&self, volume: &Arc<Volume>) {
        let map = &volume.map;
        map.record().begin_deleting(&self.pool.store);
        map.set_gone();
        self.write_listing().remove(volume);
        self.space.maps.remove(map);
        volume.snapshots.remove(map);
        self.note_table_change();
        self.pool.store.wait_for_readers();
        // The leak check must visit the map before it is retired.
        self.end_leak_check();
        map.leave_guaranteed();
        map.retire();
        self.pool.limit_deferred();
    }

    /// Version of the volume table. It increases with every change to the list of volumes or their
    /// properties.
    pub fn table_version(&self) -> u64 {
        self.table_version.load(Ordering::Acquire)
    }

    pub(super) fn note_table_change(&self) {
        self.table_version.fetch_add(1, Ordering::Release);
    }

    /// Returns whether the leak check is in progress.
    pub(super) fn is_checking_leaks(&self) -> bool {
        self.space.leak_search.is_going_on()
    }

    /// Performs a step of maintenance. Returns whether more work is pending.
    pub(super) fn step_maintenance(&self, work: Work) -> bool {
        self.maintenance().step(&self.space, work)
    }

    /// Runs the leak check to its end.
    pub(super) fn end_leak_check(&self) {
        self.space.end_leak_search();
    }

    pub(super) fn administrate(&self) -> MutexGuard<'_, ()> {
        self.administration.lock().expect("a panic in administration ends the process")
    }

    pub(super) fn maintenance(&self) -> MutexGuard<'_, Maintenance> {
        self.maintenance.lock().expect("a panic in maintenance ends the process")
    }

    pub(super) fn read_listing(&self) -> RwLockReadGuard<'_, Listing> {
        self.listing.read().expect("nothing panics with the list locked")
    }

    pub(super) fn write_listing(&self) -> RwLockWriteGuard<'_, Listing> {
        self.listing.write().expect("nothing panics with the list locked")
    }
}
