//! References on their way out: unpublished, waiting for the readers that may still follow them.

use std::collections::VecDeque;

use sync::{Epoch, Grace};

use crate::layout::Slot;

/// References that a lane keeps at most before it must wait for a grace period.
pub(crate) const RETIRED_MAX: usize = 16 << 10;

/// References retired since the last stamp that make another one worth its fence.
const STAMP_FROM: usize = 64;

/// Stamped references that make it worth to advance the epoch, which interrupts other threads.
const ADVANCE_FROM: usize = 512;

/// References given back in a turn, at least and for each one that the last turn retired.
const RELEASED_MIN: usize = 4;
const RELEASED_FOR_EACH: usize = 2;

/// The retired references of one lane, oldest first.
#[derive(Debug)]
pub(crate) struct Retired {
    slots: VecDeque<Slot>,
    /// How many of `slots`, from the front, wait for which epoch.
    batches: VecDeque<(Epoch, usize)>,
    /// After all batches: unpublished since the last one was stamped.
    fresh: usize,
    /// The last epoch that is known to have passed.
    passed: Option<Epoch>,
    /// Retired since the last turn began.
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

    /// The caller has unpublished this reference.
    #[inline]
    pub(crate) fn push(&mut self, slot: Slot) {
        self.slots.push_back(slot);
        self.fresh += 1;
        self.pushed_in_turn += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Begins a turn: looks for passed epochs when that is worth it. Returns how many references
    /// the turn should give back.
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

    /// Everything pushed so far waits for the epoch that is now.
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

    /// Lets an epoch pass, if no reader holds it up.
    pub(crate) fn advance(&mut self, grace: &Grace) {
        self.passed = Some(grace.advance());
    }

    /// The reference that comes `distance` after the next one.
    pub(crate) fn ahead(&self, distance: usize) -> Option<Slot> {
        self.slots.get(distance).copied()
    }

    /// The next reference that no reader can follow any more.
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
            // The next one goes to the front again: what lies past it stays untouched memory.
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
