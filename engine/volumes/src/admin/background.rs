//! Background work of the pool, called by the engine's owner.

use crate::admin::engine::Engine;
use crate::admin::maintenance::Work;

impl Engine {
    /// Performs a bounded step of background work: frees leaked pages, fills the dedup index,
    /// compresses pages that were stored uncompressed, and evacuates sparse slabs. Returns whether
    /// more work is pending. Only one thread at a time performs the work.
    pub fn maintain(&self) -> bool {
        self.maintain_only(Work::All)
    }

    /// Performs a step of one kind of background work. Compression takes most of the time, and can
    /// wait while requests arrive.
    pub fn maintain_only(&self, work: Work) -> bool {
        let has_more = self.step_maintenance(work);
        if !has_more {
            self.end_sharing();
        }
        // In addition to the other work, which frequent reads of idle pages must not delay.
        let may_bring_back = self.space.bring_back_read();
        has_more || may_bring_back
    }

    /// Ends a period of idle compression and begins the next one. Pages of volumes of reduction
    /// `full` that were neither read nor written in the ended period count as idle. The interval
    /// between calls is the time for which a page must be idle before [`Engine::compress_idle`]
    /// encodes it.
    pub fn begin_idle_period(&self) {
        self.space.begin_idle_period();
    }

    /// Compresses some idle pages once more, so that they take less memory and longer to read.
    /// [`Engine::maintain`] restores pages that are read. Returns whether more work may be pending
    /// in this period. A step takes a few milliseconds at most. Earlier releases reject a pool that
    /// contains such pages.
    pub fn compress_idle(&self) -> bool {
        self.space.compress_idle()
    }

    /// Returns whether idle pages that were read wait for [`Engine::maintain`] to restore them.
    pub fn has_idle_reads(&self) -> bool {
        self.pool.dense_reads.has_any()
    }

    /// Populates a piece of the pool's memory from `offset` on, so that requests cause no page
    /// faults. Returns the offset of the next piece, if there is one.
    pub fn populate(&self, offset: u64) -> std::io::Result<Option<u64>> {
        self.pool.store.populate(offset)
    }

    /// Marks all maps as unshared once no copy of any map is left. Never blocks: if another thread
    /// holds the lock, a later call does it.
    fn end_sharing(&self) {
        if !self.pool.is_sharing() {
            return;
        }
        let Ok(_administration) = self.administration.try_lock() else { return };
        let has_copies = self.read_listing().copy_count() > 0
            || !self.pool.frozen.is_empty()
            || self.pool.store.deferred_count() > 0;
        if !has_copies {
            let _all_held = self.pool.locks.lock_all();
            self.listed().iter().for_each(|volume| volume.map.end_sharing());
            self.pool.set_sharing(false);
        }
    }
}
