//! Opening and closing a pool.

use std::sync::Arc;

use page_store::{OpenError, PageStore, StoreOptions};
use region::Region;

use crate::admin::engine::Engine;
use crate::admin::load::{End, load_volumes};
use crate::device::hooks::Hooks;
use crate::map::volume_map::VolumeMap;
use crate::pool::leak_check::LeakCheck;
use crate::pool::shared::Pool;
use crate::space::find::Space;
use crate::spec::{Durability, EngineOptions};

impl Engine {
    /// Opens the pool in `region`, or creates one in a fresh region. After an unclean end it serves
    /// at once, and [`Engine::maintain`] frees leaked pages.
    pub fn open(region: Region, options: EngineOptions) -> Result<Self, OpenError> {
        let options =
            StoreOptions { lane_count: options.lane_count, fresh_secret: options.fresh_secret };
        let (store, leak_counts) = PageStore::open(region, options)?;
        let end = if leak_counts.is_none() { End::Clean } else { End::Unclean };
        let pool = Arc::new(Pool::new(store, LeakCheck::new(leak_counts)));
        let (space, hooks) = (Arc::new(Space::new(pool)), Arc::new(Hooks::default()));
        let listing = load_volumes(&space, &hooks, end);
        if end == End::Unclean {
            space.leak_search.begin(listing.all().map(|one| Arc::clone(&one.map)).collect());
        }
        Ok(Self::new(space, hooks, listing))
    }

    /// Closes the pool cleanly: frees deleted maps and marks the pool, so that the next open needs
    /// no leak check. Requests through handles that are still held fail with `Gone`.
    pub fn close(self) {
        let store = &self.pool.store;
        self.end_leak_check();
        // The next run knows nothing of frozen copies.
        self.space.let_go(&self.space.frozen());
        for volume in self.listed() {
            volume.map.set_gone();
        }
        store.wait_for_readers();
        self.hooks.integrity.release_withheld(&self.pool);
        self.space.idle_compression.stop();
        self.space.compression.stop();
        self.maintenance().stop(&self.space);
        let mut are_counts_kept = true;
        for volume in self.listed() {
            volume.map.record().set_counts(store, &volume.map.counts);
            are_counts_kept &= has_kept_counts_only(&volume.map);
        }
        // Otherwise the next open counts again, as after a kill.
        if are_counts_kept {
            store.close();
        }
    }
}

/// Returns whether the volume's record contains all its nonzero counts. It does not contain the
/// counts of blocks missing in stable storage, absent blocks and damaged blocks.
fn has_kept_counts_only(map: &VolumeMap) -> bool {
    let counts = &map.counts;
    let is_owed = match map.durability() {
        Durability::Ram => false,
        Durability::Image => counts.unsaved.sum() > 0,
        Durability::Journal => counts.unsaved.sum() + counts.unjournaled.sum() > 0,
    };
    !is_owed && counts.absent.sum() + counts.damaged.sum() == 0
}
