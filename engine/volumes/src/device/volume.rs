//! One volume: its map, its name, and whether a request may begin.

use std::sync::{Arc, Mutex};

use block_device::{Action, ByteRange, ChangeExtent, DeviceError, DeviceErrorKind};
use sync::Pinned;

use crate::device::hooks::Hooks;
use crate::map::table::Kind;
use crate::map::view::VolumeUsage;
use crate::map::volume_map::VolumeMap;
use crate::space::find::Space;
use crate::spec::{CapacityClass, Durability, Reduction};
use crate::walks::capture::CaptureWalk;

/// An open volume. Handles outlive the volume's deletion; their requests then fail with `Gone`.
#[derive(Debug)]
pub struct Volume {
    pub(crate) map: Arc<VolumeMap>,
    pub(crate) space: Arc<Space>,
    pub(crate) hooks: Arc<Hooks>,
    /// Those of the volume; of a snapshot, those of the volume that it is of.
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

    /// Map of the volume's blocks, and of what stable storage has of them.
    pub fn map(&self) -> &Arc<VolumeMap> {
        &self.map
    }

    /// Name of the volume; of a snapshot `VOLUME@SNAPSHOT`.
    pub fn name(&self) -> String {
        self.map.name()
    }

    /// Id of the volume: not zero, and never given to another volume of this pool, also after
    /// renames and restarts.
    pub fn id(&self) -> u64 {
        self.map.id()
    }

    /// Returns whether this is a snapshot, which never changes.
    pub fn is_snapshot(&self) -> bool {
        self.map.kind == Kind::Snapshot
    }

    /// The name of a snapshot without its volume's.
    pub fn snapshot_name(&self) -> String {
        own_name(&self.map)
    }

    /// Id of the volume or snapshot that this is a snapshot, clone or frozen copy of.
    pub fn origin_id(&self) -> Option<u64> {
        self.map.origin().map(|origin| origin.volume_id)
    }

    /// Time of the copy in Unix seconds, as its maker gave it; 0 when it is not known.
    pub fn created_unix_seconds(&self) -> u64 {
        self.map.origin().map_or(0, |origin| origin.created_unix_seconds)
    }

    pub fn reduction(&self) -> Reduction {
        self.map.reduction()
    }

    /// Promise of a flush.
    pub fn durability(&self) -> Durability {
        self.map.durability()
    }

    /// Behaviour of the volume when the pool is full.
    pub fn capacity_class(&self) -> CapacityClass {
        self.map.capacity_class()
    }

    /// Readable bytes that were written and not discarded. A cheap call.
    pub fn written_bytes(&self) -> u64 {
        self.map.written_bytes()
    }

    /// Walks the map: takes time in proportion to what is written.
    pub fn usage(&self) -> VolumeUsage {
        self.map.usage()
    }

    /// Begins a walk over the blocks that are not in the journal; `None` if there are none. It
    /// finds every write that was acknowledged before the call.
    pub fn walk_unjournaled(&self) -> Option<CaptureWalk> {
        CaptureWalk::begin(&self.map, &self.hooks.integrity)
    }

    /// Heals a block whose page a reader found damaged, or declares it lost. Must not be called
    /// while pinned or with a lane.
    pub fn mend_block(&self, block: u64) {
        self.hooks.integrity.mend_block(&self.map, block);
    }

    /// Earlier states that this is compared with: all snapshots of a volume, and of a snapshot
    /// those that its volume has from before it; oldest first.
    pub(super) fn earlier_states(&self) -> Vec<Arc<VolumeMap>> {
        let mut earlier = self.snapshots.all();
        earlier.retain(|snapshot| !self.is_snapshot() || snapshot.id() < self.id());
        earlier
    }

    /// Byte ranges in `range` that differ from those of an earlier state, in runs.
    pub(crate) fn list_changes(
        &self,
        since: &VolumeMap,
        range: ByteRange,
        count_max: usize,
    ) -> Result<Vec<ChangeExtent>, DeviceError> {
        let admit = |pinned: &Pinned<'_>| self.admit(pinned, Action::ListChanges, range);
        self.map.list_changes(since, (range, count_max), admit)
    }

    /// Refuses a request that does not fit the volume as it is now. Asked under the pin that the
    /// request runs in, so that the administration can wait for it before it cuts or deletes the
    /// volume.
    pub(crate) fn admit(
        &self,
        _pinned: &Pinned<'_>,
        action: Action,
        range: ByteRange,
    ) -> Result<(), DeviceError> {
        let map = &*self.map;
        let changes = matches!(action, Action::Write | Action::WriteZeroes | Action::Discard);
        // A volume whose flushes fail refuses what would have to be flushed.
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

/// The name of a snapshot without its volume's.
pub(super) fn own_name(snapshot: &VolumeMap) -> String {
    let name = snapshot.name();
    name.split_once('@').map_or("", |(_, own)| own).to_owned()
}
