//! Where the memory goes, in bytes.

use codec::BLOCK_BYTES;
use page_store::StoreUsage;

use crate::admin::engine::Engine;
use crate::pool::level::PoolLevel;
use crate::spec::CapacityClass;

/// The memory of a pool. Everything in the region is counted once:
/// `used_bytes = page_bytes + map_bytes + index_bytes + table_bytes + slack_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// The whole region.
    pub size_bytes: u64,
    /// All of the region that is not free for new data.
    pub used_bytes: u64,
    /// Slots that hold page contents, as long as the slots are.
    pub page_bytes: u64,
    /// Nodes of the volumes' maps.
    pub map_bytes: u64,
    /// The dedup index.
    pub index_bytes: u64,
    /// Superblocks, volume table, slab table, counts.
    pub table_bytes: u64,
    /// Free slots of slabs in use, and what does not divide into slots.
    pub slack_bytes: u64,
    /// Readable bytes that were written and not discarded, over all volumes without snapshots.
    pub written_bytes: u64,
    /// Part of `written_bytes`: those in blocks that a fill pattern describes, without a page.
    pub fill_bytes: u64,
    /// Part of `written_bytes`: those stored as they are until maintenance has time to compress
    /// them.
    pub pending_bytes: u64,
    /// Pages that hold contents.
    pub page_count: u64,
    /// Part of `page_count`: pages that were idle, and are compressed once more.
    pub idle_page_count: u64,
    /// Memory that those would take beyond what they do if they had not been idle.
    pub idle_saved_bytes: u64,
    /// Free memory that only volumes of class `guaranteed` get: their claims less what they use.
    pub claimed_bytes: u64,
    /// Free memory that new data leaves for overwrites, for the pool's own work and for writes of
    /// claimed memory that are under way.
    pub reserved_bytes: u64,
    /// Memory that overwriting every block of thin volumes could need beyond what it frees, if the
    /// new data neither repeated nor shrank: a page for each block that has none to itself, because
    /// its page is shared, compressed, a pattern or not fetched, and copies of map nodes.
    pub overwrite_need_bytes: u64,
    /// Memory that overwrites are sure to get, from free memory and from the reserve. They never
    /// fail for lack of memory while they need no more than this.
    pub overwrite_room_bytes: u64,
    /// Fill level of the pool.
    pub level: PoolLevel,
}

/// Blocks and pages of all volumes, as far as they say what overwrites may need.
#[derive(Clone, Copy, Debug, Default)]
struct OverwriteCensus {
    /// Blocks of thin volumes that hold something.
    thin_blocks: u64,
    /// Pages that overwrites of thin volumes do not free: of snapshots, and of volumes of class
    /// `guaranteed`. Those that several have may be counted more than once.
    other_pages: u64,
    /// Nodes that maps may share, and so have to copy.
    shared_nodes: u64,
}

impl OverwriteCensus {
    /// Slots that overwrites of all blocks could need beside those that they free.
    fn need_slots(&self, raw_pages: u64) -> u64 {
        let own_pages = raw_pages.saturating_sub(self.other_pages);
        self.thin_blocks.saturating_sub(own_pages) + self.shared_nodes
    }
}

/// Progress of the clean-up after an unclean end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The last run ended cleanly, or nothing is left to do.
    Complete,
    /// Leaked pages are being searched for; all volumes are served meanwhile.
    Sweeping,
}

impl PoolUsage {
    /// Memory that overwrites could need beyond what they are sure to get.
    pub fn overwrite_lack_bytes(&self) -> u64 {
        self.overwrite_need_bytes.saturating_sub(self.overwrite_room_bytes)
    }

    /// Memory that new data cannot use.
    pub fn committed_bytes(&self) -> u64 {
        (self.used_bytes + self.claimed_bytes).min(self.size_bytes)
    }

    /// What the pool says of itself.
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
    /// Usage of the pool's memory. Also updates the fill level, so it is to be called now and then.
    pub fn usage(&self) -> PoolUsage {
        let store = self.pool.store.usage();
        let mut usage = PoolUsage::new(&store);
        for volume in self.volumes() {
            let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
            let counts = &volume.map.counts;
            usage.written_bytes += bytes(counts.written.sum());
            usage.fill_bytes += bytes(counts.filled.sum());
            usage.pending_bytes += bytes(counts.untried.sum());
        }
        usage.level = self.pool.note_level(usage.committed_bytes(), usage.size_bytes);
        let census = self.overwrite_census(usage.map_bytes);
        let need_slots = census.need_slots(store.raw_page_count);
        usage.overwrite_need_bytes = need_slots * BLOCK_BYTES as u64;
        usage.overwrite_room_bytes = self.pool.store.overwrite_room_bytes(census.thin_blocks);
        usage
    }

    fn overwrite_census(&self, map_bytes: u64) -> OverwriteCensus {
        let mut census = OverwriteCensus::default();
        let mut is_sharing = false;
        for volume in self.listed() {
            is_sharing |= volume.origin_id().is_some();
            match (volume.is_snapshot(), volume.capacity_class()) {
                (true, _) => census.other_pages += volume.map.counts.pages(),
                (false, CapacityClass::Guaranteed) => census.other_pages += volume.map.own_pages(),
                (false, CapacityClass::Thin) => {
                    census.thin_blocks += volume.map.counts.written.sum()
                }
            }
        }
        if is_sharing {
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

    /// Amount of work that all threads but the caller's have done with the pool: grows by one to
    /// three with each request, modulo 2^32. Costs requests nothing.
    pub fn activity_of_others(&self) -> u32 {
        self.pool.store.pins_of_others()
    }

    /// Number of times that the pool was opened, this time included.
    pub fn run_epoch(&self) -> u64 {
        self.pool.store.run_epoch()
    }

    /// Map entries found after an unclean end that named pages which were not there. Anything but
    /// zero means that the region was damaged.
    pub fn damaged_entries(&self) -> u64 {
        self.pool.leaks.damaged()
    }
}
