//! A limit that owners share, and what each of them has of it until it is dropped.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::{Owner, Shares};

/// Limit that owners share: nobody takes what is left for others.
#[derive(Debug)]
pub struct Limit {
    most: usize,
    taken: Mutex<Shares>,
}

/// Part of a limit, which is its owner's until it is dropped.
#[derive(Debug)]
pub struct Share {
    limit: Arc<Limit>,
    owner: Owner,
    amount: usize,
}

impl Limit {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    /// Limit of all owners together.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Sum of all shares.
    pub fn taken(&self) -> usize {
        self.lock().total()
    }

    /// A share of nothing, which can grow.
    pub fn nothing(self: &Arc<Self>, owner: Owner) -> Share {
        Share { limit: Arc::clone(self), owner, amount: 0 }
    }

    /// Takes so much for an owner. `None`: it would leave too little to others.
    pub fn try_take(self: &Arc<Self>, owner: Owner, amount: usize) -> Option<Share> {
        let mut share = self.nothing(owner);
        share.try_resize(amount).then_some(share)
    }

    fn lock(&self) -> MutexGuard<'_, Shares> {
        self.taken.lock().expect("no thread panics with this lock")
    }
}

impl Share {
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Parts of the limit that it has.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Limit that it is a part of.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Makes the share as large as that. Returns false, and changes nothing, where its owner would
    /// leave too little to others.
    pub fn try_resize(&mut self, amount: usize) -> bool {
        let mut taken = self.limit.lock();
        let more = amount.saturating_sub(self.amount);
        if more > 0 && !taken.has_room(self.owner, more, self.limit.most) {
            return false;
        }
        taken.give_back(self.owner, self.amount);
        taken.take(self.owner, amount);
        self.amount = amount;
        true
    }

    /// Takes more, whether there is room or not.
    pub fn grow(&mut self, more: usize) {
        self.limit.lock().take(self.owner, more);
        self.amount += more;
    }

    /// Gives so much of it back.
    pub fn shrink(&mut self, less: usize) {
        self.amount -= less;
        self.limit.lock().give_back(self.owner, less);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.limit.lock().give_back(self.owner, self.amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Owner = Owner(1);

    #[test]
    fn what_is_taken_is_given_back_when_it_is_dropped() {
        let limit = Limit::new(100);
        let (first, mut second) = (limit.try_take(ONE, 20), limit.nothing(ONE));
        assert!(second.try_resize(30) && !second.try_resize(31), "half of all");
        assert_eq!((limit.taken(), second.amount()), (50, 30), "nothing changed");
        drop(first);
        assert!(second.try_resize(50) && second.try_resize(5));
        second.grow(100);
        assert_eq!((limit.taken(), second.amount()), (105, 105));
        assert!(limit.try_take(Owner(2), 1).is_none(), "more is taken than there is");
        assert!(second.try_resize(2), "it may shrink whatever is left");
        second.shrink(1);
        assert_eq!((limit.taken(), second.amount()), (1, 1));
        drop(second);
        assert_eq!(*limit.lock(), Shares::default());
    }
}
