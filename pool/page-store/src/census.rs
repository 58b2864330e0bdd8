//! Opening of a pool: determines the use of each slab, and its live slots.

use sync::atomic::Ordering;
use sync::counted;

use crate::fingerprint::Description;
use crate::layout::{Class, Slot};
use crate::leak_counts::LeakCounts;
use crate::memory::Memory;
use crate::slab_names::{self, Found};

/// Registers every slab with the book, and all references with `leak_counts` if the last end was
/// unclean. Returns whether the use of each slab is known.
pub(crate) fn admit_slabs(memory: &Memory, mut leak_counts: Option<&mut LeakCounts>) -> bool {
    let mut are_all_known = true;
    // In descending order, so that the slabs with the lowest numbers are taken first.
    for slab in (0..memory.layout.slab_count()).rev() {
        let class = match slab_names::find(memory, slab) {
            Found::Used(class) => class,
            Found::Free => {
                admit_free(memory, slab);
                continue;
            }
            Found::Table => {
                memory.tables.admit(slab);
                continue;
            }
            Found::Unknown => {
                are_all_known = false;
                continue;
            }
        };
        let counts = slot_counts(memory, slab, class);
        let live = counts.iter().filter(|&&count| count > 0).count();
        if live == 0 {
            admit_free(memory, slab);
            continue;
        }
        memory.live[class.index()].add(0, i64::try_from(live).expect("slots fit eleven bits"));
        count_dense(memory, slab, class);
        let live = u32::try_from(live).expect("slots fit eleven bits");
        memory.book.admit_used(slab, class, class.shape().slot_count - live);
        if let Some(leak_counts) = &mut leak_counts {
            leak_counts.set(slab, class, counts);
        }
    }
    are_all_known
}

/// Records the number of table slabs that were found, unless some are missing.
pub(crate) fn count_tables(memory: &Memory) {
    let found = memory.tables.count();
    if found > memory.superblock().table_slabs {
        memory.change_superblock(|superblock| {
            superblock.may_have_tables = true;
            superblock.table_slabs = found;
        });
    }
}

/// Records in the superblock whether the pool may have pages in the dense form. Without any,
/// earlier releases can use it again. Slabs of unknown use may have some.
pub(crate) fn settle_dense(memory: &Memory, are_all_known: bool) {
    let was_dense = memory.superblock().may_have_dense;
    let has_dense = memory.dense.page_count() > 0 || was_dense && !are_all_known;
    if was_dense != has_dense {
        memory.change_superblock(|superblock| superblock.may_have_dense = has_dense);
    }
}

/// Registers a slab without live slots, or a slab of the index, which is dropped.
fn admit_free(memory: &Memory, slab: u32) {
    let table_word = memory.layout.table_word(slab);
    if memory.region.word(table_word).load(Ordering::Relaxed) != 0 {
        memory.region.word_to_store(table_word).store(0, Ordering::Release);
    }
    memory.book.admit_free(slab);
}

fn count_dense(memory: &Memory, slab: u32, class: Class) {
    if !class.has_pages() {
        return;
    }
    for slot in 0..class.shape().slot_count {
        let at = Slot { slab, slot, class };
        let word = memory.slot_word(at, Ordering::Relaxed);
        if counted::count_of(word) > 0 && Description::in_word(word).is_dense() {
            memory.dense.add(0, 1, memory.dense_saving(at));
        }
    }
}

fn slot_counts(memory: &Memory, slab: u32, class: Class) -> Box<[u16]> {
    let count = |slot| {
        let count =
            counted::count_of(memory.slot_word(Slot { slab, slot, class }, Ordering::Relaxed));
        u16::try_from(count).expect("counts have sixteen bits")
    };
    (0..class.shape().slot_count).map(count).collect()
}
