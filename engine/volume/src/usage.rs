//! Where the memory goes, in bytes.

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
    /// Readable bytes that were written and not discarded, over all volumes.
    pub written_bytes: u64,
    /// Of `written_bytes`: those in blocks that a fill pattern describes, without a page.
    pub fill_bytes: u64,
    /// Pages that hold contents.
    pub page_count: u64,
}

/// What one volume holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeUsage {
    /// Readable bytes that were written and not discarded.
    pub written_bytes: u64,
    /// Of `written_bytes`: those that a fill pattern describes.
    pub fill_bytes: u64,
    /// RAM that the volume answers for: its map, and of each page its share (a page of two
    /// references counts half for each).
    pub ram_bytes: u64,
}

/// How far the clean-up after an unclean end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The last run ended cleanly, or nothing is left to do.
    Complete,
    /// Leaked pages are being searched for; everything is served meanwhile.
    Sweeping,
}
