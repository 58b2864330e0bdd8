//! A pool and the volumes in it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use block_device::{BLOCK_BYTES, ByteRange};
use page_store::{OpenError, PageStore, StoreOptions};
use region::Region;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::copies::snapshot_name;
use crate::error::{VolumeError, VolumeErrorKind};
use crate::leak_check::LeakCheck;
use crate::load::{End, load_volumes};
use crate::maintain::{Maintenance, Work};
use crate::shared::Shared;
use crate::spec::{
    CapacityClass, Durability, EngineOptions, Reduction, SIZE_BYTES_MAX, ShrinkPolicy, VolumeName,
    VolumeSpec, is_size,
};
use crate::table::{self, Commit, Kind, Shape, Stored};
use crate::usage::{OverwriteCensus, PoolUsage, Recovery};
use crate::volume::Volume;

/// Nodes of a map that its deletion takes apart: 512 MiB of blocks. Maintenance does the rest.
const NODES_DROPPED_AT_ONCE: usize = 256;

/// Volumes and snapshots by name; those of snapshots have an `@`.
pub(crate) type Volumes = BTreeMap<String, Arc<Volume>>;

/// The volumes of one pool. Shared by reference between threads; every method may be called from
/// any of them.
#[derive(Debug)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    volumes: RwLock<Volumes>,
    /// Held by operations that change the volume table.
    pub(crate) administration: Mutex<()>,
    maintenance: Mutex<Maintenance>,
    /// Held while the pool's size changes.
    pub(crate) resizing: Mutex<()>,
    /// What maintenance says of itself, for those who do not want to wait for it.
    is_checking_leaks: AtomicBool,
    pub(crate) table_version: AtomicU64,
    /// Why memory that the pool is to have could not be taken when it was last tried.
    pub(crate) memory_shortage: Mutex<Option<String>>,
}

impl Engine {
    /// Opens the pool in `region`, or makes one in a fresh region. After an unclean end it serves
    /// at once and [`Engine::maintain`] collects what leaked.
    pub fn open(region: Region, options: EngineOptions) -> Result<Self, OpenError> {
        let options =
            StoreOptions { lane_count: options.lane_count, fresh_secret: options.fresh_secret };
        let (store, leak_counts) = PageStore::open(region, options)?;
        let was_clean = leak_counts.is_none();
        let leak_check = LeakCheck::new(leak_counts);
        let shared = Arc::new(Shared::new(store, leak_check));
        let volumes = load_volumes(&shared, End::of(was_clean));
        let listed: Vec<_> = volumes.values().cloned().collect();
        let maintenance = Maintenance::new((!was_clean).then_some(listed));
        Ok(Self {
            shared,
            volumes: RwLock::new(volumes),
            administration: Mutex::new(()),
            maintenance: Mutex::new(maintenance),
            resizing: Mutex::new(()),
            is_checking_leaks: AtomicBool::new(!was_clean),
            table_version: AtomicU64::new(0),
            memory_shortage: Mutex::default(),
        })
    }

    pub fn create_volume(&self, spec: VolumeSpec) -> Result<Arc<Volume>, VolumeError> {
        let _administration = self.administrate();
        let name = spec.name.clone();
        let is_claimed = spec.capacity == CapacityClass::Guaranteed;
        // Until its map is made a volume of class `guaranteed` goes with a kill.
        let volume = self.make_volume(spec, None, is_claimed)?;
        if is_claimed {
            self.complete_map(&volume).inspect_err(|_| self.drop_volume(&volume))?;
            volume.record.end_filling(&self.shared.store);
            volume.set_anchored(volume.durability() == Durability::Journal);
        }
        self.list_volume(name.as_str(), &volume);
        Ok(volume)
    }

    /// Makes a volume that is not listed yet, with this id if there is a wish.
    pub(crate) fn make_volume(
        &self,
        spec: VolumeSpec,
        id: Option<u64>,
        is_filling: bool,
    ) -> Result<Arc<Volume>, VolumeError> {
        let name = spec.name.as_str();
        check_size(name, spec.size_bytes)?;
        self.check_free(name)?;
        let store = &self.shared.store;
        let record = table::all()
            .find(|record| record.is_free(store))
            .ok_or_else(|| VolumeError::new(VolumeErrorKind::TooManyVolumes, name))?;
        let shape = Shape {
            sector: spec.sector,
            reduction: spec.reduction,
            durability: spec.durability,
            capacity: spec.capacity,
            kind: Kind::Volume,
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
            // Nothing is written, so nothing is missing in the journal.
            is_anchored: spec.durability == Durability::Journal && !is_filling,
            origin: None,
        };
        let commit = if is_filling { Commit::WhenFilled } else { Commit::Now };
        record.create(store, &stored, commit);
        let volume = Volume::new(Arc::clone(&self.shared), record, &stored);
        if stored.shape.capacity == CapacityClass::Guaranteed {
            volume.note_claimed();
        }
        Ok(volume)
    }

    pub(crate) fn list_volume(&self, name: &str, volume: &Arc<Volume>) {
        self.shared.compression.watch(volume);
        self.write_volumes().insert(name.to_owned(), Arc::clone(volume));
        self.note_table_change();
    }

    /// A volume, or a snapshot as `VOLUME@SNAPSHOT`.
    pub fn volume(&self, name: &str) -> Result<Arc<Volume>, VolumeError> {
        let volumes = self.volumes.read().expect("nobody panics with the list locked");
        let found = volumes.get(name).cloned();
        found.ok_or_else(|| VolumeError::new(VolumeErrorKind::NotFound, name))
    }

    /// All volumes, by name, without their snapshots.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        let mut all = self.listed();
        all.retain(|volume| !volume.is_snapshot());
        all
    }

    /// All volumes and snapshots, by name.
    pub(crate) fn listed(&self) -> Vec<Arc<Volume>> {
        let volumes = self.volumes.read().expect("nobody panics with the list locked");
        volumes.values().cloned().collect()
    }

    /// The same, and frozen copies: all maps that there are, but for volumes that are being made.
    pub(crate) fn everything(&self) -> Vec<Arc<Volume>> {
        let mut all = self.listed();
        all.extend(self.shared.frozen.all());
        all
    }

    /// A volume that is no snapshot.
    pub(crate) fn changeable(&self, name: &str) -> Result<Arc<Volume>, VolumeError> {
        let volume = self.volume(name)?;
        match volume.is_snapshot() {
            true => Err(VolumeError::new(VolumeErrorKind::IsSnapshot, name)),
            false => Ok(volume),
        }
    }

    /// Deletes a volume and gives its memory back, that of a large one bit by bit in
    /// [`Engine::maintain`]. Refused while it has snapshots. Requests through handles that exports
    /// still hold fail with `Gone`.
    pub fn delete_volume(&self, name: &str) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let volume = self.changeable(name)?;
        self.check_has_no_snapshots(&volume)?;
        self.drop_volume(&volume);
        Ok(())
    }

    pub(crate) fn drop_volume(&self, volume: &Arc<Volume>) {
        self.unlist_and_retire(volume);
        let store = &self.shared.store;
        if !store.reclaim_deferred(NODES_DROPPED_AT_ONCE) {
            store.reclaim();
        }
    }

    /// Deletes a volume or snapshot. What its map holds is for maintenance to give back.
    pub(crate) fn unlist_and_retire(&self, volume: &Arc<Volume>) {
        volume.record.begin_deleting(&self.shared.store);
        volume.set_gone();
        self.write_volumes().retain(|_, listed| !Arc::ptr_eq(listed, volume));
        self.note_table_change();
        self.shared.store.wait_for_readers();
        // The search for leaks must see the map before it goes.
        self.end_leak_check();
        volume.give_up_claim();
        self.retire_map(volume);
    }

    pub fn rename_volume(&self, name: &str, new_name: VolumeName) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let volume = self.changeable(name)?;
        if name == new_name.as_str() {
            return Ok(());
        }
        self.check_free(new_name.as_str())?;
        volume.record.rename(&self.shared.store, &new_name);
        self.list_under(&volume, new_name.to_string());
        for snapshot in volume.snapshot_list() {
            let name = snapshot_name(new_name.as_str(), &snapshot.snapshot_name());
            self.list_under(&snapshot, name);
        }
        Ok(())
    }

    /// Lists a volume or snapshot under another name.
    pub(crate) fn list_under(&self, volume: &Arc<Volume>, name: String) {
        let mut volumes = self.write_volumes();
        volumes.remove(&volume.name());
        volume.set_name(name.clone());
        volumes.insert(name, Arc::clone(volume));
        drop(volumes);
        self.note_table_change();
    }

    /// Changes a volume's size. Blocks behind the new end are lost, if `shrink` allows that.
    pub fn resize_volume(
        &self,
        name: &str,
        size_bytes: u64,
        shrink: ShrinkPolicy,
    ) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let volume = self.changeable(name)?;
        check_size(name, size_bytes)?;
        self.end_trimming(&volume)?;
        let store = &self.shared.store;
        let old_bytes = volume.size_bytes();
        if size_bytes >= old_bytes {
            self.claim_growth(&volume, size_bytes)?;
            volume.record.set_size(store, size_bytes);
            volume.set_size_bytes(size_bytes);
            self.note_table_change();
            return Ok(());
        }
        let behind = behind(size_bytes);
        let is_refused = || shrink == ShrinkPolicy::KeepData && volume.holds_data_in(behind);
        let refusal = || VolumeError::new(VolumeErrorKind::DataBehindNewEnd, name);
        if is_refused() {
            return Err(refusal());
        }
        // From here on no request reaches behind the new end. One may have done so just before.
        volume.set_size_bytes(size_bytes);
        store.wait_for_readers();
        if is_refused() {
            volume.set_size_bytes(old_bytes);
            return Err(refusal());
        }
        volume.record.begin_trimming(store);
        volume.record.set_size(store, size_bytes);
        // Without memory for copies of what other maps share, the next resize goes on.
        if volume.discard_whole_blocks(behind).is_ok() {
            volume.record.end_trimming(store);
        }
        volume.release_blocks(old_bytes - size_bytes);
        self.note_table_change();
        store.reclaim();
        Ok(())
    }

    /// Drops what an earlier resize had to leave behind the volume's end.
    pub(crate) fn end_trimming(&self, volume: &Volume) -> Result<(), VolumeError> {
        let store = &self.shared.store;
        if volume.record.is_trimming(store) {
            let trimmed = volume.discard_whole_blocks(behind(volume.size_bytes()));
            trimmed.map_err(|source| VolumeError {
                source: Some(source.into()),
                ..VolumeError::new(VolumeErrorKind::NoSpace, volume.name())
            })?;
            volume.record.end_trimming(store);
        }
        Ok(())
    }

    /// Changes how contents are reduced from now on. What is stored stays as it is, or becomes what
    /// it was to become.
    pub fn set_reduction(&self, name: &str, reduction: Reduction) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let volume = self.changeable(name)?;
        let shape = Shape { reduction, ..volume.shape() };
        volume.record.set_shape(&self.shared.store, shape);
        volume.set_reduction(reduction);
        self.note_table_change();
        Ok(())
    }

    /// Where the memory goes. Takes note of how full the pool is: to be asked now and then.
    pub fn usage(&self) -> PoolUsage {
        let store = self.shared.store.usage();
        let mut usage = PoolUsage::new(&store, self.volumes().iter().map(|volume| &volume.counts));
        usage.level = self.shared.note_level(usage.committed_bytes(), usage.size_bytes);
        let census = self.overwrite_census(usage.map_bytes);
        let need_slots = census.need_slots(store.raw_page_count);
        usage.overwrite_need_bytes = need_slots * BLOCK_BYTES as u64;
        usage.overwrite_room_bytes = self.shared.store.overwrite_room_bytes(census.thin_blocks);
        usage
    }

    fn overwrite_census(&self, map_bytes: u64) -> OverwriteCensus {
        let mut census = OverwriteCensus::default();
        let mut is_sharing = false;
        for volume in self.listed() {
            is_sharing |= volume.origin_id().is_some();
            match (volume.is_snapshot(), volume.capacity_class()) {
                (true, _) => census.other_pages += volume.counts.pages(),
                (false, CapacityClass::Guaranteed) => census.other_pages += volume.own_pages(),
                (false, CapacityClass::Thin) => census.thin_blocks += volume.counts.written.sum(),
            }
        }
        if is_sharing {
            census.shared_nodes = map_bytes / BLOCK_BYTES as u64;
        }
        census
    }

    pub fn recovery(&self) -> Recovery {
        match self.is_checking_leaks.load(Ordering::Relaxed) {
            true => Recovery::Sweeping,
            false => Recovery::Complete,
        }
    }

    /// How much all threads but the caller's have done with the pool: grows by one to three with
    /// each request, modulo 2^32. Costs requests nothing.
    pub fn activity_of_others(&self) -> u32 {
        self.shared.store.pins_of_others()
    }

    /// How often the pool was opened, this time included.
    pub fn run_epoch(&self) -> u64 {
        self.shared.store.run_epoch()
    }

    /// Map entries found after an unclean end that named pages which were not there. Anything but
    /// zero means that the region was damaged.
    pub fn damaged_entries(&self) -> u64 {
        self.shared.leak_check.damaged()
    }

    /// Makes a piece of the pool's memory ready, from `offset` on, so that requests meet no page
    /// faults. Returns where the next piece begins, if there is one.
    pub fn populate(&self, offset: u64) -> std::io::Result<Option<u64>> {
        self.shared.store.populate(offset)
    }

    /// Does a bounded piece of the work that nobody waits for: collecting leaks, filling the
    /// dedup index, compressing what was stored as it is, emptying sparse slabs. Returns whether
    /// there is more to do now. One thread at a time does the work.
    pub fn maintain(&self) -> bool {
        self.maintain_only(Work::All)
    }

    /// The same for a part of the work: compression takes most of the time, and can wait while
    /// requests come in.
    pub fn maintain_only(&self, work: Work) -> bool {
        let mut maintenance = self.maintenance();
        let has_more = maintenance.step(&self.shared, work, || self.listed());
        self.is_checking_leaks.store(maintenance.is_checking_leaks(), Ordering::Relaxed);
        drop(maintenance);
        if !has_more {
            self.end_sharing();
        }
        has_more
    }

    /// Ends cleanly: drops what is retired and marks the pool so that the next open need not look
    /// for leaks. Requests through handles that are still held fail with `Gone`.
    pub fn close(self) {
        let store = &self.shared.store;
        self.end_leak_check();
        self.shared.note_closed();
        for volume in self.listed() {
            volume.set_gone();
        }
        store.wait_for_readers();
        self.release_withheld();
        self.shared.compression.stop();
        self.maintenance().stop(&self.shared);
        for volume in self.listed() {
            volume.record.set_counts(store, &volume.counts);
        }
        store.close();
    }

    /// Works until no leak is being searched for.
    pub(crate) fn end_leak_check(&self) {
        let mut maintenance = self.maintenance();
        while maintenance.is_checking_leaks() {
            maintenance.step(&self.shared, Work::ButCompression, Vec::new);
        }
    }

    pub(crate) fn check_free(&self, name: &str) -> Result<(), VolumeError> {
        match self.volume(name) {
            Ok(_) => Err(VolumeError::new(VolumeErrorKind::AlreadyExists, name)),
            Err(_) => Ok(()),
        }
    }

    pub(crate) fn administrate(&self) -> MutexGuard<'_, ()> {
        self.administration.lock().expect("a panic in administration ends the process")
    }

    pub(crate) fn maintenance(&self) -> MutexGuard<'_, Maintenance> {
        self.maintenance.lock().expect("a panic in maintenance ends the process")
    }

    fn write_volumes(&self) -> std::sync::RwLockWriteGuard<'_, Volumes> {
        self.volumes.write().expect("nobody panics with the list locked")
    }
}

pub(crate) fn check_size(name: &str, size_bytes: u64) -> Result<(), VolumeError> {
    if !is_size(size_bytes) {
        return Err(VolumeError::new(VolumeErrorKind::InvalidSize, name));
    }
    Ok(())
}

/// Everything behind a volume's end.
pub(crate) fn behind(size_bytes: u64) -> ByteRange {
    ByteRange::new(size_bytes, SIZE_BYTES_MAX - size_bytes)
}
