//! What ties a pool to stable storage: classes, marks, and volumes that come back from an image.

use std::sync::Arc;

use page_store::{Lane, LinkError, PageRef, Purpose};
use sync::Pinned;
use sync::atomic::Ordering;

use crate::engine::Engine;
use crate::error::{VolumeError, VolumeErrorKind};
use crate::hooks::{FlushTarget, PageSource};
use crate::map::{LEAF_BLOCKS, index_in_leaf};
use crate::spec::{Durability, VolumeSpec};
use crate::table::{self, ImageBase, SetId};
use crate::volume::Volume;

/// What a block of a volume that comes back from an image holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilledBlock {
    Hole,
    Fill(u32),
    /// Contents that the page source has under this number.
    Absent(u64),
    /// Contents that were lost before the image was saved.
    Damaged,
}

impl Engine {
    /// Says who makes flushes of class `journal` durable. Once, before volumes are served.
    pub fn set_flush_target(&self, target: Arc<dyn FlushTarget>) {
        let was_set = self.shared.flush_target.set(target);
        assert!(was_set.is_ok(), "one journal serves a pool");
    }

    /// Says whether volumes of class `journal` take changes: not while their flushes would fail, if
    /// that is what the owner wants then.
    pub fn take_journaled_changes(&self, takes: bool) {
        self.shared.is_journal_failing.store(!takes, Ordering::Relaxed);
    }

    /// Says where the contents of absent blocks are: in an image of this number. `None` when no
    /// block is absent any more.
    pub fn set_page_source(&self, source: Option<(u64, Arc<dyn PageSource>)>) {
        let _administration = self.administrate();
        self.exchange_page_source(source);
    }

    /// Nothing is absent any more, as was found by looking at all volumes and snapshots. `false` if
    /// there are others since [`Engine::table_version`] was this: they may be copies of what was.
    pub fn end_page_source(&self, table_version: u64) -> bool {
        let _administration = self.administrate();
        let is_known = self.table_version() == table_version;
        if is_known {
            self.exchange_page_source(None);
        }
        is_known
    }

    fn exchange_page_source(&self, source: Option<(u64, Arc<dyn PageSource>)>) {
        let (image, source) = source.unzip();
        if source.is_none() && table::absent_image(&self.shared.store).is_some() {
            // What volumes hold is counted when all leaks are known.
            self.end_leak_check();
            // Leaves that volumes share are brought in through one of them.
            let _all_held = self.shared.locks.lock_all();
            self.listed().iter().for_each(|volume| volume.end_absence());
        }
        let mut place = self.shared.page_source.write().expect("nobody panics with it locked");
        *place = source;
        table::set_absent_image(&self.shared.store, image);
    }

    /// The image that absent blocks are in: to be connected again by [`Engine::set_page_source`]
    /// after a restart.
    pub fn absent_image(&self) -> Option<u64> {
        table::absent_image(&self.shared.store)
    }

    /// The durable set that the pool belongs to: its journal and its images have the same id.
    pub fn set_id(&self) -> Option<SetId> {
        table::set_id(&self.shared.store)
    }

    /// Makes the pool part of a durable set.
    pub fn join_set(&self, id: SetId) {
        let _administration = self.administrate();
        table::set_set_id(&self.shared.store, id);
    }

    /// The pool is about to be filled with what stable storage has. Until
    /// [`Engine::end_restoring`], also after a kill, nothing in it is worth more than that.
    pub fn begin_restoring(&self) {
        let _administration = self.administrate();
        table::set_restoring(&self.shared.store, true);
    }

    /// The pool has what stable storage has.
    pub fn end_restoring(&self) {
        let _administration = self.administrate();
        table::set_restoring(&self.shared.store, false);
    }

    /// Whether a kill came while the pool was being filled.
    pub fn is_restoring(&self) -> bool {
        table::is_restoring(&self.shared.store)
    }

    /// Rises with every change of what volumes there are and what they are.
    pub fn table_version(&self) -> u64 {
        self.table_version.load(Ordering::Acquire)
    }

    pub(crate) fn note_table_change(&self) {
        self.table_version.fetch_add(1, Ordering::Release);
    }

    /// Changes what flushes promise from now on. To `journal`: the volume is not anchored until an
    /// image has it. That holds for an empty one too: what was discarded may be in an image, or in
    /// the journal of an earlier time.
    pub fn set_durability(&self, name: &str, durability: Durability) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let volume = self.changeable(name)?;
        if volume.durability() == durability {
            return Ok(());
        }
        let store = &self.shared.store;
        volume.begin_lineage();
        volume.set_anchored(false);
        let shape = table::Shape { durability, ..volume.shape() };
        volume.record.set_shape(store, shape);
        volume.set_durability(durability);
        self.note_table_change();
        // Writers that began before do not mark leaves for the journal.
        store.wait_for_readers();
        if durability == Durability::Journal {
            volume.unjournaled_leaves.mark_first(volume.leaf_count());
        }
        Ok(())
    }

    /// An image has what `copy`, a frozen copy of the volume, holds: it becomes the base of what is
    /// not marked as unsaved. `false` if the volume has become another since the copy was made: the
    /// image says nothing of it then.
    pub fn adopt_image(&self, volume: &Volume, copy: &Volume, base: ImageBase) -> bool {
        let _administration = self.administrate();
        let is_same = !volume.is_gone() && volume.lineage() == copy.lineage();
        if is_same {
            volume.set_image_base(Some(base));
        }
        is_same
    }

    /// A volume of class `journal` is anchored by an image that it has adopted, if it was of that
    /// class all the time since the copy was made.
    pub fn anchor(&self, volume: &Volume, copy: &Volume) {
        let _administration = self.administrate();
        let was_journaled = copy.durability() == Durability::Journal;
        if was_journaled && !volume.is_gone() && volume.lineage() == copy.lineage() {
            volume.set_anchored(true);
        }
    }

    /// Begins to bring a volume back: it is not listed, and goes with a kill, until
    /// [`Engine::end_filling`]. `id`: the one that it had, if it is to have it again.
    pub fn begin_filling(
        &self,
        spec: VolumeSpec,
        id: Option<u64>,
    ) -> Result<Arc<Volume>, VolumeError> {
        let _administration = self.administrate();
        self.make_volume(spec, id, true)
    }

    /// Makes a filled volume one of the pool's.
    pub fn end_filling(&self, volume: &Arc<Volume>) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let name = volume.name();
        self.check_free(&name)?;
        self.complete_map(volume)?;
        volume.record.end_filling(&self.shared.store);
        self.list_volume(&name, volume);
        Ok(())
    }

    /// Gives up on a volume that was being filled.
    pub fn abandon_filling(&self, volume: &Arc<Volume>) {
        let _administration = self.administrate();
        self.drop_volume(volume);
    }
}

impl Volume {
    /// Says what the blocks of a leaf hold, in a volume that nobody uses yet: the first block of
    /// `blocks` is the leaf's first, and those behind the last stay as they are.
    pub fn fill_leaf(&self, leaf: u64, blocks: &[FilledBlock]) -> Result<(), VolumeError> {
        assert!(blocks.len() as u64 <= LEAF_BLOCKS, "a leaf has {LEAF_BLOCKS} blocks");
        let is_empty = || self.next_leaf(leaf) != Some(leaf);
        if blocks.iter().all(|block| *block == FilledBlock::Hole) && is_empty() {
            return Ok(());
        }
        let store = &self.shared.store;
        let result = {
            let mut lane = store.lane();
            let pinned = store.pin();
            self.fill_leaf_with(&mut lane, &pinned, leaf, blocks)
        };
        result.map_err(|error| {
            let kind = match error {
                LinkError::NoSpace(_) => VolumeErrorKind::NoSpace,
                LinkError::Damaged => VolumeErrorKind::Damaged,
            };
            VolumeError::new(kind, self.name())
        })
    }

    fn fill_leaf_with(
        &self,
        lane: &mut Lane<'_>,
        pinned: &Pinned<'_>,
        leaf: u64,
        blocks: &[FilledBlock],
    ) -> Result<(), LinkError> {
        let store = &self.shared.store;
        let _held = self.shared.locks.lock_leaf(self.id(), leaf);
        let owned = self.own_leaf(lane, pinned, leaf, self.purpose(Purpose::NewData))?;
        let node = match owned {
            Some(node) => node,
            None => self.make_leaf(lane, pinned, leaf)?,
        };
        for (block, filled) in (leaf * LEAF_BLOCKS..).zip(blocks) {
            let index = index_in_leaf(block);
            let entry = match *filled {
                FilledBlock::Hole => PageRef::HOLE,
                FilledBlock::Fill(pattern) => PageRef::filled(pattern),
                FilledBlock::Absent(number) => PageRef::absent(number),
                FilledBlock::Damaged => PageRef::DAMAGED,
            };
            if store.entry(pinned, node, index) != entry {
                let old = lane.clear(node, index, entry);
                self.note_change(lane, old, entry);
            }
        }
        Ok(())
    }
}
