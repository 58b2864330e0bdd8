//! The map of one volume and its state: the page of each block, and the blocks that stable storage
//! lacks. `entries` changes the entries of blocks.

use std::sync::{Arc, Mutex, OnceLock};

use block_device::SectorSize;
use codec::BLOCK_BYTES;
use page_store::{Compression, Lane, NodeRef, PageRef, PageRefKind, Parent, Policy, Purpose};
use sync::Pinned;
use sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::blocks::{LEAF_BLOCKS, LEAF_BYTES, index_in_leaf, leaf_of, leaves_in};
use crate::map::claims::{Claims, is_page};
use crate::map::counts::Counts;
use crate::map::idle_leaves::IdleLeaves;
use crate::map::leaf_bits::{LeafBits, LeafSet};
use crate::map::leaf_cache::LeafCache;
use crate::map::table::{FrozenPlace, ImageBase, Kind, MirrorState, Origin, Record, Shape, Stored};
use crate::map::tree::Tree;
use crate::pool::leak_check::LeafPlace;
use crate::pool::shared::Pool;
use crate::pool::totals::Totals;
use crate::spec::{CapacityClass, Durability, Reduction, place_of};

/// Location of a map's root word in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A record of the table, with all other properties that outlive the run.
    Listed(Record),
    /// A word that holds only the root.
    Frozen(FrozenPlace),
}

impl Place {
    fn root_word(self) -> usize {
        match self {
            Self::Listed(record) => record.root_word(),
            Self::Frozen(place) => place.root_word(),
        }
    }
}

/// Map of a volume, snapshot or frozen copy.
#[derive(Debug)]
pub struct VolumeMap {
    pub(crate) pool: Arc<Pool>,
    pub(crate) place: Place,
    pub(crate) tree: Tree,
    pub(crate) leaves: LeafCache,
    /// Changed with all block locks held.
    may_share: AtomicBool,
    /// Locked by a thread that changes inner nodes of a map that may share some.
    pub(super) path: Mutex<()>,
    id: u64,
    pub(crate) sector: SectorSize,
    pub(crate) kind: Kind,
    origin: Option<Origin>,
    /// Base of a frozen copy, copied from its volume because no record stores it.
    pub(super) frozen_base: OnceLock<Option<ImageBase>>,
    name: Mutex<String>,
    size_bytes: AtomicU64,
    reduction: AtomicU8,
    durability: AtomicU8,
    mirror: AtomicU8,
    is_anchored: AtomicBool,
    /// Changes when earlier copies no longer describe the volume: it was restored, or its
    /// durability class changed.
    generation: AtomicU64,
    is_gone: AtomicBool,
    pub(crate) claims: Claims,
    pub(crate) counts: Counts,
    untried_leaves: LeafBits,
    /// True while the map is among those of the pool that may have pages to compress.
    is_noted_untried: AtomicBool,
    /// Leaves with blocks that are not in the journal. Maintained for class `journal` only.
    pub(crate) dirty_leaves: LeafBits,
    pub(crate) idle_leaves: IdleLeaves,
}

impl VolumeMap {
    pub(crate) fn new(pool: Arc<Pool>, place: Place, stored: &Stored) -> Arc<Self> {
        let lane_count = pool.store.lane_count();
        let leaf_count = leaves_in(stored.size_bytes);
        let shape = stored.shape;
        let totals = match shape.kind {
            Kind::Volume => Arc::clone(&pool.volume_totals),
            Kind::Snapshot => Arc::clone(&pool.snapshot_totals),
            // Nobody asks for the sums over frozen copies.
            Kind::Frozen => Arc::new(Totals::new(lane_count)),
        };
        Arc::new(Self {
            pool,
            place,
            tree: Tree { root_word: place.root_word() },
            leaves: match shape.kind {
                Kind::Volume => LeafCache::new(leaf_count),
                Kind::Snapshot | Kind::Frozen => LeafCache::new_for_copy(leaf_count),
            },
            may_share: AtomicBool::new(false),
            path: Mutex::new(()),
            id: stored.id,
            sector: shape.sector,
            kind: shape.kind,
            origin: stored.origin,
            frozen_base: OnceLock::new(),
            name: Mutex::new(stored.name.to_string()),
            size_bytes: AtomicU64::new(stored.size_bytes),
            reduction: AtomicU8::new(place_of(&Reduction::ALL, shape.reduction)),
            durability: AtomicU8::new(place_of(&Durability::ALL, shape.durability)),
            mirror: AtomicU8::new(place_of(&MirrorState::ALL, shape.mirror)),
            is_anchored: AtomicBool::new(stored.is_anchored),
            generation: AtomicU64::new(0),
            is_gone: AtomicBool::new(false),
            claims: Claims::new(shape.capacity),
            counts: Counts::new(lane_count, totals),
            untried_leaves: LeafBits::new(),
            is_noted_untried: AtomicBool::new(false),
            dirty_leaves: LeafBits::new(),
            idle_leaves: IdleLeaves::new(),
        })
    }

    /// Returns the record of a volume or snapshot. Frozen copies have none.
    pub(crate) fn record(&self) -> Record {
        match self.place {
            Place::Listed(record) => record,
            Place::Frozen(_) => panic!("a frozen copy is in no record"),
        }
    }

    /// Name of the volume. For a snapshot `VOLUME@SNAPSHOT`.
    pub fn name(&self) -> String {
        self.name.lock().expect("nothing panics with a name locked").clone()
    }

    pub(crate) fn set_name(&self, name: String) {
        *self.name.lock().expect("nothing panics with a name locked") = name;
    }

    /// Id of the volume: not zero, and never reused for another volume of this pool, also after
    /// renames and restarts.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// Id under which the journal stores the blocks: for a snapshot, the id of its volume.
    pub fn journaled_id(&self) -> u64 {
        let origin = self.origin.filter(|_| self.kind != Kind::Volume);
        origin.map_or(self.id, |origin| origin.volume_id)
    }

    pub(crate) fn reduction(&self) -> Reduction {
        Reduction::ALL[usize::from(self.reduction.load(Ordering::Relaxed))]
    }

    /// Guarantee of a flush.
    pub fn durability(&self) -> Durability {
        Durability::ALL[usize::from(self.durability.load(Ordering::Relaxed))]
    }

    /// Behaviour of the volume when the pool is full.
    pub(crate) fn capacity_class(&self) -> CapacityClass {
        match self.claims.is_guaranteed() {
            true => CapacityClass::Guaranteed,
            false => CapacityClass::Thin,
        }
    }

    pub(crate) fn mirror_state(&self) -> MirrorState {
        MirrorState::ALL[usize::from(self.mirror.load(Ordering::Relaxed))]
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape {
            sector: self.sector,
            reduction: self.reduction(),
            durability: self.durability(),
            capacity: self.capacity_class(),
            kind: self.kind,
            mirror: self.mirror_state(),
        }
    }

    /// Changes the reduction, the durability class and the mirroring from now on. The capacity
    /// class is only recorded.
    pub(crate) fn set_shape(&self, shape: Shape) {
        self.record().set_shape(&self.pool.store, shape);
        self.reduction.store(place_of(&Reduction::ALL, shape.reduction), Ordering::Relaxed);
        self.durability.store(place_of(&Durability::ALL, shape.durability), Ordering::Relaxed);
        self.mirror.store(place_of(&MirrorState::ALL, shape.mirror), Ordering::Relaxed);
    }

    /// Returns whether flushes go to the journal.
    #[inline]
    pub(crate) fn is_journaled(&self) -> bool {
        self.kind == Kind::Volume
            && self.durability.load(Ordering::Relaxed) == const { Durability::Journal as u8 }
    }

    /// Returns whether the journal, with the image that it starts from, contains every block that
    /// is not dirty. A volume of class `journal` that is not anchored needs an image before its
    /// flushes can succeed.
    pub fn is_anchored(&self) -> bool {
        // PAIRS-WITH: VolumeMap::set_anchored, "an image has what is not dirty".
        self.is_anchored.load(Ordering::Acquire)
    }

    /// Records whether the volume is anchored: see [`VolumeMap::is_anchored`].
    pub fn set_anchored(&self, is_anchored: bool) {
        self.record().set_anchored(&self.pool.store, is_anchored);
        // PAIRS-WITH: VolumeMap::is_anchored, "an image has what is not dirty".
        self.is_anchored.store(is_anchored, Ordering::Release);
    }

    /// Generation of the volume. A copy with the same generation still describes the volume: it was
    /// not restored and kept its class.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Begins a new generation: no earlier copy describes the volume from now on.
    pub(crate) fn begin_generation(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Sets the generation of a copy to that of its source.
    pub(super) fn set_generation_of(&self, source: &Self) {
        self.generation.store(source.generation(), Ordering::Release);
    }

    /// Image that contains all blocks that are not dirty towards images.
    pub fn image_base(&self) -> Option<ImageBase> {
        match self.place {
            Place::Listed(record) => record.base(&self.pool.store),
            Place::Frozen(_) => self.frozen_base.get().copied().flatten(),
        }
    }

    /// Sets [`VolumeMap::image_base`].
    pub fn set_image_base(&self, base: Option<ImageBase>) {
        self.record().set_base(&self.pool.store, base);
    }

    /// Number of leaves that the volume can have.
    pub(crate) fn leaf_count(&self) -> u64 {
        leaves_in(self.size_bytes())
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        // PAIRS-WITH: VolumeMap::set_size_bytes, "the volume's end".
        self.size_bytes.load(Ordering::Acquire)
    }

    /// Size recorded in the volume table. A shrink that is in progress, and may still fail, has
    /// already reduced the size that requests see.
    pub fn settled_size_bytes(&self) -> u64 {
        match self.place {
            // The record of a deleted volume may belong to another one.
            Place::Listed(record) if !self.is_gone() => record.size_bytes(&self.pool.store),
            _ => self.size_bytes(),
        }
    }

    pub(crate) fn set_size_bytes(&self, size_bytes: u64) {
        // PAIRS-WITH: VolumeMap::size_bytes, "the volume's end".
        self.size_bytes.store(size_bytes, Ordering::Release);
    }

    /// Returns whether the volume was deleted, or is a frozen copy that was dropped or given up.
    /// Data that was read before is valid if this is still false after the read.
    #[inline]
    pub fn is_gone(&self) -> bool {
        // PAIRS-WITH: VolumeMap::set_gone, "the volume is deleted".
        self.is_gone.load(Ordering::Acquire)
    }

    /// Marks the map as gone. Returns whether it was not gone before: that caller retires the map.
    pub(crate) fn set_gone(&self) -> bool {
        // PAIRS-WITH: VolumeMap::is_gone, "the volume is deleted".
        !self.is_gone.swap(true, Ordering::AcqRel)
    }

    /// Returns whether the map may share nodes with others. Exact only if the caller holds a block
    /// lock of the volume, otherwise a hint.
    #[inline]
    pub(crate) fn may_share(&self) -> bool {
        self.may_share.load(Ordering::Relaxed)
    }

    /// Sets whether nodes may be shared. `false` requires that every node has one parent, apart
    /// from parents that are being freed. The caller holds all block locks, or loads the volume.
    pub(crate) fn set_may_share(&self, may_share: bool) {
        self.may_share.store(may_share, Ordering::Relaxed);
        if may_share {
            self.pool.set_sharing(true);
        }
    }

    /// Records that a leaf has an entry to compress. The caller holds the lock of the block.
    #[inline]
    pub(crate) fn note_untried(&self, leaf: u64) {
        if self.untried_leaves.set(leaf) {
            self.note_untried_leaves();
        }
    }

    /// Records that each of the first leaves may have entries to compress.
    pub(crate) fn note_untried_first(&self, leaf_count: u64) {
        self.untried_leaves.set_first(leaf_count);
        self.note_untried_leaves();
    }

    /// Records again the leaves of a set that was taken.
    pub(crate) fn put_back_untried(&self, set: &LeafSet) {
        self.untried_leaves.put_back(set);
        self.note_untried_leaves();
    }

    /// Takes the leaves that may have entries to compress. Returns `None` if there are none.
    pub(crate) fn take_untried(&self) -> Option<LeafSet> {
        // PAIRS-WITH: VolumeMap::note_untried_leaves, "bits set before the map was noted".
        self.is_noted_untried.swap(false, Ordering::AcqRel);
        self.untried_leaves.take(|| self.leaf_count())
    }

    /// Returns whether the pool has noted that the map may have pages to compress.
    pub(crate) fn is_noted_untried(&self) -> bool {
        self.is_noted_untried.load(Ordering::Relaxed)
    }

    #[cold]
    fn note_untried_leaves(&self) {
        // PAIRS-WITH: VolumeMap::take_untried, "bits set before the map was noted".
        if !self.is_noted_untried.swap(true, Ordering::AcqRel) {
            self.pool.note_untried(self.tree.root_word);
        }
    }

    /// Current policy for storing contents.
    pub(crate) fn policy(&self) -> Policy {
        if self.claims.is_claimed() {
            return Policy { shares_duplicates: false, compression: Compression::Never };
        }
        let reduction = self.reduction();
        let compression = match reduction.compresses() {
            false => Compression::Never,
            true if self.pool.is_short_of_memory() => Compression::Now,
            true => Compression::Later,
        };
        Policy { shares_duplicates: reduction.shares_duplicates(), compression }
    }

    /// Purpose for which this volume allocates a slot.
    #[inline]
    pub(crate) fn purpose(&self, purpose: Purpose) -> Purpose {
        if self.claims.is_claimed() { Purpose::Claimed } else { purpose }
    }

    /// Number of readable bytes that were written and not discarded.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.counts.written.sum() * BLOCK_BYTES as u64
    }

    /// Number of blocks whose contents are in an image and not in memory.
    pub fn absent_blocks(&self) -> u64 {
        self.counts.absent.sum()
    }

    /// Number of blocks that are not in the journal, for volumes of any class.
    pub fn unjournaled_blocks(&self) -> u64 {
        self.counts.unjournaled.sum()
    }

    /// Number of blocks whose contents are not in the image named by [`VolumeMap::image_base`].
    pub fn unsaved_blocks(&self) -> u64 {
        self.counts.unsaved.sum()
    }

    /// Number of blocks whose contents are lost: reads of them fail until they are overwritten.
    pub fn lost_blocks(&self) -> u64 {
        self.counts.damaged.sum()
    }

    /// Finds the node of a leaf. Caches it for the next lookup, unless the caller or another thread
    /// holds the lock of a block of the leaf.
    #[inline]
    pub(crate) fn find_leaf(&self, pinned: &Pinned<'_>, leaf: u64) -> Option<NodeRef> {
        self.leaves.find(leaf).or_else(|| self.walk_to_leaf(pinned, leaf))
    }

    #[inline(never)]
    fn walk_to_leaf(&self, pinned: &Pinned<'_>, leaf: u64) -> Option<NodeRef> {
        let node = self.tree.find_leaf(&self.pool.store, pinned, leaf)?;
        self.leaves.note_use(leaf);
        if self.leaves.has_room(leaf)
            && let Some(_held) = self.pool.locks.try_lock_block(self.id, leaf * LEAF_BLOCKS)
            // The record of a deleted volume may belong to another one, which does not update this
            // cache.
            && !self.is_gone()
            // Looked up again, because it may have been unlinked before the block was locked.
            && self.tree.find_leaf(&self.pool.store, pinned, leaf) == Some(node)
        {
            self.leaves.remember(leaf, node);
        }
        Some(node)
    }

    /// Finds the node of a leaf, without counting as a use of it.
    pub(super) fn look_up_leaf(&self, pinned: &Pinned<'_>, leaf: u64) -> Option<NodeRef> {
        self.leaves.find(leaf).or_else(|| self.tree.find_leaf(&self.pool.store, pinned, leaf))
    }

    /// Records that a reader found a block whose page is in the dense form.
    #[cold]
    pub(crate) fn note_dense_read(&self, block: u64) {
        // Pages of claimed blocks stay unchanged until they are overwritten.
        if !self.claims.is_claimed() {
            self.pool.dense_reads.push(self.id, block);
        }
    }

    /// Returns the next leaf of the map from number `from` on, with or without absent blocks.
    pub fn next_leaf(&self, from: u64) -> Option<u64> {
        let pinned = self.pool.store.pin();
        self.next_leaf_node(&pinned, from).map(|(leaf, _)| leaf)
    }

    /// Returns the next leaf of the map from number `from` on, with its node. `None` for a deleted
    /// volume.
    pub(crate) fn next_leaf_node(&self, pinned: &Pinned<'_>, from: u64) -> Option<(u64, NodeRef)> {
        let next = self.tree.next_leaf(&self.pool.store, pinned, from);
        next.filter(|_| !self.is_gone())
    }

    /// Returns the next existing leaf that is in a set.
    pub(crate) fn next_leaf_in(&self, set: &LeafSet, from: u64) -> Option<u64> {
        let pinned = self.pool.store.pin();
        let mut from = from;
        loop {
            let wanted = set.next_from(from)?;
            let (leaf, _) = self.next_leaf_node(&pinned, wanted)?;
            if leaf == wanted {
                return Some(leaf);
            }
            from = leaf;
        }
    }

    /// Returns the current entry of a block.
    pub(crate) fn entry(&self, pinned: &Pinned<'_>, block: u64) -> PageRef {
        EntryCursor::new(self).entry(pinned, block)
    }

    /// Number of the block's page in the image, if the block is absent.
    pub fn absent_number(&self, block: u64) -> Option<u64> {
        let pinned = self.pool.store.pin();
        if self.is_gone() {
            return None;
        }
        match self.entry(&pinned, block).kind() {
            PageRefKind::Absent(number) => Some(number),
            _ => None,
        }
    }

    /// Returns whether a leaf stays when it is empty.
    pub(super) fn keeps_leaf(&self, leaf: u64) -> bool {
        self.claims.is_claimed() && leaf.saturating_mul(LEAF_BYTES) < self.size_bytes()
    }

    /// Lets the leak check visit a leaf that is about to be changed, or replaced by a copy, unless
    /// it was visited. The caller excludes other writers of the entry.
    #[inline]
    pub(super) fn before_change(&self, pinned: &Pinned<'_>, leaf: u64, node: NodeRef) {
        if self.pool.leaks.is_visiting() {
            self.visit_leaf(pinned, leaf, node);
        }
    }

    /// Lets the leak check visit the inner node that contains a parent word.
    #[inline]
    pub(super) fn before_inner_change(&self, pinned: &Pinned<'_>, parent: Parent) {
        if let Parent::Node(node, _) = parent
            && self.pool.leaks.is_visiting()
        {
            self.pool.leaks.visit_inner(&self.pool.store, pinned, node);
        }
    }

    /// Lets the leak check visit a leaf, and counts its entries for the volume.
    #[cold]
    pub(crate) fn visit_leaf(&self, pinned: &Pinned<'_>, leaf: u64, node: NodeRef) {
        let place = LeafPlace { volume_id: self.id, leaf, node };
        let count = |entry| self.counts.note_found(entry);
        self.pool.leaks.visit_leaf(&self.pool.store, pinned, place, count);
    }

    /// Counts the change of an entry, before the reference of the old entry is released.
    #[inline]
    pub(super) fn note_change(&self, lane: &Lane<'_>, old: PageRef, new: PageRef) {
        self.counts.change(lane.index(), old, new);
        // Another form of a reference to the same page changes no owner.
        if self.claims.is_guaranteed() && old.name() != new.name() {
            self.note_pages(lane.index(), old, new);
        }
    }

    fn note_pages(&self, lane: usize, old: PageRef, new: PageRef) {
        let is_own = is_page(old) && !self.was_shared(old);
        let change = i64::from(is_page(new)) - i64::from(is_own);
        if change != 0 {
            self.pool.store.note_owned_in(lane, change);
        }
    }

    /// Counts a page as shared that was counted as unshared, because it is in a leaf that copies of
    /// the map share.
    pub(super) fn note_shared_page(&self, lane: &Lane<'_>) {
        if self.claims.is_guaranteed() {
            self.claims.shared_pages.fetch_add(1, Ordering::Relaxed);
            self.pool.store.note_owned_in(lane.index(), -1);
        }
    }

    /// Returns whether a page that the volume releases counted as shared.
    fn was_shared(&self, old: PageRef) -> bool {
        let store = &self.pool.store;
        if old.is_dense() {
            return self.claims.take_shared_page();
        }
        if !self.may_share() || !store.is_shared(old) {
            return false;
        }
        // A copy that is about to be deleted may be the only other user. The page counts as
        // unshared then and stays claimed, which reserves more memory than necessary until the last
        // copy is deleted.
        if !self.pool.frozen.is_empty() || store.deferred_count() > 0 {
            return false;
        }
        self.claims.take_shared_page()
    }
}

/// Cursor that looks up entries and caches the leaf from block to block.
pub(crate) struct EntryCursor<'map> {
    map: &'map VolumeMap,
    leaf: Option<(u64, Option<NodeRef>)>,
}

impl<'map> EntryCursor<'map> {
    /// Creates a cursor for use under one pin.
    pub(crate) fn new(map: &'map VolumeMap) -> Self {
        Self { map, leaf: None }
    }

    #[inline]
    pub(crate) fn entry(&mut self, pinned: &Pinned<'_>, block: u64) -> PageRef {
        let store = &self.map.pool.store;
        let node = self.leaf(pinned, leaf_of(block));
        node.map_or(PageRef::HOLE, |node| store.entry(pinned, node, index_in_leaf(block)))
    }

    /// Prefetches the entry of a block that will be read soon.
    #[inline]
    pub(crate) fn prefetch_entry(&mut self, pinned: &Pinned<'_>, block: u64) {
        if let Some(node) = self.leaf(pinned, leaf_of(block)) {
            self.map.pool.store.prefetch_entry(node, index_in_leaf(block));
        }
    }

    /// Prefetches the page of a block that will be read next.
    #[inline]
    pub(crate) fn prefetch_page(&mut self, pinned: &Pinned<'_>, block: u64) {
        let entry = self.entry(pinned, block);
        self.map.pool.store.prefetch_page(entry);
    }

    #[inline]
    fn leaf(&mut self, pinned: &Pinned<'_>, number: u64) -> Option<NodeRef> {
        match self.leaf {
            Some((known, node)) if known == number => node,
            _ => {
                let node = self.map.find_leaf(pinned, number);
                self.leaf = Some((number, node));
                node
            }
        }
    }
}
