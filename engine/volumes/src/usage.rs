//! Where the memory goes, in bytes.

use codec::BLOCK_BYTES;
use page_store::StoreUsage;

use crate::counts::Counts;
use crate::level::PoolLevel;

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
    /// Of `written_bytes`: those in blocks that a fill pattern describes, without a page.
    pub fill_bytes: u64,
    /// Of `written_bytes`: those stored as they are until maintenance has time to compress them.
    pub pending_bytes: u64,
    /// Pages that hold contents.
    pub page_count: u64,
    /// Free memory that only volumes of class `guaranteed` get: what they hold less than they may.
    pub claimed_bytes: u64,
    /// Free memory that new data leaves for overwrites, for the pool's own work and for writes of
    /// claimed memory that are under way.
    pub reserved_bytes: u64,
    /// What overwrites of everything in thin volumes could need beside what they free, if none of
    /// it repeated or shrank: a block of memory for each one that has none to itself, because it
    /// shares its page, is compressed, a pattern, or not fetched. Copies of map nodes included.
    pub overwrite_need_bytes: u64,
    /// What overwrites find at least, of free memory and of what is reserved for them. They never
    /// fail for lack of memory as long as they need no more than this.
    pub overwrite_room_bytes: u64,
    /// How full that makes the pool.
    pub level: PoolLevel,
}

/// What one volume holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeUsage {
    /// Readable bytes that were written and not discarded.
    pub written_bytes: u64,
    /// Of `written_bytes`: those that a fill pattern describes.
    pub fill_bytes: u64,
    /// RAM that the volume answers for: its share of each node of its map and of each page (a page
    /// of two references counts half for each, and half of that where two maps share the leaf).
    pub ram_bytes: u64,
}

/// Blocks and pages of all volumes, as far as they say what overwrites may need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OverwriteCensus {
    /// Blocks of thin volumes that hold something.
    pub(crate) thin_blocks: u64,
    /// Pages that overwrites of thin volumes do not free: of snapshots, and of volumes of class
    /// `guaranteed`. Those that several have may be counted more than once.
    pub(crate) other_pages: u64,
    /// Nodes that maps may share, and so have to copy.
    pub(crate) shared_nodes: u64,
}

impl OverwriteCensus {
    /// Slots that overwrites of all blocks could need beside those that they free.
    pub(crate) fn need_slots(&self, raw_pages: u64) -> u64 {
        let own_pages = raw_pages.saturating_sub(self.other_pages);
        self.thin_blocks.saturating_sub(own_pages) + self.shared_nodes
    }
}

/// How far the clean-up after an unclean end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The last run ended cleanly, or nothing is left to do.
    Complete,
    /// Leaked pages are being searched for; everything is served meanwhile.
    Sweeping,
}

impl PoolUsage {
    /// What overwrites could need more than they are sure to find.
    pub fn overwrite_lack_bytes(&self) -> u64 {
        self.overwrite_need_bytes.saturating_sub(self.overwrite_room_bytes)
    }

    /// Memory that new data does not get.
    pub fn committed_bytes(&self) -> u64 {
        (self.used_bytes + self.claimed_bytes).min(self.size_bytes)
    }

    /// What the pool says of itself, and what its volumes hold.
    pub(crate) fn new<'volumes>(
        store: &StoreUsage,
        volumes: impl Iterator<Item = &'volumes Counts>,
    ) -> Self {
        let mut usage = Self {
            size_bytes: store.size_bytes,
            used_bytes: store.size_bytes - store.free_bytes,
            page_bytes: store.page_bytes,
            map_bytes: store.map_bytes,
            index_bytes: store.index_bytes,
            table_bytes: store.table_bytes,
            slack_bytes: store.slack_bytes,
            written_bytes: 0,
            fill_bytes: 0,
            pending_bytes: 0,
            page_count: store.page_count,
            claimed_bytes: store.claimed_bytes,
            reserved_bytes: store.reserved_bytes,
            overwrite_need_bytes: 0,
            overwrite_room_bytes: 0,
            level: PoolLevel::default(),
        };
        for counts in volumes {
            usage.written_bytes += counts.written.sum() * BLOCK_BYTES as u64;
            usage.fill_bytes += counts.filled.sum() * BLOCK_BYTES as u64;
            usage.pending_bytes += counts.untried.sum() * BLOCK_BYTES as u64;
        }
        usage
    }
}
