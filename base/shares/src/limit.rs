//! A limit shared by several owners, and the shares that they hold until they drop them.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot::{Sender, channel};

use crate::waiting::Waiting;
use crate::{Owner, Shares};

/// Limit on the units of all owners together. Each owner must leave a part to the others.
#[derive(Debug)]
pub struct Limit {
    most: usize,
    taken: Mutex<Taken>,
}

/// Allocated units and waiting tasks. Invariant: no task waits that could be served.
#[derive(Debug, Default)]
struct Taken {
    shares: Shares,
    waiting: Waiting<Sender<Share>>,
}

/// Units allocated to one owner. Dropping the share releases them.
#[derive(Debug)]
pub struct Share {
    limit: Arc<Limit>,
    owner: Owner,
    amount: usize,
}

/// Place of a task in the queue. Dropping it removes the task.
struct Turn<'a> {
    limit: &'a Limit,
    owner: Owner,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.limit.lock().waiting.leave(self.owner, self.number);
    }
}

impl Taken {
    /// Allocates units to an owner if that leaves enough to others.
    fn try_take(&mut self, owner: Owner, more: usize, most: usize) -> bool {
        let has_room = self.shares.has_room(owner, more, most);
        if has_room {
            self.take(owner, more);
        }
        has_room
    }

    fn take(&mut self, owner: Owner, more: usize) {
        self.shares.take(owner, more);
        self.waiting.note(owner, self.shares.of(owner));
    }

    fn give_back(&mut self, owner: Owner, amount: usize) {
        self.shares.give_back(owner, amount);
        self.waiting.note(owner, self.shares.of(owner));
    }
}

impl Limit {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    /// Returns the limit of all owners together.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Returns the allocated units of all owners.
    pub fn taken(&self) -> usize {
        self.lock().shares.total()
    }

    /// Returns the allocated units of an owner.
    pub fn taken_by(&self, owner: Owner) -> usize {
        self.lock().shares.of(owner)
    }

    /// Creates an empty share, which can grow.
    pub fn nothing(self: &Arc<Self>, owner: Owner) -> Share {
        Share { limit: Arc::clone(self), owner, amount: 0 }
    }

    /// Allocates units to an owner. Returns `None` if that would leave too little to others.
    pub fn try_take(self: &Arc<Self>, owner: Owner, amount: usize) -> Option<Share> {
        let mut share = self.nothing(owner);
        share.try_resize(amount).then_some(share)
    }

    /// Allocates one unit, and waits until that leaves enough to others. Of several waiting owners,
    /// the one with the fewest units is served first.
    pub async fn take_one(self: &Arc<Self>, owner: Owner) -> Share {
        let (task, served) = channel();
        let number = {
            let mut taken = self.lock();
            if taken.try_take(owner, 1, self.most) {
                return Share { limit: Arc::clone(self), owner, amount: 1 };
            }
            let own = taken.shares.of(owner);
            taken.waiting.enter(owner, own, task)
        };
        let _turn = Turn { limit: self, owner, number };
        served.await.expect("a task that waits is served")
    }

    fn give_back(self: &Arc<Self>, owner: Owner, amount: usize) {
        if amount == 0 {
            return;
        }
        let mut taken = self.lock();
        taken.give_back(owner, amount);
        let mut served = Vec::new();
        while let Some((owner, task)) = self.serve_next(&mut taken) {
            served.push((task, Share { limit: Arc::clone(self), owner, amount: 1 }));
        }
        drop(taken);
        for (task, share) in served {
            // If the task has just stopped waiting, its share is dropped, which serves the next.
            let _given_up = task.send(share);
        }
    }

    /// Allocates a unit for the next waiting task, if possible. Its owner has the fewest units, so
    /// if it is refused, all others would be refused too.
    fn serve_next(&self, taken: &mut Taken) -> Option<(Owner, Sender<Share>)> {
        let owner = taken.waiting.next()?;
        if !taken.shares.has_room(owner, 1, self.most) {
            return None;
        }
        let task = taken.waiting.serve(owner)?;
        taken.take(owner, 1);
        Some((owner, task))
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().expect("no thread panics with this lock")
    }
}

impl Share {
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Returns the number of units.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Returns the limit to which the units count.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Grows or shrinks the share to `amount` units. Returns false and changes nothing if that
    /// would leave too little to others.
    pub fn try_resize(&mut self, amount: usize) -> bool {
        let Some(more) = amount.checked_sub(self.amount) else {
            self.shrink(self.amount - amount);
            return true;
        };
        let has_room = more == 0 || self.limit.lock().try_take(self.owner, more, self.limit.most);
        if has_room {
            self.amount = amount;
        }
        has_room
    }

    /// Adds units without checking the limit.
    pub fn grow(&mut self, more: usize) {
        self.limit.lock().take(self.owner, more);
        self.amount += more;
    }

    /// Releases some of the units.
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
    use std::pin::Pin;
    use std::task::{Context, Poll, Wake, Waker};
    use std::time::Duration;

    use super::*;

    const ONE: Owner = Owner(1);

    type Taking = Pin<Box<dyn Future<Output = Share>>>;

    fn take_one(limit: &Arc<Limit>, owner: Owner) -> Taking {
        let limit = Arc::clone(limit);
        Box::pin(async move { limit.take_one(owner).await })
    }

    /// Counts the wake-ups of a task.
    #[derive(Default)]
    struct Wakes(Mutex<usize>);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            *self.0.lock().expect("no thread panics with this lock") += 1;
        }
    }

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

    #[test]
    fn parts_that_are_given_back_wake_no_more_tasks_than_there_is_room_for() {
        let limit = Limit::new(16);
        let mut all = limit.nothing(Owner::NOBODY);
        assert!(all.try_resize(15));
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut waiting: Vec<Taking> =
            (1..=1_000).map(|number| take_one(&limit, Owner(number))).collect();
        let is_waiting = |it: &mut Taking| it.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(waiting.iter_mut().all(|it| is_waiting(it).is_pending()));
        all.shrink(1);
        let count = || *wakes.0.lock().expect("no thread panics with this lock");
        assert_eq!(count(), 1, "two are left, and one of them stays");
        all.shrink(10);
        assert_eq!(count(), 11);
    }

    /// Polls a task. Returns its share once it is ready.
    fn poll(task: &mut Taking) -> Option<Share> {
        match task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(share) => Some(share),
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_owner_that_has_least_and_waits_for_longest_is_served_first() {
        let limit = Limit::new(7);
        let mut all = limit.nothing(Owner::NOBODY);
        assert!(all.try_resize(1));
        let _first = limit.try_take(ONE, 2).expect("there is room");
        assert!(all.try_resize(4));
        // Another unit for any owner would leave too little to the first one.
        let owners = [ONE, Owner(3), Owner(3), Owner(2)];
        let mut tasks: Vec<Taking> =
            owners.into_iter().map(|owner| take_one(&limit, owner)).collect();
        assert!(tasks.iter_mut().all(|task| poll(task).is_none()));
        let mut served = Vec::new();
        let mut shares = Vec::new();
        for _ in 0..4 {
            all.shrink(1);
            for (nth, task) in tasks.iter_mut().enumerate() {
                if !served.contains(&nth)
                    && let Some(share) = poll(task)
                {
                    served.push(nth);
                    shares.push(share);
                }
            }
        }
        assert_eq!(served, [1, 3, 2], "the first owner has two, and waits");
    }

    #[test]
    fn a_part_for_a_task_that_has_given_up_goes_to_the_next() {
        let limit = Limit::new(2);
        let taken = limit.try_take(Owner::NOBODY, 2).expect("there is room");
        let mut tasks = [take_one(&limit, ONE), take_one(&limit, ONE), take_one(&limit, Owner(2))];
        assert!(tasks.iter_mut().all(|task| poll(task).is_none()));
        let [gone, served, mut last] = tasks;
        drop(gone);
        drop(taken);
        assert!(poll(&mut last).is_none(), "the first has one, and never looks at it");
        drop(served);
        assert!(poll(&mut last).is_some());
        assert_eq!(limit.taken(), 0);
    }

    /// Goal: every waiting task is served, also if others release units or stop waiting.
    /// Method: many tasks of several owners allocate units in turn on several threads. Some stop
    /// waiting when they are about to be served.
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
