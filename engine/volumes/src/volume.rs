//! One volume: the block device that exports serve.

use std::io::IoSlice;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use block_device::{
    Action, BlockDevice, ByteRange, ChangeExtent, DeviceError, DeviceErrorKind, Extent, Geometry,
    IO_BYTES_MAX, SectorSize, SnapshotId, SnapshotInfo, WriteCache, Zeroes,
};
use codec::BLOCK_BYTES;
use page_store::{Compression, NodeRef, Policy};
use sync::Pinned;
use sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::capacity::Capacity;
use crate::counts::Counts;
use crate::leaf_cache::LeafCache;
use crate::leaf_marks::LeafMarks;
use crate::map::{LEAF_BLOCKS, Map};
use crate::own::Sharing;
use crate::shared::Shared;
use crate::spec::{Durability, Reduction, place_of};
use crate::table::{ImageBase, Kind, Origin, Record, Shape, Stored};
use crate::usage::VolumeUsage;

/// An open volume. Handles outlive the volume's deletion; their requests then fail with `Gone`.
#[derive(Debug)]
pub struct Volume {
    this: Weak<Volume>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) record: Record,
    pub(crate) map: Map,
    pub(crate) leaves: LeafCache,
    pub(crate) sharing: Sharing,
    id: u64,
    pub(crate) sector: SectorSize,
    pub(crate) kind: Kind,
    origin: Option<Origin>,
    name: Mutex<String>,
    /// Those that have not been deleted when they were last looked at, oldest first.
    snapshots: Mutex<Vec<Weak<Volume>>>,
    /// Of a snapshot: the volume that lists it.
    listed_by: OnceLock<Weak<Volume>>,
    size_bytes: AtomicU64,
    reduction: AtomicU8,
    durability: AtomicU8,
    is_anchored: AtomicBool,
    /// Changes when the volume becomes what no earlier copy can speak for: it was restored, or its
    /// flushes promise something else.
    lineage: AtomicU64,
    is_gone: AtomicBool,
    pub(crate) capacity: Capacity,
    pub(crate) counts: Counts,
    pub(crate) untried_leaves: LeafMarks,
    /// Leaves with blocks that are not in the journal; kept up for class `journal` only.
    pub(crate) unjournaled_leaves: LeafMarks,
}

impl Volume {
    pub(crate) fn new(shared: Arc<Shared>, record: Record, stored: &Stored) -> Arc<Self> {
        let lane_count = shared.store.lane_count();
        let leaf_count = leaves_in(stored.size_bytes);
        let shape = stored.shape;
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            shared,
            record,
            map: Map { root_word: record.root_word() },
            leaves: match shape.kind {
                Kind::Volume => LeafCache::new(leaf_count),
                Kind::Snapshot | Kind::Frozen => LeafCache::new_for_copy(leaf_count),
            },
            sharing: Sharing::default(),
            id: stored.id,
            sector: shape.sector,
            kind: shape.kind,
            origin: stored.origin,
            name: Mutex::new(stored.name.to_string()),
            snapshots: Mutex::default(),
            listed_by: OnceLock::new(),
            size_bytes: AtomicU64::new(stored.size_bytes),
            reduction: AtomicU8::new(place_of(&Reduction::ALL, shape.reduction)),
            durability: AtomicU8::new(place_of(&Durability::ALL, shape.durability)),
            is_anchored: AtomicBool::new(stored.is_anchored),
            lineage: AtomicU64::new(0),
            is_gone: AtomicBool::new(false),
            capacity: Capacity::new(shape.capacity),
            counts: Counts::new(lane_count),
            untried_leaves: LeafMarks::new(),
            unjournaled_leaves: LeafMarks::new(),
        })
    }

    /// Its name; that of a snapshot is `VOLUME@SNAPSHOT`.
    pub fn name(&self) -> String {
        self.name.lock().expect("nobody panics with a name locked").clone()
    }

    /// Whether it is a copy that never changes.
    pub fn is_snapshot(&self) -> bool {
        self.kind == Kind::Snapshot
    }

    /// Whether it is a copy for somebody who reads it, and goes with that one.
    pub fn is_frozen(&self) -> bool {
        self.kind == Kind::Frozen
    }

    /// The name of a snapshot without its volume's.
    pub fn snapshot_name(&self) -> String {
        let name = self.name();
        name.split_once('@').map_or("", |(_, snapshot)| snapshot).to_owned()
    }

    /// Id of the volume or snapshot that this is a snapshot, clone or frozen copy of.
    pub fn origin_id(&self) -> Option<u64> {
        self.origin.map(|origin| origin.volume_id)
    }

    /// When the copy was made, as whoever made it said; 0 when that is not known.
    pub fn created_unix_seconds(&self) -> u64 {
        self.origin.map_or(0, |origin| origin.created_unix_seconds)
    }

    /// The volume's snapshots, oldest first.
    pub fn snapshot_list(&self) -> Vec<Arc<Volume>> {
        let mut snapshots = self.lock_snapshots();
        let mut list: Vec<_> = snapshots.iter().filter_map(Weak::upgrade).collect();
        list.retain(|snapshot| !snapshot.is_gone());
        *snapshots = list.iter().map(Arc::downgrade).collect();
        list
    }

    /// What this is compared with: all snapshots of a volume, and of a snapshot those that its
    /// volume has from before it; oldest first.
    fn earlier_states(&self) -> Vec<Arc<Volume>> {
        if !self.is_snapshot() {
            return self.snapshot_list();
        }
        let volume = self.listed_by.get().and_then(Weak::upgrade);
        let mut snapshots = volume.map_or_else(Vec::new, |volume| volume.snapshot_list());
        snapshots.retain(|snapshot| snapshot.id < self.id);
        snapshots
    }

    pub(crate) fn add_snapshot(&self, snapshot: &Arc<Volume>) {
        snapshot.listed_by.get_or_init(|| Weak::clone(&self.this));
        let mut snapshots = self.lock_snapshots();
        snapshots.push(Arc::downgrade(snapshot));
        snapshots.sort_by_key(|snapshot| snapshot.upgrade().map_or(0, |snapshot| snapshot.id()));
    }

    fn lock_snapshots(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Volume>>> {
        self.snapshots.lock().expect("nobody panics with the snapshots locked")
    }

    /// Never given to another volume of this pool, also after renames and restarts. Not zero.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn reduction(&self) -> Reduction {
        Reduction::ALL[usize::from(self.reduction.load(Ordering::Relaxed))]
    }

    /// Readable bytes that were written and not discarded. Costs next to nothing.
    pub fn written_bytes(&self) -> u64 {
        self.counts.written.sum() * BLOCK_BYTES as u64
    }

    /// Walks the map: takes time in proportion to what is written.
    pub fn usage(&self) -> VolumeUsage {
        self.measure()
    }

    pub(crate) fn set_name(&self, name: String) {
        *self.name.lock().expect("nobody panics with a name locked") = name;
    }

    pub(crate) fn set_reduction(&self, reduction: Reduction) {
        self.reduction.store(place_of(&Reduction::ALL, reduction), Ordering::Relaxed);
    }

    /// What a flush promises.
    pub fn durability(&self) -> Durability {
        Durability::ALL[usize::from(self.durability.load(Ordering::Relaxed))]
    }

    pub(crate) fn set_durability(&self, durability: Durability) {
        self.durability.store(place_of(&Durability::ALL, durability), Ordering::Relaxed);
    }

    /// Whether flushes go to the journal.
    #[inline]
    pub(crate) fn is_journaled(&self) -> bool {
        self.kind == Kind::Volume
            && self.durability.load(Ordering::Relaxed) == const { Durability::Journal as u8 }
    }

    /// Whether the journal, and the image that it starts from, have all that is not marked. A
    /// volume of class `journal` that is not anchored needs an image before a flush can be true.
    pub fn is_anchored(&self) -> bool {
        // PAIRS-WITH: Volume::set_anchored, "an image has what is not marked".
        self.is_anchored.load(Ordering::Acquire)
    }

    /// An image has all that is not marked as unjournaled, or (`false`) none has.
    pub fn set_anchored(&self, is_anchored: bool) {
        self.record.set_anchored(&self.shared.store, is_anchored);
        // PAIRS-WITH: Volume::is_anchored, "an image has what is not marked".
        self.is_anchored.store(is_anchored, Ordering::Release);
    }

    /// The same number as that of a copy: what is said of the copy holds for the volume.
    pub fn lineage(&self) -> u64 {
        self.lineage.load(Ordering::Acquire)
    }

    /// From now on no earlier copy speaks for the volume.
    pub(crate) fn begin_lineage(&self) {
        self.lineage.fetch_add(1, Ordering::AcqRel);
    }

    /// The copy is one of another volume.
    pub(crate) fn set_lineage_of(&self, source: &Self) {
        self.lineage.store(source.lineage(), Ordering::Release);
    }

    /// The image that has the contents of all blocks that are not marked as unsaved.
    pub fn image_base(&self) -> Option<ImageBase> {
        self.record.base(&self.shared.store)
    }

    /// Sets [`Volume::image_base`].
    pub fn set_image_base(&self, base: Option<ImageBase>) {
        self.record.set_base(&self.shared.store, base);
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape {
            sector: self.sector,
            reduction: self.reduction(),
            durability: self.durability(),
            capacity: self.capacity_class(),
            kind: self.kind,
        }
    }

    /// The volume, to be kept.
    pub fn handle(&self) -> Arc<Self> {
        self.this.upgrade().expect("whoever sees the volume keeps it")
    }

    pub(crate) fn policy(&self) -> Policy {
        if self.capacity.is_claimed() {
            return Policy { shares_duplicates: false, compression: Compression::Never };
        }
        let reduction = self.reduction();
        let compression = match reduction.compresses() {
            false => Compression::Never,
            true if self.shared.is_short_of_memory() => Compression::Now,
            true => Compression::Later,
        };
        Policy { shares_duplicates: reduction.shares_duplicates(), compression }
    }

    /// Leaves that the volume may have.
    pub(crate) fn leaf_count(&self) -> u64 {
        leaves_in(self.size_bytes())
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        // PAIRS-WITH: Volume::set_size_bytes, "the volume's end".
        self.size_bytes.load(Ordering::Acquire)
    }

    /// The size that no resize under way takes back: requests may be kept from the end of the
    /// volume before it is known whether it can be cut off.
    pub fn settled_size_bytes(&self) -> u64 {
        match self.is_gone() {
            // Its place in the table may be another's.
            true => self.size_bytes(),
            false => self.record.size_bytes(&self.shared.store),
        }
    }

    pub(crate) fn set_size_bytes(&self, size_bytes: u64) {
        // PAIRS-WITH: Volume::size_bytes, "the volume's end".
        self.size_bytes.store(size_bytes, Ordering::Release);
    }

    /// Whether the volume was deleted, or is a frozen copy that was dropped or given up. What was
    /// read of it before it was not is what it held.
    pub fn is_gone(&self) -> bool {
        // PAIRS-WITH: Volume::set_gone, "the volume is deleted".
        self.is_gone.load(Ordering::Acquire)
    }

    /// The same as [`Volume::set_gone`]. Returns whether it was not gone before: whose call does is
    /// to retire the map.
    pub(crate) fn begin_going(&self) -> bool {
        // PAIRS-WITH: Volume::is_gone, "the volume is deleted".
        !self.is_gone.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn set_gone(&self) {
        // PAIRS-WITH: Volume::is_gone, "the volume is deleted".
        self.is_gone.store(true, Ordering::Release);
    }

    /// The node of a leaf, if it is there. Finds it for the next time without a walk, unless the
    /// caller or others hold a block of the leaf.
    #[inline]
    pub(crate) fn find_leaf(&self, pinned: &Pinned<'_>, leaf: u64) -> Option<NodeRef> {
        self.leaves.find(leaf).or_else(|| self.walk_to_leaf(pinned, leaf))
    }

    #[inline(never)]
    fn walk_to_leaf(&self, pinned: &Pinned<'_>, leaf: u64) -> Option<NodeRef> {
        let node = self.map.find_leaf(&self.shared.store, pinned, leaf)?;
        if self.leaves.has_room(leaf)
            && let Some(_held) = self.shared.locks.try_lock_block(self.id, leaf * LEAF_BLOCKS)
            // Gone, its place in the table may be another's, whose leaves only that one forgets.
            && !self.is_gone()
            // Looked up again: it may have been unlinked before the block was ours.
            && self.map.find_leaf(&self.shared.store, pinned, leaf) == Some(node)
        {
            self.leaves.remember(leaf, node);
        }
        Some(node)
    }

    /// Whether flushes of the volume fail, and so must what would have to be flushed.
    #[inline]
    fn refuses_changes(&self) -> bool {
        self.is_journaled() && self.shared.is_journal_failing.load(Ordering::Relaxed)
    }

    /// Refuses a request that does not fit the volume as it is now. Asked under the pin that the
    /// request runs in, so that whoever cuts or deletes the volume can wait for it.
    pub(crate) fn admit(
        &self,
        _pinned: &Pinned<'_>,
        action: Action,
        range: ByteRange,
    ) -> Result<(), DeviceError> {
        let changes = matches!(action, Action::Write | Action::WriteZeroes | Action::Discard);
        let kind = if self.is_gone() {
            DeviceErrorKind::Gone
        } else if changes && (self.kind != Kind::Volume || self.refuses_changes()) {
            DeviceErrorKind::ReadOnly
        } else if !range.fits(self.size_bytes()) {
            DeviceErrorKind::OutOfRange
        } else {
            return Ok(());
        };
        Err(DeviceError::new(kind, action, range))
    }
}

/// Leaves that a volume of this size may have.
pub(crate) fn leaves_in(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(LEAF_BLOCKS * BLOCK_BYTES as u64)
}

/// The part of a block that a request covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) block: u64,
    /// Where the part begins in the block.
    pub(crate) start: usize,
    pub(crate) length: usize,
}

impl Piece {
    pub(crate) fn is_whole(self) -> bool {
        self.length == BLOCK_BYTES
    }

    pub(crate) fn range(self) -> ByteRange {
        let start = self.block * BLOCK_BYTES as u64 + self.start as u64;
        ByteRange::new(start, self.length as u64)
    }
}

/// The parts of blocks that a range covers, in order.
pub(crate) fn pieces(range: ByteRange) -> impl Iterator<Item = Piece> {
    // Ranges whose end is no number fit no volume: refused before any piece of them is used.
    let end = range.start.saturating_add(range.length);
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let block_bytes = BLOCK_BYTES as u64;
        let start = at % block_bytes;
        let length = (block_bytes - start).min(end - at);
        let piece = Piece {
            block: at / block_bytes,
            start: usize::try_from(start).expect("below a block"),
            length: usize::try_from(length).expect("a block at most"),
        };
        at += length;
        Some(piece)
    })
}

/// The range of a request that moves `length` bytes.
pub(crate) fn data_range(
    action: Action,
    start: u64,
    length: usize,
) -> Result<ByteRange, DeviceError> {
    let range = ByteRange::new(start, length as u64);
    if range.end().is_none() {
        return Err(DeviceError::new(DeviceErrorKind::OutOfRange, action, range));
    }
    if length > IO_BYTES_MAX {
        return Err(DeviceError::new(DeviceErrorKind::TooLong, action, range));
    }
    Ok(range)
}

impl BlockDevice for Volume {
    fn geometry(&self) -> Geometry {
        Geometry { size_bytes: self.size_bytes(), sector: self.sector }
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.read_bytes(offset_bytes, into)
    }

    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        self.show_bytes(range, scratch, visit)
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.write_bytes(offset_bytes, from)
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError> {
        self.zero_range(range, zeroes)
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.discard_for_request(Action::Discard, range)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let range = ByteRange::new(0, 0);
        self.admit(&self.shared.store.pin(), Action::Flush, range)?;
        if !self.is_journaled() {
            // What is acknowledged is in the region already, and nothing better is promised.
            return Ok(());
        }
        self.shared.flush_durably(self).map_err(|source| DeviceError {
            source: Some(source),
            ..DeviceError::new(DeviceErrorKind::NotDurable, Action::Flush, range)
        })
    }

    fn write_back(&self) {
        if self.is_journaled() {
            self.shared.write_back(self);
        }
    }

    fn write_cache(&self) -> WriteCache {
        match self.is_journaled() {
            false => WriteCache::Absent,
            true => WriteCache::Volatile,
        }
    }

    fn data_may_be_away(&self) -> bool {
        self.absent_blocks() > 0
    }

    fn is_read_only(&self) -> bool {
        self.kind != Kind::Volume
    }

    fn extents(&self, range: ByteRange, count_max: usize) -> Result<Vec<Extent>, DeviceError> {
        self.list_extents(range, count_max)
    }

    fn snapshots(&self) -> Vec<SnapshotInfo> {
        let info = |snapshot: &Arc<Volume>| SnapshotInfo {
            id: SnapshotId(snapshot.id()),
            name: snapshot.snapshot_name(),
        };
        self.earlier_states().iter().map(info).collect()
    }

    fn changed_extents(
        &self,
        since: SnapshotId,
        range: ByteRange,
        count_max: usize,
    ) -> Result<Vec<ChangeExtent>, DeviceError> {
        let snapshots = self.earlier_states();
        let snapshot = snapshots.iter().find(|snapshot| snapshot.id() == since.0);
        let snapshot = snapshot.ok_or_else(|| {
            DeviceError::new(DeviceErrorKind::NoSnapshot, Action::ListChanges, range)
        })?;
        self.list_changes(snapshot, range, count_max)
    }
}

#[cfg(test)]
mod tests {
    use region::{Region, RegionSpec};

    use super::*;
    use crate::engine::Engine;
    use crate::spec::{EngineOptions, VolumeSpec};

    #[track_caller]
    fn check(start: u64, length: u64, expected: &[(u64, usize, usize)]) {
        let found: Vec<_> = pieces(ByteRange::new(start, length))
            .map(|piece| (piece.block, piece.start, piece.length))
            .collect();
        assert_eq!(found, expected);
    }

    const MIB: u64 = 1 << 20;

    const LEAF_BYTES: u64 = LEAF_BLOCKS * BLOCK_BYTES as u64;

    fn engine(folder: &tempfile::TempDir) -> Engine {
        let path = folder.path().join("region");
        let region = Region::open(&RegionSpec { path, size_bytes: 16 * MIB });
        let options = EngineOptions { lane_count: 2, fresh_secret: [7; 32] };
        Engine::open(region.expect("the region opens"), options).expect("the pool opens")
    }

    fn create(engine: &Engine, name: &str) -> Arc<Volume> {
        let spec = VolumeSpec {
            sector: SectorSize::Bytes4096,
            ..VolumeSpec::new(name.parse().expect("a good name"), 8 * LEAF_BYTES)
        };
        engine.create_volume(spec).expect("a volume can be made")
    }

    #[track_caller]
    fn check_refused(volume: &Volume, offset: u64, kind: DeviceErrorKind) {
        let read = volume.read(offset, &mut [0; BLOCK_BYTES]);
        assert_eq!(read.expect_err("there is nothing to read").kind, kind);
    }

    #[test]
    fn a_read_far_behind_the_end_leaves_no_trace_of_a_leaf_with_the_same_low_bits() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        let engine = engine(&folder);
        let volume = create(&engine, "one");
        volume.write(3 * LEAF_BYTES, &[5; BLOCK_BYTES]).expect("there is room");
        volume.leaves.forget(3);
        let reach_bytes = 512_u64.pow(3) * LEAF_BYTES;
        for turn in [1, 2, 1 << 10] {
            let offset = turn * reach_bytes + 3 * LEAF_BYTES;
            check_refused(&volume, offset, DeviceErrorKind::OutOfRange);
            // Remembered, it would have been without the locks that forgetting it takes.
            assert_eq!(volume.leaves.find(3), None, "{offset}");
        }
        volume.read(3 * LEAF_BYTES, &mut [0; BLOCK_BYTES]).expect("it is there");
        assert!(volume.leaves.find(3).is_some(), "the right leaf is remembered");
    }

    #[test]
    fn a_deleted_volume_remembers_nothing_of_the_one_that_took_its_place() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        let engine = engine(&folder);
        let old = create(&engine, "old");
        engine.delete_volume("old").expect("it is there");
        let new = create(&engine, "new");
        assert_eq!(old.record, new.record, "the new one stands where the old one stood");
        new.write(0, &[5; BLOCK_BYTES]).expect("there is room");
        check_refused(&old, 0, DeviceErrorKind::Gone);
        assert_eq!(old.leaves.find(0), None);
    }

    #[test]
    fn a_walk_in_the_middle_of_a_shrink_finds_what_lies_behind_the_new_end() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        let engine = engine(&folder);
        let spec = VolumeSpec {
            durability: Durability::Journal,
            ..VolumeSpec::new("one".parse().expect("a good name"), 200 * LEAF_BYTES)
        };
        let volume = engine.create_volume(spec).expect("there is room");
        volume.write(150 * LEAF_BYTES, &[5; BLOCK_BYTES]).expect("there is room");
        // The shrink may still be refused, and the size taken back.
        volume.set_size_bytes(LEAF_BYTES);
        assert_eq!(volume.settled_size_bytes(), 200 * LEAF_BYTES);
        let mut walk = volume.walk_unjournaled().expect("a block is not in the journal");
        assert_eq!(walk.capture(8).map(|capture| capture.block_count()), Some(1));
    }

    #[test]
    fn a_range_is_cut_at_block_boundaries() {
        check(0, 8192, &[(0, 0, 4096), (1, 0, 4096)]);
        check(512, 512, &[(0, 512, 512)]);
        check(4095, 4098, &[(0, 4095, 1), (1, 0, 4096), (2, 0, 1)]);
        check(7, 0, &[]);
    }
}
