//! A limit that owners share, and what each of them has of it until it is dropped.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::{Owner, Shares};

/// Limit that owners share: nobody takes what is left for others.
#[derive(Debug)]
pub struct Limit {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    shares: Shares,
    /// Owners that wait for a part, and how they are told that one was given back.
    waiting: BTreeMap<Owner, Arc<Notify>>,
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
        self.lock().shares.total()
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

    /// Takes one part, once it leaves enough to others.
    pub async fn take_one(self: &Arc<Self>, owner: Owner) -> Share {
        let given_back = Arc::clone(self.lock().waiting.entry(owner).or_default());
        loop {
            // Before it is looked: what is given back from here on wakes it.
            let mut woken = pin!(given_back.notified());
            woken.as_mut().enable();
            if let Some(share) = self.try_take(owner, 1) {
                return share;
            }
            woken.await;
        }
    }

    fn give_back(&self, owner: Owner, amount: usize) {
        if amount == 0 {
            return;
        }
        let mut taken = self.lock();
        let Taken { shares, waiting } = &mut *taken;
        shares.give_back(owner, amount);
        waiting.retain(|owner, given_back| {
            match (shares.has_room(*owner, 1, self.most), amount) {
                (false, _) => {}
                // It makes room for one more of each owner.
                (true, 1) => given_back.notify_one(),
                (true, _) => given_back.notify_waiters(),
            }
            Arc::strong_count(given_back) > 1
        });
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
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
        let Some(more) = amount.checked_sub(self.amount) else {
            self.shrink(self.amount - amount);
            return true;
        };
        let mut taken = self.limit.lock();
        let has_room = more == 0 || taken.shares.has_room(self.owner, more, self.limit.most);
        if has_room {
            taken.shares.take(self.owner, more);
            self.amount = amount;
        }
        has_room
    }

    /// Takes more, whether there is room or not.
    pub fn grow(&mut self, more: usize) {
        self.limit.lock().shares.take(self.owner, more);
        self.amount += more;
    }

    /// Gives so much of it back.
    pub fn shrink(&mut self, less: usize) {
        self.amount -= less;
        self.limit.give_back(self.owner, less);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.limit.give_back(self.owner, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        assert_eq!(limit.lock().shares, Shares::default());
    }
    /// Goal: whoever waits for a part gets one, whoever gives it back and whoever gives up waiting.
    /// Method: many tasks of several owners take one after the other on several threads. Some give
    /// up when it is their turn.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn nobody_waits_for_a_part_that_was_given_back() {
        const TIME_LIMIT: Duration = Duration::from_secs(60);
        let limit = Limit::new(8);
        let take_all = |number: u64| {
            let limit = Arc::clone(&limit);
            tokio::spawn(async move {
                let owner = Owner(1 + number % 3);
                for round in number..number + 400 {
                    match round % 5 {
                        0 => {
                            drop(tokio::time::timeout(Duration::ZERO, limit.take_one(owner)).await)
                        }
                        _ => {
                            let _share = limit.take_one(owner).await;
                            tokio::task::yield_now().await;
                        }
                    }
                }
            })
        };
        let all: Vec<_> = (0..60).map(take_all).collect();
        for task in all {
            let done = tokio::time::timeout(TIME_LIMIT, task).await;
            done.expect("it waits for ever").expect("it does not panic");
        }
        assert_eq!(limit.taken(), 0);
    }
}
