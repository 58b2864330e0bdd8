//! Relation of a pool to stable storage: classes, dirty bits, and volumes restored from an image.

use std::sync::Arc;

use crate::admin::engine::Engine;
use crate::device::hooks::{FlushTarget, PageSource};
use crate::device::volume::Volume;
use crate::error::VolumeError;
use crate::map::table::{self, ImageBase, MirrorState, SetId, Shape};
use crate::spec::{Durability, VolumeMirror, VolumeSpec};
use crate::walks::integrity::{DamageReport, Healer, Scrubbed};

impl Engine {
    /// Sets the target that makes flushes of class `journal` durable. Must be called once, before
    /// volumes are served.
    pub fn set_flush_target(&self, target: Arc<dyn FlushTarget>) {
        self.hooks.set_flush_target(target);
    }

    /// Allows or rejects changes to volumes of class `journal`. The owner may reject them while
    /// flushes would fail.
    pub fn take_journaled_changes(&self, takes: bool) {
        self.hooks.set_journal_failing(!takes);
    }

    /// Sets the image, by its number, from which absent blocks are read. `None` means that no block
    /// is absent.
    pub fn set_page_source(&self, source: Option<(u64, Arc<dyn PageSource>)>) {
        let _administration = self.administrate();
        self.exchange_page_source(source);
    }

    /// Removes the page source, after a search of all volumes and snapshots found no absent block.
    /// Returns `false` if the volume table has changed since `table_version`, because new entries
    /// may be copies of volumes that had absent blocks.
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
            // Counts of a volume's blocks are exact only after the leak check.
            self.end_leak_check();
            // Shared leaves are fetched through one of the volumes that share them.
            let _all_held = self.pool.locks.lock_all();
            self.listed().iter().for_each(|volume| volume.map.end_absence());
        }
        self.hooks.set_page_source(source);
        table::set_absent_image(&self.pool.store, image);
    }

    /// Number of the image that contains the absent blocks. After a restart the owner passes it to
    /// [`Engine::set_page_source`] again.
    pub fn absent_image(&self) -> Option<u64> {
        table::absent_image(&self.pool.store)
    }

    /// Id of the durable set that the pool, its journal and its images share.
    pub fn set_id(&self) -> Option<SetId> {
        table::set_id(&self.pool.store)
    }

    /// Adds the pool to a durable set.
    pub fn join_set(&self, id: SetId) {
        let _administration = self.administrate();
        table::set_set_id(&self.pool.store, id);
    }

    /// Removes an empty pool that is being restored from its set. After a kill meanwhile, it must
    /// be removed again.
    pub fn leave_set(&self) {
        let _administration = self.administrate();
        table::set_set_id(&self.pool.store, [0; 16]);
    }

    /// Marks the start of a restore from stable storage. The mark survives a kill. Until
    /// [`Engine::end_restoring`] the pool contains nothing that stable storage lacks, and may be
    /// discarded.
    pub fn begin_restoring(&self) {
        let _administration = self.administrate();
        table::set_restoring(&self.pool.store, true);
    }

    /// Marks the end of a restore from stable storage.
    pub fn end_restoring(&self) {
        let _administration = self.administrate();
        table::set_restoring(&self.pool.store, false);
    }

    /// Returns whether a restore from stable storage was begun and has not ended, for instance
    /// because of a kill.
    pub fn is_restoring(&self) -> bool {
        table::is_restoring(&self.pool.store)
    }

    /// Changes the durability class of a volume. After a change to `journal` the volume is not
    /// anchored until an image contains it, even if it is empty: an older image or journal may
    /// contain blocks that were discarded since.
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
        // The image store does not know volumes of class `ram`.
        let mirror = MirrorState::begin(map.mirror());
        map.set_shape(Shape { durability, mirror, ..map.shape() });
        self.write_listing().note_classes(&volume);
        self.note_table_change();
        // Writers that began earlier do not set the dirty bits of leaves for the journal.
        self.pool.store.wait_for_readers();
        if durability == Durability::Journal {
            map.dirty_leaves.set_first(map.leaf_count());
        }
        Ok(())
    }

    /// Changes whether flushes of a volume are mirrored, if they are of class `journal`. If they
    /// are no longer to be, they are until [`Engine::complete_leaving`].
    pub fn set_mirror(&self, name: &str, mirror: VolumeMirror) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let map = &*self.changeable(name)?.map;
        if map.mirror() != mirror {
            map.set_shape(Shape { mirror: MirrorState::begin(mirror), ..map.shape() });
            self.note_table_change();
        }
        Ok(())
    }

    /// Returns whether flushes of a volume are mirrored only because the image store may not know
    /// yet that they are not to be.
    pub fn has_leaving(&self) -> bool {
        self.volumes().iter().any(is_leaving)
    }

    /// Ends the mirroring of volumes that are not to be mirrored. Called once the image store has
    /// the table of volumes of version `table_version`. Returns `false`, and changes nothing, if
    /// the table has changed since.
    pub fn complete_leaving(&self, table_version: u64) -> bool {
        let _administration = self.administrate();
        if self.table_version() != table_version {
            return false;
        }
        for volume in self.volumes().iter().filter(|volume| is_leaving(volume)) {
            let map = &volume.map;
            map.set_shape(Shape { mirror: MirrorState::Excluded, ..map.shape() });
        }
        true
    }

    /// Makes an image of `copy`, a frozen copy of the volume, the base of all blocks that are not
    /// dirty towards images. Returns `false` if the volume was restored or changed its class after
    /// the copy, because the image does not describe it then.
    pub fn adopt_image(&self, volume: &Volume, copy: &Volume, base: ImageBase) -> bool {
        let _administration = self.administrate();
        let is_same = is_of_now(volume, copy);
        if is_same {
            volume.map.set_image_base(Some(base));
        }
        is_same
    }

    /// Anchors a volume of class `journal` in the image that it has adopted, if its class has not
    /// changed since the copy.
    pub fn anchor(&self, volume: &Volume, copy: &Volume) {
        let _administration = self.administrate();
        if copy.durability() == Durability::Journal && is_of_now(volume, copy) {
            volume.map.set_anchored(true);
        }
    }

    /// Creates a volume to be filled from stable storage. Until [`Engine::end_filling`] it is not
    /// listed, and a kill deletes it. `id` is the former id, if it is to be kept.
    pub fn begin_filling(
        &self,
        spec: VolumeSpec,
        id: Option<u64>,
    ) -> Result<Arc<Volume>, VolumeError> {
        let _administration = self.administrate();
        self.make_volume(spec, id, true)
    }

    /// Lists a volume that has been filled.
    pub fn end_filling(&self, volume: &Arc<Volume>) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        self.check_free(&volume.name())?;
        self.complete_map(&volume.map)?;
        volume.map.record().end_filling(&self.pool.store);
        self.list_volume(volume);
        Ok(())
    }

    /// Deletes a volume whose filling failed.
    pub fn abandon_filling(&self, volume: &Arc<Volume>) {
        let _administration = self.administrate();
        self.drop_volume(volume);
    }

    /// Maximum number of blocks in one capture. When memory is short, it is limited to the reserve,
    /// because a captured block needs a new page when it is overwritten.
    pub fn capture_blocks_max(&self) -> usize {
        match self.pool.is_short_of_memory() {
            true => self.pool.store.withheld_pages_max(),
            false => usize::MAX,
        }
    }

    /// Enables or disables the verification of reads, which costs one fingerprint per block.
    pub fn set_verify_reads(&self, verifies: bool) {
        self.pool.set_verify_reads(verifies);
    }

    /// Sets the source of intact copies for damaged pages. Must be called once.
    pub fn set_healer(&self, healer: Arc<dyn Healer>) {
        self.hooks.integrity.set_healer(healer);
    }

    /// Scrubs a piece of the pool's memory: verifies its pages, and heals or withholds damaged
    /// ones. The owner decides how often. Only one thread at a time performs the work.
    pub fn scrub(&self) -> Scrubbed {
        self.hooks.integrity.scrub(&self.pool, || self.space.maps.all())
    }

    /// Returns the blocks found damaged since the last call, oldest first. If there are too many,
    /// only the latest are returned.
    pub fn take_damage_reports(&self) -> Vec<DamageReport> {
        self.hooks.integrity.take_reports()
    }

    /// Bytes of memory taken out of use because they were found damaged.
    pub fn withheld_bytes(&self) -> u64 {
        self.hooks.integrity.withheld_bytes()
    }
}

fn is_leaving(volume: &Arc<Volume>) -> bool {
    volume.map.mirror_state() == MirrorState::Leaving
}

/// Returns whether the copy still describes the volume: the same generation, and not deleted.
fn is_of_now(volume: &Volume, copy: &Volume) -> bool {
    !volume.map.is_gone() && volume.map.generation() == copy.map.generation()
}
