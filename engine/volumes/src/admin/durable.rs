//! Ties between a pool and stable storage: classes, dirty bits, and volumes that come back from an
//! image.

use std::sync::Arc;

use crate::admin::engine::Engine;
use crate::device::hooks::{FlushTarget, PageSource};
use crate::device::volume::Volume;
use crate::error::VolumeError;
use crate::map::table::{self, ImageBase, SetId, Shape};
use crate::spec::{Durability, VolumeSpec};
use crate::walks::integrity::{DamageReport, Healer, Scrubbed};

impl Engine {
    /// Sets what makes flushes of class `journal` durable. Once, before volumes are served.
    pub fn set_flush_target(&self, target: Arc<dyn FlushTarget>) {
        self.hooks.set_flush_target(target);
    }

    /// Says whether volumes of class `journal` take changes: not while their flushes would fail, if
    /// that is what the owner wants then.
    pub fn take_journaled_changes(&self, takes: bool) {
        self.hooks.set_journal_failing(!takes);
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
        if source.is_none() && table::absent_image(&self.pool.store).is_some() {
            // What volumes hold is counted when all leaks are known.
            self.end_leak_check();
            // Leaves that volumes share are brought in through one of them.
            let _all_held = self.pool.locks.lock_all();
            self.listed().iter().for_each(|volume| volume.map.end_absence());
        }
        self.hooks.set_page_source(source);
        table::set_absent_image(&self.pool.store, image);
    }

    /// The image that absent blocks are in: to be connected again by [`Engine::set_page_source`]
    /// after a restart.
    pub fn absent_image(&self) -> Option<u64> {
        table::absent_image(&self.pool.store)
    }

    /// The durable set that the pool belongs to: its journal and its images have the same id.
    pub fn set_id(&self) -> Option<SetId> {
        table::set_id(&self.pool.store)
    }

    /// Makes the pool part of a durable set.
    pub fn join_set(&self, id: SetId) {
        let _administration = self.administrate();
        table::set_set_id(&self.pool.store, id);
    }

    /// The pool is about to be filled with what stable storage has. Until
    /// [`Engine::end_restoring`], also after a kill, nothing in it is worth more than that.
    pub fn begin_restoring(&self) {
        let _administration = self.administrate();
        table::set_restoring(&self.pool.store, true);
    }

    /// The pool has what stable storage has.
    pub fn end_restoring(&self) {
        let _administration = self.administrate();
        table::set_restoring(&self.pool.store, false);
    }

    /// Returns whether a kill came while the pool was being filled.
    pub fn is_restoring(&self) -> bool {
        table::is_restoring(&self.pool.store)
    }

    /// Changes what flushes promise from now on. To `journal`: the volume is not anchored until an
    /// image has it. That holds for an empty one too: what was discarded may be in an image, or in
    /// the journal of an earlier time.
    pub fn set_durability(&self, name: &str, durability: Durability) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let volume = self.changeable(name)?;
        let map = &*volume.map;
        if map.durability() == durability {
            return Ok(());
        }
        if map.durability() == Durability::Ram {
            let snapshots = self.snapshots_of(&volume).len();
            self.check_durable_count(1 + snapshots, name)?;
        }
        map.begin_generation();
        map.set_anchored(false);
        map.set_shape(Shape { durability, ..map.shape() });
        self.note_table_change();
        // Writers that began before do not set leaves' bits for the journal.
        self.pool.store.wait_for_readers();
        if durability == Durability::Journal {
            map.dirty_leaves.set_first(map.leaf_count());
        }
        Ok(())
    }

    /// An image has what `copy`, a frozen copy of the volume, holds: it becomes the base of what is
    /// not dirty towards images. `false` if the volume has become another since the copy was made:
    /// the image says nothing of it then.
    pub fn adopt_image(&self, volume: &Volume, copy: &Volume, base: ImageBase) -> bool {
        let _administration = self.administrate();
        let is_same = is_of_now(volume, copy);
        if is_same {
            volume.map.set_image_base(Some(base));
        }
        is_same
    }

    /// A volume of class `journal` is anchored by an image that it has adopted, if it was of that
    /// class all the time since the copy was made.
    pub fn anchor(&self, volume: &Volume, copy: &Volume) {
        let _administration = self.administrate();
        if copy.durability() == Durability::Journal && is_of_now(volume, copy) {
            volume.map.set_anchored(true);
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
        self.check_free(&volume.name())?;
        self.complete_map(&volume.map)?;
        volume.map.record().end_filling(&self.pool.store);
        self.list_volume(volume);
        Ok(())
    }

    /// Gives up on a volume that was being filled.
    pub fn abandon_filling(&self, volume: &Arc<Volume>) {
        let _administration = self.administrate();
        self.drop_volume(volume);
    }

    /// Number of blocks that should be captured at a time: when memory is short only as many as the
    /// reserve covers, for what is captured takes memory while it is overwritten.
    pub fn capture_blocks_max(&self) -> usize {
        match self.pool.is_short_of_memory() {
            true => self.pool.store.withheld_pages_max(),
            false => usize::MAX,
        }
    }

    /// Says whether reads verify what they return, at the cost of a fingerprint for each block.
    pub fn set_verify_reads(&self, verifies: bool) {
        self.pool.set_verify_reads(verifies);
    }

    /// Sets what has copies of damaged contents. Once.
    pub fn set_healer(&self, healer: Arc<dyn Healer>) {
        self.hooks.integrity.set_healer(healer);
    }

    /// Verifies a piece of the pool's memory, and deals with what is damaged there. The owner says
    /// how often. One thread at a time does the work.
    pub fn scrub(&self) -> Scrubbed {
        self.hooks.integrity.scrub(&self.pool, || self.space.maps())
    }

    /// Blocks found damaged since this was called last, the oldest first; of very many the latest.
    pub fn take_damage_reports(&self) -> Vec<DamageReport> {
        self.hooks.integrity.take_reports()
    }

    /// Bytes of memory that are not used any more since they were found damaged.
    pub fn withheld_bytes(&self) -> u64 {
        self.hooks.integrity.withheld_bytes()
    }
}

/// Whether what is said of a copy holds for the volume.
fn is_of_now(volume: &Volume, copy: &Volume) -> bool {
    !volume.map.is_gone() && volume.map.generation() == copy.map.generation()
}
