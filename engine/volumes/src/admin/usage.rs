//! Memory usage, in bytes.

use codec::BLOCK_BYTES;
use page_store::StoreUsage;

use crate::admin::engine::Engine;
use crate::pool::level::PoolLevel;

/// Memory usage of a pool. Everything in the region is counted once: `used_bytes = page_bytes +
/// map_bytes + index_bytes + table_bytes + slack_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Size of the whole region.
    pub size_bytes: u64,
    /// Part of the region that is not free for new data.
    pub used_bytes: u64,
    /// Slots that hold page contents, with their full length.
    pub page_bytes: u64,
    /// Nodes of the volumes' maps.
    pub map_bytes: u64,
    /// Dedup index.
    pub index_bytes: u64,
    /// Superblocks, volume table, slab table and counts.
    pub table_bytes: u64,
    /// Free slots of slabs in use, and remainders that do not divide into slots.
    pub slack_bytes: u64,
    /// Readable bytes that were written and not discarded, over all volumes without snapshots.
    pub written_bytes: u64,
    /// Part of `written_bytes`: blocks that a fill pattern describes, without a page.
    pub fill_bytes: u64,
    /// Part of `written_bytes`: blocks stored uncompressed until maintenance has time to compress
    /// them.
    pub pending_bytes: u64,
    /// Number of pages that hold contents.
    pub page_count: u64,
    /// Part of `page_count`: idle pages that are compressed once more.
    pub idle_page_count: u64,
    /// Memory that the additional compression of idle pages saves.
    pub idle_saved_bytes: u64,
    /// Free memory reserved for volumes of class `guaranteed`: their claims less what they use.
    pub claimed_bytes: u64,
    /// Free memory that new data leaves for overwrites, for the pool's own work and for writes of
    /// claimed memory that are in progress.
    pub reserved_bytes: u64,
    /// Memory that overwriting every block of thin volumes could need beyond what it frees, if the
    /// new data neither repeated nor shrank: a page for each block that has none to itself, because
    /// its page is shared, compressed, a pattern or not fetched, and copies of map nodes.
    pub overwrite_need_bytes: u64,
    /// Memory guaranteed to overwrites, from free memory and from the reserve. They never fail for
    /// lack of memory while they need no more than this.
    pub overwrite_room_bytes: u64,
    /// Fill level of the pool.
    pub level: PoolLevel,
}

/// Counts of blocks and pages from which the memory need of overwrites follows.
#[derive(Clone, Copy, Debug, Default)]
struct OverwriteCensus {
    /// Blocks of thin volumes that are not holes.
    thin_blocks: u64,
    /// Pages that overwrites of thin volumes do not free: of snapshots, and of volumes of class
    /// `guaranteed`. Shared pages may be counted more than once.
    other_pages: u64,
    /// Nodes that maps may share, and that writers must then copy.
    shared_nodes: u64,
}

impl OverwriteCensus {
    /// Number of slots that overwrites of all blocks could need beyond those that they free.
    fn need_slots(&self, raw_pages: u64) -> u64 {
        let own_pages = raw_pages.saturating_sub(self.other_pages);
        self.thin_blocks.saturating_sub(own_pages) + self.shared_nodes
    }
}

/// Progress of the clean-up after an unclean end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The last run ended cleanly, or no work is left.
    Complete,
    /// The leak check is in progress. All volumes are served meanwhile.
    Sweeping,
}

impl PoolUsage {
    /// Memory that overwrites could need beyond what is guaranteed to them.
    pub fn overwrite_lack_bytes(&self) -> u64 {
        self.overwrite_need_bytes.saturating_sub(self.overwrite_room_bytes)
    }

    /// Memory that new data cannot use.
    pub fn committed_bytes(&self) -> u64 {
        (self.used_bytes + self.claimed_bytes).min(self.size_bytes)
    }

    /// Creates the usage from the counters of the page store.
    fn new(store: &StoreUsage) -> Self {
        Self {
            size_bytes: store.size_bytes,
            used_bytes: store.size_bytes - store.free_bytes,
            page_bytes: store.page_bytes,
            map_bytes: store.map_bytes,
            index_bytes: store.index_bytes,
            table_bytes: store.table_bytes,
            slack_bytes: store.slack_bytes,
            page_count: store.page_count,
            idle_page_count: store.dense_page_count,
            idle_saved_bytes: store.dense_saved_bytes,
            claimed_bytes: store.claimed_bytes,
            reserved_bytes: store.reserved_bytes,
            ..Self::default()
        }
    }
}

impl Engine {
    /// Returns the usage of the pool's memory. Also updates the fill level, so it must be called
    /// periodically.
    pub fn usage(&self) -> PoolUsage {
        let store = self.pool.store.usage();
        let mut usage = PoolUsage::new(&store);
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        let totals = &self.pool.volume_totals;
        usage.written_bytes = bytes(totals.written.sum());
        usage.fill_bytes = bytes(totals.filled.sum());
        usage.pending_bytes = self.pending_bytes();
        usage.level = self.pool.note_level(usage.committed_bytes(), usage.size_bytes);
        let census = self.overwrite_census(usage.map_bytes);
        let need_slots = census.need_slots(store.raw_page_count);
        usage.overwrite_need_bytes = need_slots * BLOCK_BYTES as u64;
        usage.overwrite_room_bytes = self.pool.store.overwrite_room_bytes(census.thin_blocks);
        usage
    }

    /// Bytes stored uncompressed until maintenance has time to compress them.
    pub fn pending_bytes(&self) -> u64 {
        self.pool.volume_totals.untried.sum() * BLOCK_BYTES as u64
    }

    fn overwrite_census(&self, map_bytes: u64) -> OverwriteCensus {
        let listing = self.read_listing();
        let mut census = OverwriteCensus {
            thin_blocks: self.pool.volume_totals.written.sum(),
            other_pages: self.pool.snapshot_totals.pages(),
            shared_nodes: 0,
        };
        for volume in listing.guaranteed() {
            let written = volume.map.counts.written.sum();
            census.thin_blocks = census.thin_blocks.saturating_sub(written);
            census.other_pages += volume.map.own_pages();
        }
        if listing.copy_count() > 0 {
            census.shared_nodes = map_bytes / BLOCK_BYTES as u64;
        }
        census
    }

    pub fn recovery(&self) -> Recovery {
        match self.is_checking_leaks() {
            true => Recovery::Sweeping,
            false => Recovery::Complete,
        }
    }

    /// Counter of the work of all other threads on the pool. It grows by one to three with each
    /// request, modulo 2^32. Requests have no additional cost.
    pub fn activity_of_others(&self) -> u32 {
        self.pool.store.pins_of_others()
    }

    /// Number of times that the pool was opened, including this time.
    pub fn run_epoch(&self) -> u64 {
        self.pool.store.run_epoch()
    }

    /// Number of map entries found after an unclean end that refer to missing pages. A value other
    /// than zero means that the region was damaged.
    pub fn damaged_entries(&self) -> u64 {
        self.pool.leaks.damaged()
    }
}
