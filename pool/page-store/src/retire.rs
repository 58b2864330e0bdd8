//! Retired references: unpublished, and waiting for readers that may still use them.

use std::collections::VecDeque;

use sync::{Epoch, Grace};

use crate::layout::Slot;

/// Maximum number of references that a lane keeps before it must wait for a grace period.
pub(crate) const RETIRED_MAX: usize = 16 << 10;

/// Number of references retired since the last stamp that justifies the fence of another one.
const STAMP_FROM: usize = 64;

/// Number of stamped references that justifies an epoch advance, which interrupts other threads.
const ADVANCE_FROM: usize = 512;

/// Minimum number of references released in a turn, and number for each one retired in the last.
const RELEASED_MIN: usize = 4;
const RELEASED_FOR_EACH: usize = 2;

/// Retired references of one lane, oldest first.
#[derive(Debug)]
pub(crate) struct Retired {
    slots: VecDeque<Slot>,
    /// Epochs, and the number of `slots` that wait for each, from the front.
    batches: VecDeque<(Epoch, usize)>,
    /// Number of references after all batches, unpublished since the last stamp.
    fresh: usize,
    /// The last epoch known to have passed.
    passed: Option<Epoch>,
    /// Number of references retired since the last turn began.
    pushed_in_turn: usize,
}

impl Retired {
    pub(crate) fn new() -> Self {
        Self {
            slots: VecDeque::with_capacity(RETIRED_MAX),
            batches: VecDeque::with_capacity(RETIRED_MAX / STAMP_FROM),
            fresh: 0,
            passed: None,
            pushed_in_turn: 0,
        }
    }

    /// Adds a reference that the caller has unpublished.
    #[inline]
    pub(crate) fn push(&mut self, slot: Slot) {
        self.slots.push_back(slot);
        self.fresh += 1;
        self.pushed_in_turn += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Begins a turn: checks for passed epochs when that is worthwhile. Returns the number of
    /// references that the turn should release.
    #[inline]
    pub(crate) fn begin_turn(&mut self, grace: &Grace) -> usize {
        let pushed = std::mem::take(&mut self.pushed_in_turn);
        if self.fresh >= STAMP_FROM {
            self.stamp(grace);
            if self.slots.len() >= ADVANCE_FROM && !self.has_passed() {
                self.advance(grace);
            }
        }
        RELEASED_MIN.max(pushed * RELEASED_FOR_EACH)
    }

    /// Stamps all references added so far with the current epoch.
    pub(crate) fn stamp(&mut self, grace: &Grace) {
        if self.fresh == 0 {
            return;
        }
        let epoch = grace.retire_epoch();
        match self.batches.back_mut() {
            Some((last, count)) if *last == epoch => *count += self.fresh,
            _ => self.batches.push_back((epoch, self.fresh)),
        }
        self.fresh = 0;
    }

    /// Advances the epoch, if no reader prevents it.
    pub(crate) fn advance(&mut self, grace: &Grace) {
        self.passed = Some(grace.advance());
    }

    /// Returns the reference at `distance` after the next one.
    pub(crate) fn ahead(&self, distance: usize) -> Option<Slot> {
        self.slots.get(distance).copied()
    }

    /// Takes the next reference that no reader can use any more.
    pub(crate) fn pop_passed(&mut self) -> Option<Slot> {
        if !self.has_passed() {
            return None;
        }
        let (_, count) = self.batches.front_mut()?;
        *count -= 1;
        if *count == 0 {
            self.batches.pop_front();
        }
        let slot = self.slots.pop_front();
        if self.slots.is_empty() {
            // The next one is stored at the front again, so that memory past it stays untouched.
            self.slots.clear();
            self.batches.clear();
        }
        slot
    }

    fn has_passed(&self) -> bool {
        self.batches.front().is_some_and(|(epoch, _)| Some(*epoch) <= self.passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Class;

    fn slot(slot: u32) -> Slot {
        Slot { slab: 0, slot, class: Class::RAW }
    }

    #[test]
    fn references_come_out_in_order_once_their_epoch_has_passed() {
        let grace = Grace::new(1);
        let mut retired = Retired::new();
        retired.push(slot(1));
        retired.push(slot(2));
        retired.stamp(&grace);
        retired.advance(&grace);
        retired.push(slot(3));
        retired.stamp(&grace);
        assert_eq!(retired.pop_passed(), Some(slot(1)));
        assert_eq!(retired.pop_passed(), Some(slot(2)));
        assert_eq!(retired.pop_passed(), None);
        retired.advance(&grace);
        assert_eq!(retired.pop_passed(), Some(slot(3)));
    }

    #[test]
    fn turns_give_back_as_much_as_is_retired() {
        let grace = Grace::new(1);
        let mut retired = Retired::new();
        let mut longest = 0;
        for turn in 0..10_000 {
            let count = retired.begin_turn(&grace);
            let _given_back = (0..count).map_while(|_| retired.pop_passed()).count();
            (0..turn % 7).for_each(|_| retired.push(slot(1)));
            longest = longest.max(retired.len());
        }
        assert!(longest < 2 * ADVANCE_FROM, "{longest} references were kept");
    }
}
