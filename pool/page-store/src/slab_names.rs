//! Use of each slab, recorded in the slab table and in a second place that must agree.
//!
//! One flipped bit in the table must not free live slots. Slabs of large slots have their words
//! before the slabs, in a place that counts no other references. For all other slabs the first of
//! those words is a second name, with a count of zero, so that a reader that takes it for a slot
//! finds it free. It is written before the table's word, and stays when the slab is free.

use sync::atomic::Ordering;
use sync::counted;

use crate::fingerprint::Description;
use crate::layout::{Class, SLAB_BYTES, Slot, TABLE_SLAB_NAME};
use crate::memory::Memory;

/// High 40 bits of a second name. Below are the class plus 1, in 8 bits, and the count.
const SECOND_NAME: u64 = 0x4D_454D_534C;
const SECOND_NAME_SHIFT: u32 = 24;
const CLASS_SHIFT: u32 = 16;

/// Second name of a table slab, which has no class.
const TABLE_SECOND_NAME: u64 = SECOND_NAME << SECOND_NAME_SHIFT | TABLE_SLAB_NAME << CLASS_SHIFT;

/// Use of a slab, determined when the pool is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The slab has no live slots.
    Free,
    Used(Class),
    /// The slab contains root words.
    Table,
    /// The table's word is invalid, and the use cannot be determined: the slab is not used.
    Unknown,
}

impl Memory {
    /// Records the use of a formatted slab in the slab table.
    pub(crate) fn name_slab(&self, slab: u32, class: Class) {
        let second = self.slot_word_to_store(first_slot(slab));
        if !class.is_large() {
            second.store(second_name_of(class), Ordering::Relaxed);
        } else if is_second_name(second.load(Ordering::Relaxed)) {
            second.store(0, Ordering::Relaxed);
        }
        let word = self.region.word_to_store(self.layout.table_word(slab));
        word.store(u64::from(class.id()) + 1, Ordering::Release);
    }

    /// Records in the slab table that a zeroed slab contains root words, which are valid from then
    /// on.
    pub(crate) fn name_table_slab(&self, slab: u32) {
        let second = self.slot_word_to_store(first_slot(slab));
        second.store(TABLE_SECOND_NAME, Ordering::Relaxed);
        let word = self.region.word_to_store(self.layout.table_word(slab));
        word.store(TABLE_SLAB_NAME, Ordering::Release);
    }
}

/// Determines the use of a slab, and repairs a wrong word of the table. No other thread uses the
/// pool.
pub(crate) fn find(memory: &Memory, slab: u32) -> Found {
    let word = memory.region.word(memory.layout.table_word(slab)).load(Ordering::Relaxed);
    if is_table(memory, slab, word) {
        return Found::Table;
    }
    let named = memory.slab_class(slab);
    let second = class_of(memory.slot_word(first_slot(slab), Ordering::Relaxed));
    let is_large = named.is_some_and(Class::is_large);
    let found = match (large_class(memory, slab), second) {
        (Some(_), _) if is_large => named,
        (Some(class), _) => Some(class),
        (None, Some(class)) if named == Some(class) => named,
        (None, Some(class)) => Some(class).filter(|class| is_in_use(memory, slab, *class)),
        (None, None) if named.is_none() && word != 0 => return Found::Unknown,
        (None, None) => named,
    };
    let Some(class) = found.filter(|class| class.has_slots()) else { return Found::Free };
    // Also for slabs to which earlier releases gave no second name.
    if named != Some(class) || second.is_none() && !class.is_large() {
        memory.name_slab(slab, class);
    }
    Found::Used(class)
}

/// Returns whether a slab contains root words. Damage in one place is repaired.
fn is_table(memory: &Memory, slab: u32, word: u64) -> bool {
    let second = memory.slot_word(first_slot(slab), Ordering::Relaxed);
    let has_large = || large_class(memory, slab).is_some();
    let is_table = match word {
        TABLE_SLAB_NAME => (second ^ TABLE_SECOND_NAME).count_ones() <= 1 || !has_large(),
        _ if second != TABLE_SECOND_NAME || has_large() => false,
        // The state after a kill before it was named: zeros lose nothing.
        0 => has_root_words(memory, slab),
        _ => true,
    };
    if is_table && (word, second) != (TABLE_SLAB_NAME, TABLE_SECOND_NAME) {
        memory.name_table_slab(slab);
    }
    is_table
}

fn has_root_words(memory: &Memory, slab: u32) -> bool {
    let words = (0..SLAB_BYTES).step_by(8).map(|at| memory.layout.slab(slab) + at);
    words.into_iter().any(|at| memory.region.word(at).load(Ordering::Relaxed) != 0)
}

/// Returns the class of a slab of large slots with live slots: pages have descriptions, nodes do
/// not.
fn large_class(memory: &Memory, slab: u32) -> Option<Class> {
    let words = (0..Class::RAW.shape().slot_count)
        .map(|slot| memory.slot_word(Slot { slab, slot, class: Class::RAW }, Ordering::Relaxed));
    let mut live = words.filter(|&word| counted::count_of(word) > 0).peekable();
    live.peek()?;
    let is_page = live.any(|word| Description::in_word(word) != Description::NONE);
    Some(if is_page { Class::RAW } else { Class::NODE })
}

/// Returns whether a slab has live slots of a packed class, all of which are valid.
fn is_in_use(memory: &Memory, slab: u32, class: Class) -> bool {
    if !class.has_slots() {
        return false;
    }
    let shape = class.shape();
    let words = (0..shape.slot_count)
        .map(|slot| memory.slot_word(Slot { slab, slot, class }, Ordering::Relaxed));
    let mut live = words.filter(|&word| counted::count_of(word) > 0).peekable();
    let is_in_order = |word| {
        let description = Description::in_word(word);
        (1..=shape.slot_bytes).contains(&(description.length_bytes() as u64))
            && description.fingerprint().is_some()
            && !description.is_untried()
    };
    live.peek().is_some() && live.all(is_in_order)
}

fn first_slot(slab: u32) -> Slot {
    Slot { slab, slot: 0, class: Class::RAW }
}

fn second_name_of(class: Class) -> u64 {
    SECOND_NAME << SECOND_NAME_SHIFT | (u64::from(class.id()) + 1) << CLASS_SHIFT
}

/// Returns whether a word is a second name, including that of a slab that a kill prevented from
/// becoming a table slab, whose later contents are no root words.
fn is_second_name(word: u64) -> bool {
    word == TABLE_SECOND_NAME || class_of(word).is_some()
}

/// Returns the class in a second name, if the word is one.
fn class_of(word: u64) -> Option<Class> {
    let id = (word >> CLASS_SHIFT & 0xFF).checked_sub(1)?;
    Class::from_id(id).filter(|class| word == second_name_of(*class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_name_is_read_as_it_was_written_and_counts_nothing() {
        for class in Class::all() {
            assert_eq!(class_of(second_name_of(class)), Some(class));
            assert_eq!(counted::count_of(second_name_of(class)), 0);
            for bit in 0..64 {
                let flipped = class_of(second_name_of(class) ^ 1 << bit);
                let is_in_class = (CLASS_SHIFT..CLASS_SHIFT + 8).contains(&bit);
                assert!(flipped.is_none() || is_in_class, "bit {bit}");
            }
        }
        assert_eq!(class_of(0), None);
        assert_eq!((class_of(TABLE_SECOND_NAME), counted::count_of(TABLE_SECOND_NAME)), (None, 0));
    }

    #[test]
    fn no_flipped_bit_makes_a_table_slab_of_another_or_the_reverse() {
        let others = Class::all().map(|class| u64::from(class.id()) + 1).chain([0]);
        for other in others {
            assert!((other ^ TABLE_SLAB_NAME).count_ones() >= 2, "{other}");
        }
    }
}
