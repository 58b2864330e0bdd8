//! Table slabs: root words in addition to those in front of the slab table.
//!
//! A slab becomes a table slab permanently. It is zeroed and gets its second name. Then one word of
//! the slab table makes it valid, so that a kill leaves it completely or not at all. The first one
//! raises the version of the pool before that. The superblock records their number afterwards, so
//! that a missing one is detected in a damaged pool.

use std::ops::Range;

use crate::error::{AddTableError, NoSpace};
use crate::layout::{ROOT_WORD_COUNT, TABLE_SLAB_WORDS, TABLE_SLABS_MAX};
use crate::store::PageStore;

impl PageStore {
    /// Returns the ranges of root words: those in front, and those of each table slab.
    pub fn root_ranges(&self) -> Vec<Range<usize>> {
        let slabs = self.core.memory.tables.lock();
        std::iter::once(0..ROOT_WORD_COUNT)
            .chain(slabs.iter().map(|&slab| words_of(slab)))
            .collect()
    }

    /// Number of table slabs that the pool had and that were not found.
    pub fn missing_tables(&self) -> u32 {
        let memory = &self.core.memory;
        memory.superblock().table_slabs.saturating_sub(memory.tables.count())
    }

    /// Adds a table slab with zeroed root words. A kill leaves it completely or not at all. The
    /// caller must hold neither a pin nor a lane.
    pub fn add_table(&self) -> Result<Range<usize>, AddTableError> {
        let memory = &self.core.memory;
        // Locked to the end: a shrink that begins sees it, or has taken the slabs past its end.
        let mut slabs = memory.tables.lock();
        if slabs.len() >= TABLE_SLABS_MAX {
            return Err(AddTableError::TooMany);
        }
        let slab = memory.take_lowest_free_slab().ok_or(NoSpace)?;
        memory.zero_free_slab(slab, 8 * TABLE_SLAB_WORDS);
        memory.region.store_fence();
        if !memory.superblock().may_have_tables {
            memory.change_superblock(|superblock| superblock.may_have_tables = true);
        }
        memory.name_table_slab(slab);
        memory.change_superblock(|superblock| superblock.table_slabs += 1);
        slabs.push(slab);
        slabs.sort_unstable();
        Ok(words_of(slab))
    }
}

fn words_of(slab: u32) -> Range<usize> {
    let slab = usize::try_from(slab).expect("slabs fit memory");
    let first = ROOT_WORD_COUNT + slab * TABLE_SLAB_WORDS;
    first..first + TABLE_SLAB_WORDS
}
