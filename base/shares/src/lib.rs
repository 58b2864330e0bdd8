//! Who has how much of a limit that many share, so that nobody takes what is left for others.
//!
//! An owner gets more as long as what it then has is no more than what is then left for all: one
//! alone gets to half, the next to a half of the rest, and there is always a rest. Nothing that was
//! given is taken back.
#![forbid(unsafe_code)]

mod limit;
mod waiting;

use std::collections::BTreeMap;

pub use limit::{Limit, Share};

/// Who takes: a number of its own for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u64);

impl Owner {
    /// Owner of what the service needs itself, and of what somebody took before it was last
    /// started. It counts as taken, and has no bound but that of all.
    pub const NOBODY: Self = Self(0);
}

/// Returns whether an owner that has `own` parts may take so many more of those that are left.
pub fn leaves_enough(own: usize, more: usize, left: usize) -> bool {
    more <= left && own + more <= left - more
}

/// Parts of a limit that have been taken, by owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    by_owner: BTreeMap<Owner, usize>,
    total: usize,
}

impl Shares {
    /// Sum of all owners.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Parts that an owner has; of nobody none are counted.
    pub fn of(&self, owner: Owner) -> usize {
        self.by_owner.get(&owner).copied().unwrap_or(0)
    }

    /// Returns whether an owner may take so much more, where all together may have `most`.
    pub fn has_room(&self, owner: Owner, more: usize, most: usize) -> bool {
        let left = most.saturating_sub(self.total);
        match owner {
            Owner::NOBODY => more <= left,
            _ => leaves_enough(self.of(owner), more, left),
        }
    }

    /// Counts what an owner has taken, whether there was room or not.
    pub fn take(&mut self, owner: Owner, amount: usize) {
        self.total += amount;
        if owner != Owner::NOBODY && amount > 0 {
            *self.by_owner.entry(owner).or_default() += amount;
        }
    }

    /// Counts what an owner has given back.
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

    /// How much an owner gets, one after the other.
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
