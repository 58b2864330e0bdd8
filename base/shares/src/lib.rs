//! Fair sharing of a limited resource among owners, such as users of a broker.
//!
//! An allocation is granted if the owner then holds no more than what remains free. A single owner
//! can therefore hold half of the limit, the next owner half of the rest, and some of it is always
//! free. Allocations are never revoked.
#![forbid(unsafe_code)]

mod limit;
mod waiting;

use std::collections::BTreeMap;

pub use limit::{Limit, Share};

/// Owner of shares, identified by a unique number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u64);

impl Owner {
    /// Owner of allocations by the service itself, and of those made before its last start. They
    /// count towards the limit of all owners, and have no other bound.
    pub const NOBODY: Self = Self(0);
}

/// Returns whether an owner with `own` units may allocate `more` of the `left` free ones.
pub fn leaves_enough(own: usize, more: usize, left: usize) -> bool {
    more <= left && own + more <= left - more
}

/// Allocated units of a limit, by owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    by_owner: BTreeMap<Owner, usize>,
    total: usize,
}

impl Shares {
    /// Returns the units of all owners.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Returns the units of an owner. Those of [`Owner::NOBODY`] are only in the total.
    pub fn of(&self, owner: Owner) -> usize {
        self.by_owner.get(&owner).copied().unwrap_or(0)
    }

    /// Returns whether an owner may allocate `more` units under the limit `most` of all owners.
    pub fn has_room(&self, owner: Owner, more: usize, most: usize) -> bool {
        let left = most.saturating_sub(self.total);
        match owner {
            Owner::NOBODY => more <= left,
            _ => leaves_enough(self.of(owner), more, left),
        }
    }

    /// Counts an allocation without checking the limit.
    pub fn take(&mut self, owner: Owner, amount: usize) {
        self.total += amount;
        if owner != Owner::NOBODY && amount > 0 {
            *self.by_owner.entry(owner).or_default() += amount;
        }
    }

    /// Counts a release.
    pub fn give_back(&mut self, owner: Owner, amount: usize) {
        self.total -= amount;
        if let Some(own) = self.by_owner.get_mut(&owner) {
            *own -= amount;
            if *own == 0 {
                self.by_owner.remove(&owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allocates single units for an owner until it is refused one. Returns their number.
    fn take_all(shares: &mut Shares, owner: Owner, most: usize) -> usize {
        let mut taken = 0;
        while shares.has_room(owner, 1, most) {
            shares.take(owner, 1);
            taken += 1;
        }
        taken
    }

    #[test]
    fn whoever_comes_later_finds_a_rest() {
        let mut shares = Shares::default();
        let taken: Vec<usize> =
            (1..=5).map(|number| take_all(&mut shares, Owner(number), 1_000)).collect();
        assert_eq!(taken, [500, 250, 125, 62, 31]);
        assert_eq!(take_all(&mut shares, Owner(1), 1_000), 0);
    }

    #[test]
    fn what_is_given_back_is_there_for_the_others() {
        let mut shares = Shares::default();
        take_all(&mut shares, Owner(1), 100);
        assert_eq!(take_all(&mut shares, Owner(2), 100), 25);
        shares.give_back(Owner(1), 50);
        assert_eq!(take_all(&mut shares, Owner(2), 100), 25, "half of all");
        shares.give_back(Owner(2), 50);
        assert_eq!(shares, Shares::default());
    }

    #[test]
    fn what_is_of_nobody_has_the_bound_of_all() {
        let mut shares = Shares::default();
        assert_eq!(take_all(&mut shares, Owner::NOBODY, 10), 10);
        assert_eq!(take_all(&mut shares, Owner(1), 10), 0);
        shares.give_back(Owner::NOBODY, 10);
        assert_eq!(shares, Shares::default());
    }

    #[test]
    fn large_amounts_fit_or_do_not() {
        let mut shares = Shares::default();
        assert!(!shares.has_room(Owner(1), 51, 100));
        assert!(!shares.has_room(Owner(1), usize::MAX, 100));
        shares.take(Owner(2), 200);
        assert!(!shares.has_room(Owner(1), 1, 100), "more is taken than there is");
    }
}
