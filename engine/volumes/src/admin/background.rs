//! The calls that do the pool's background work.

use crate::admin::engine::Engine;
use crate::admin::maintenance::Work;

impl Engine {
    /// Does a bounded step of background work: gives leaked pages back, fills the dedup index,
    /// compresses pages that were stored uncompressed, and empties sparse slabs. Returns whether
    /// there is more to do now. One thread at a time does the work.
    pub fn maintain(&self) -> bool {
        self.maintain_only(Work::All)
    }

    /// Does a step of one kind of background work. Compression takes most of the time, and can wait
    /// while requests come in.
    pub fn maintain_only(&self, work: Work) -> bool {
        let has_more = self.step_maintenance(work);
        if !has_more {
            self.end_sharing();
        }
        // Beside the other work: readers of much idle data must not keep it waiting.
        let may_bring_back = self.space.bring_back_read();
        has_more || may_bring_back
    }

    /// Ends a period of the compression of what is idle, and begins the next: pages of volumes of
    /// reduction `full` that were neither read nor written in the period that ends are idle. To be
    /// called as often as pages shall be idle before [`Engine::compress_idle`] encodes them.
    pub fn begin_idle_period(&self) {
        self.space.begin_idle_period();
    }

    /// Encodes some pages that are idle once more, so that they take less memory and longer to
    /// read. Pages that are read are brought back by [`Engine::maintain`]. Returns whether there
    /// may be more to do in this period. A step takes a few milliseconds at most. Earlier releases
    /// refuse a pool that has such pages.
    pub fn compress_idle(&self) -> bool {
        self.space.compress_idle()
    }

    /// Returns whether idle pages that were read wait for [`Engine::maintain`] to bring them back.
    pub fn has_idle_reads(&self) -> bool {
        self.pool.dense_reads.has_any()
    }

    /// Populates a piece of the pool's memory from `offset` on, so that requests meet no page
    /// faults. Returns the offset of the next piece, if there is one.
    pub fn populate(&self, offset: u64) -> std::io::Result<Option<u64>> {
        self.pool.store.populate(offset)
    }

    /// Lets maps be changed as if none had ever been copied, once no copy is left. Waits for no
    /// other thread: another time will do.
    fn end_sharing(&self) {
        if !self.listed().iter().any(|volume| volume.map.may_share()) {
            return;
        }
        let Ok(_administration) = self.administration.try_lock() else { return };
        let listed = self.listed();
        let has_copies = listed.iter().any(|volume| volume.origin_id().is_some())
            || !self.pool.frozen.is_empty()
            || self.pool.store.deferred_count() > 0;
        if !has_copies {
            let _all_held = self.pool.locks.lock_all();
            listed.iter().for_each(|volume| volume.map.end_sharing());
        }
    }
}
