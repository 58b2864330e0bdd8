//! One volume: its map, its name, and the admission of requests.

use std::sync::{Arc, Mutex};

use block_device::{Action, ByteRange, ChangeExtent, DeviceError, DeviceErrorKind};
use sync::Pinned;

use crate::device::hooks::Hooks;
use crate::map::table::Kind;
use crate::map::view::VolumeUsage;
use crate::map::volume_map::VolumeMap;
use crate::space::find::Space;
use crate::spec::{CapacityClass, Durability, Reduction, VolumeMirror};
use crate::walks::capture::CaptureWalk;

/// An open volume. Handles outlive the volume's deletion. Their requests then fail with `Gone`.
#[derive(Debug)]
pub struct Volume {
    pub(crate) map: Arc<VolumeMap>,
    pub(crate) space: Arc<Space>,
    pub(crate) hooks: Arc<Hooks>,
    /// Snapshots of the volume. For a snapshot, those of its volume.
    pub(crate) snapshots: Arc<SnapshotList>,
}

/// The snapshots of one volume, oldest first.
#[derive(Debug, Default)]
pub(crate) struct SnapshotList(Mutex<Vec<Arc<VolumeMap>>>);

impl SnapshotList {
    pub(crate) fn add(&self, snapshot: &Arc<VolumeMap>) {
        self.change(|list| {
            list.push(Arc::clone(snapshot));
            list.sort_by_key(|one| one.id());
        });
    }

    pub(crate) fn remove(&self, snapshot: &Arc<VolumeMap>) {
        self.change(|list| list.retain(|one| !Arc::ptr_eq(one, snapshot)));
    }

    pub(crate) fn all(&self) -> Vec<Arc<VolumeMap>> {
        self.change(|list| list.clone())
    }

    fn change<Result>(&self, change: impl FnOnce(&mut Vec<Arc<VolumeMap>>) -> Result) -> Result {
        change(&mut self.0.lock().expect("nothing panics with the snapshots locked"))
    }
}

impl Volume {
    pub(crate) fn new(
        map: Arc<VolumeMap>,
        space: &Arc<Space>,
        hooks: &Arc<Hooks>,
        snapshots: Arc<SnapshotList>,
    ) -> Arc<Self> {
        Arc::new(Self { map, space: Arc::clone(space), hooks: Arc::clone(hooks), snapshots })
    }

    /// Map of the volume's blocks, and of their state in stable storage.
    pub fn map(&self) -> &Arc<VolumeMap> {
        &self.map
    }

    /// Name of the volume. For a snapshot `VOLUME@SNAPSHOT`.
    pub fn name(&self) -> String {
        self.map.name()
    }

    /// Id of the volume: not zero, and never reused for another volume of this pool, also after
    /// renames and restarts.
    pub fn id(&self) -> u64 {
        self.map.id()
    }

    /// Returns whether this is a snapshot, which never changes.
    pub fn is_snapshot(&self) -> bool {
        self.map.kind == Kind::Snapshot
    }

    /// Name of a snapshot without the name of its volume.
    pub fn snapshot_name(&self) -> String {
        own_name(&self.map)
    }

    /// Id of the source volume or snapshot, if this is a snapshot, clone or frozen copy.
    pub fn origin_id(&self) -> Option<u64> {
        self.map.origin().map(|origin| origin.volume_id)
    }

    /// Time of the copy in Unix seconds, as its creator gave it; 0 if unknown.
    pub fn created_unix_seconds(&self) -> u64 {
        self.map.origin().map_or(0, |origin| origin.created_unix_seconds)
    }

    pub fn reduction(&self) -> Reduction {
        self.map.reduction()
    }

    /// Guarantee of a flush.
    pub fn durability(&self) -> Durability {
        self.map.durability()
    }

    /// Participation in mirrored flushes.
    pub fn mirror(&self) -> VolumeMirror {
        self.map.mirror()
    }

    /// Behaviour of the volume when the pool is full.
    pub fn capacity_class(&self) -> CapacityClass {
        self.map.capacity_class()
    }

    /// Number of readable bytes that were written and not discarded. A cheap call.
    pub fn written_bytes(&self) -> u64 {
        self.map.written_bytes()
    }

    /// Usage of the volume. Walks the map: the time is proportional to the written blocks.
    pub fn usage(&self) -> VolumeUsage {
        self.map.usage()
    }

    /// Begins a walk over the blocks that are not in the journal, or returns `None` if there are
    /// none. The walk finds every write that was acknowledged before the call.
    pub fn walk_unjournaled(&self) -> Option<CaptureWalk> {
        CaptureWalk::begin(&self.map, &self.hooks.integrity)
    }

    /// Heals a block whose page a reader found damaged, or declares it lost. The caller must hold
    /// neither a pin nor a lane.
    pub fn mend_block(&self, block: u64) {
        self.hooks.integrity.mend_block(&self.map, block);
    }

    /// Returns the earlier states to compare with, oldest first: all snapshots of a volume, or the
    /// snapshots of the same volume that precede this snapshot.
    pub(super) fn earlier_states(&self) -> Vec<Arc<VolumeMap>> {
        let mut earlier = self.snapshots.all();
        earlier.retain(|snapshot| !self.is_snapshot() || snapshot.id() < self.id());
        earlier
    }

    /// Lists byte ranges in `range` that differ from an earlier state, in runs.
    pub(crate) fn list_changes(
        &self,
        since: &VolumeMap,
        range: ByteRange,
        count_max: usize,
    ) -> Result<Vec<ChangeExtent>, DeviceError> {
        let admit = |pinned: &Pinned<'_>| self.admit(pinned, Action::ListChanges, range);
        self.map.list_changes(since, (range, count_max), admit)
    }

    /// Rejects a request that does not fit the volume's current state. Must be called under the pin
    /// of the request, so that the administration can wait for the request before it shrinks or
    /// deletes the volume.
    pub(crate) fn admit(
        &self,
        _pinned: &Pinned<'_>,
        action: Action,
        range: ByteRange,
    ) -> Result<(), DeviceError> {
        let map = &*self.map;
        let changes = matches!(action, Action::Write | Action::WriteZeroes | Action::Discard);
        // A volume whose flushes fail rejects changes, because they would have to be flushed.
        let is_read_only =
            || map.kind != Kind::Volume || map.is_journaled() && self.hooks.is_journal_failing();
        let kind = if map.is_gone() {
            DeviceErrorKind::Gone
        } else if changes && is_read_only() {
            DeviceErrorKind::ReadOnly
        } else if !range.fits(map.size_bytes()) {
            DeviceErrorKind::OutOfRange
        } else {
            return Ok(());
        };
        Err(DeviceError::new(kind, action, range))
    }
}

/// Returns the name of a snapshot without the name of its volume.
pub(super) fn own_name(snapshot: &VolumeMap) -> String {
    let name = snapshot.name();
    name.split_once('@').map_or("", |(_, own)| own).to_owned()
}
