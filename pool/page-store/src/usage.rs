//! Usage of the pool's memory, and selection of slabs to evacuate.

use codec::DecodeError;
use sync::Pinned;

use crate::layout::{Class, SLAB_BYTES};
use crate::page_ref::PageRef;
use crate::store::PageStore;

/// Memory usage of a pool, in bytes. Every byte is in exactly one of `free_bytes`, `page_bytes`,
/// `map_bytes`, `index_bytes`, `table_bytes` and `slack_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreUsage {
    /// Size of the pool. While it shrinks, without the part that is already free to leave.
    pub size_bytes: u64,
    /// Slabs available for any use, including those that have no memory yet.
    pub free_bytes: u64,
    /// Slots that hold pages, with their full length.
    pub page_bytes: u64,
    pub map_bytes: u64,
    pub index_bytes: u64,
    pub table_bytes: u64,
    /// Free slots of slabs in use, and remainders that do not divide into slots.
    pub slack_bytes: u64,
    pub page_count: u64,
    /// Part of `page_count`: uncompressed pages.
    pub raw_page_count: u64,
    /// Part of `page_count`: pages in the dense form.
    pub dense_page_count: u64,
    /// Memory that the dense form saves over the previous forms of those pages.
    pub dense_saved_bytes: u64,
    /// Part of `free_bytes` and `slack_bytes`: reserved for claims.
    pub claimed_bytes: u64,
    /// Part of `free_bytes`: left by new data for others.
    pub reserved_bytes: u64,
}

/// Slabs whose pages are being moved away.
#[derive(Debug)]
pub struct Victims {
    class: Class,
    slabs: Vec<u32>,
}

impl PageStore {
    pub fn usage(&self) -> StoreUsage {
        let core = &self.core;
        let ready_slabs = core.memory.book.free_count(&core.memory.grace) as u64;
        let free_slabs = ready_slabs + u64::from(core.memory.untaken());
        let leaving_slabs = core.memory.book.left_count(&core.memory.grace) as u64;
        let live = |class: Class| core.memory.live[class.index()].sum();
        let pages = || Class::all().filter(|class| class.has_pages());
        let mut usage = StoreUsage {
            size_bytes: self.size_bytes() - leaving_slabs * SLAB_BYTES,
            free_bytes: free_slabs * SLAB_BYTES,
            page_bytes: pages().map(|class| live(class) * class.shape().slot_bytes).sum(),
            map_bytes: live(Class::NODE) * Class::NODE.shape().slot_bytes,
            index_bytes: u64::from(core.index.segment_count()) * SLAB_BYTES,
            table_bytes: core.memory.layout.table_bytes()
                + u64::from(core.memory.tables.count()) * SLAB_BYTES,
            slack_bytes: 0,
            page_count: pages().map(live).sum(),
            raw_page_count: live(Class::RAW),
            dense_page_count: core.memory.dense.page_count(),
            dense_saved_bytes: core.memory.dense.saved_bytes(),
            claimed_bytes: self.claimed_bytes(),
            reserved_bytes: self.reserved_bytes(),
        };
        let counted = usage.free_bytes
            + usage.page_bytes
            + usage.map_bytes
            + usage.index_bytes
            + usage.table_bytes;
        // Counters change while they are read: a momentary inconsistency does not count as slack.
        usage.slack_bytes = usage.size_bytes.saturating_sub(counted);
        usage
    }

    /// Number of bytes of memory for which one reference accounts: its share of its slot.
    pub fn share_bytes(&self, _pinned: &Pinned<'_>, page: PageRef) -> Result<u64, DecodeError> {
        if page.slot().is_none() {
            return Ok(0);
        }
        let at = self.core.memory.slot_of(page).ok_or(DecodeError)?;
        Ok(at.class.shape().slot_bytes / self.core.memory.reference_count(at).max(1))
    }

    /// Takes up to `count_max` sparse slabs out of use, of the class with the most free memory, if
    /// emptying them may free `bytes_min`. Every page in them must be relocated, or the victims
    /// released.
    pub fn choose_victims(&self, bytes_min: u64, count_max: usize) -> Option<Victims> {
        let free_bytes = |class: Class| {
            let slots = self.core.memory.book.listed_free_slots(class);
            (slots * class.shape().slot_bytes, class)
        };
        let mut promising: Vec<(u64, Class)> = Class::all()
            .filter(|class| class.has_pages())
            .map(free_bytes)
            .filter(|&(bytes, _)| bytes >= bytes_min.max(2 * SLAB_BYTES))
            .collect();
        promising.sort_unstable();
        promising.into_iter().rev().find_map(|(_, class)| {
            let spare_slots = match class == Class::RAW {
                true => self.core.memory.spare_slots(),
                false => u64::MAX,
            };
            let slabs = self.core.memory.book.choose_victims(class, count_max, spare_slots);
            (!slabs.is_empty()).then_some(Victims { class, slabs })
        })
    }

    /// Returns whether the page is in a slab that is being emptied.
    #[inline]
    pub fn is_in_victim(&self, page: PageRef) -> bool {
        let memory = &self.core.memory;
        memory.slot_of(page).is_some_and(|at| memory.book.is_victim(at.slab, at.class))
    }

    /// Ends the evacuation: slabs that still hold pages are returned to use. Returns the number of
    /// empty ones.
    pub fn release_victims(&self, victims: Victims) -> usize {
        let release = |&&slab: &&u32| self.core.memory.release_victim(slab, victims.class);
        victims.slabs.iter().filter(release).count()
    }
}
