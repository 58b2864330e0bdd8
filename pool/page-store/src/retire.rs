//! References on their way out: unpublished, waiting for the readers that may still follow them.

use std::collections::VecDeque;

use sync::{Epoch, Grace};

use crate::layout::Slot;

/// References that a lane keeps at most before it must wait for a grace period.
pub(crate) const RETIRED_MAX: usize = 16 << 10;

/// References that make it worth to look for passed grace periods.
const LOOK_FROM: usize = 32;

/// The retired references of one lane, oldest first.
#[derive(Debug)]
pub(crate) struct Retired {
    slots: VecDeque<Slot>,
    /// How many of `slots`, from the front, wait for which epoch.
    batches: VecDeque<(Epoch, usize)>,
    /// Behind all batches: unpublished since the last one was stamped.
    fresh: usize,
}

impl Retired {
    pub(crate) fn new() -> Self {
        Self {
            slots: VecDeque::with_capacity(RETIRED_MAX),
            batches: VecDeque::with_capacity(RETIRED_MAX),
            fresh: 0,
        }
    }

    /// The caller has unpublished this reference.
    pub(crate) fn push(&mut self, slot: Slot) {
        self.slots.push_back(slot);
        self.fresh += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_worth_draining(&self) -> bool {
        self.slots.len() - self.fresh >= LOOK_FROM
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

    /// The reference that comes `distance` behind the next one.
    pub(crate) fn ahead(&self, distance: usize) -> Option<Slot> {
        self.slots.get(distance).copied()
    }

    /// The next reference that no reader can follow any more, given the last epoch that passed.
    pub(crate) fn pop_passed(&mut self, passed: Epoch) -> Option<Slot> {
        let (epoch, count) = self.batches.front_mut()?;
        if *epoch > passed {
            return None;
        }
        *count -= 1;
        if *count == 0 {
            self.batches.pop_front();
        }
        self.slots.pop_front()
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
        let passed = grace.advance();
        retired.push(slot(3));
        retired.stamp(&grace);
        assert_eq!(retired.pop_passed(passed), Some(slot(1)));
        assert_eq!(retired.pop_passed(passed), Some(slot(2)));
        assert_eq!(retired.pop_passed(passed), None);
        assert_eq!(retired.pop_passed(grace.advance()), Some(slot(3)));
    }
}
