//! Leader and parked workers of a worker pool (the leader/followers pattern).
//!
//! One worker is the leader, and only it waits for requests. The others are parked. The leader
//! unparks one when requests queue up, or when it resigns before slow work. Several threads waiting
//! on the same descriptor would cause needless wake-ups.
//!
//! While there is no leader, some worker is awake or is about to be unparked: a worker that resigns
//! unparks another one afterwards, and a worker that parks checks for a leader afterwards.
//!
//! A leader may step aside for a short time. No worker leads then and none is unparked, so another
//! thread must monitor that the leader returns.
//!
//! A leader that sleeps until a request arrives may be relieved by a worker that is awake. The
//! relieved leader must be woken, because it would otherwise wake up for each request.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Thread};

/// Limited by the number of bits of one word.
pub(crate) const WORKER_COUNT_MAX: usize = 64;

const NO_LEADER: usize = 0;

const fn awake(worker: usize) -> usize {
    4 * worker + 1
}

const fn asleep(worker: usize) -> usize {
    4 * worker + 2
}

const fn aside(worker: usize) -> usize {
    4 * worker + 3
}

#[derive(Debug)]
pub(super) struct Leadership {
    /// State of the leadership: [`NO_LEADER`], or [`awake`], [`asleep`] or [`aside`] of the leader.
    leader: AtomicUsize,
    /// Bit set of parked workers.
    parked: AtomicU64,
    threads: Vec<OnceLock<Thread>>,
}

impl Leadership {
    pub(super) fn new(worker_count: usize) -> Self {
        assert!((1..=WORKER_COUNT_MAX).contains(&worker_count), "{worker_count} workers");
        let threads = (0..worker_count).map(|_| OnceLock::new()).collect();
        Self { leader: AtomicUsize::new(NO_LEADER), parked: AtomicU64::new(0), threads }
    }

    /// Registers the calling thread as `worker`. Must be called once, before it parks.
    pub(super) fn register(&self, worker: usize) {
        let signed = self.threads[worker].set(thread::current());
        assert!(signed.is_ok(), "worker {worker} registered twice");
    }

    pub(super) fn has_leader(&self) -> bool {
        self.leader.load(Ordering::SeqCst) != NO_LEADER
    }

    /// Tries to become the leader. Returns whether the calling worker leads.
    pub(super) fn try_lead(&self, worker: usize) -> bool {
        // PAIRS-WITH: Leadership::resign, "the former leader is done with waiting".
        self.change_leader(NO_LEADER, awake(worker))
    }

    /// Tries to replace a sleeping leader. If this returns true, the caller must wake the former
    /// leader.
    pub(super) fn try_relieve(&self, worker: usize) -> bool {
        let leader = self.leader.load(Ordering::SeqCst);
        leader % 4 == asleep(0) && self.change_leader(leader, awake(worker))
    }

    /// Marks the leader as sleeping. An awake worker may then relieve it.
    pub(super) fn fall_asleep(&self, worker: usize) {
        let was_leader = self.change_leader(awake(worker), asleep(worker));
        debug_assert!(was_leader, "worker {worker} slept as a leader without being one");
    }

    /// Marks the sleeping leader as awake. Returns whether it still leads.
    pub(super) fn wake_up(&self, worker: usize) -> bool {
        self.change_leader(asleep(worker), awake(worker))
    }

    fn change_leader(&self, from: usize, to: usize) -> bool {
        self.leader.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Marks the leader as aside: it does other work for a short time and then leads again.
    pub(super) fn step_aside(&self, worker: usize) {
        let was_leader = self.change_leader(awake(worker), aside(worker));
        debug_assert!(was_leader, "worker {worker} stepped aside without leading");
    }

    /// Ends the time aside. Returns whether the worker leads again.
    pub(super) fn come_back(&self, worker: usize) -> bool {
        self.change_leader(aside(worker), awake(worker))
    }

    /// If the leader is aside, removes it and unparks a worker to lead.
    pub(super) fn replace_aside(&self) {
        let leader = self.leader.load(Ordering::SeqCst);
        if leader % 4 == aside(0) && self.change_leader(leader, NO_LEADER) {
            self.call_one();
        }
    }

    /// Gives up the leadership and unparks a worker to take it.
    pub(super) fn resign(&self) {
        // PAIRS-WITH: Leadership::try_lead, "the former leader is done with waiting".
        self.leader.store(NO_LEADER, Ordering::SeqCst);
        self.call_one();
    }

    pub(super) fn awake_count(&self) -> usize {
        let parked = self.parked.load(Ordering::Relaxed).count_ones();
        self.threads.len() - usize::try_from(parked).expect("at most 64")
    }

    /// Unparks one worker, if any is parked.
    pub(super) fn call_one(&self) {
        // SeqCst: either we see the bit that a worker set, or it sees that there is no leader.
        let called = self.parked.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |parked| {
            (parked != 0).then(|| parked & (parked - 1))
        });
        if let Ok(parked) = called {
            let worker = usize::try_from(parked.trailing_zeros()).expect("a bit number");
            self.thread(worker).unpark();
        }
    }

    /// Wakes all workers, whatever their state.
    pub(super) fn call_all(&self) {
        self.parked.store(0, Ordering::SeqCst);
        self.threads.iter().filter_map(OnceLock::get).for_each(Thread::unpark);
    }

    /// Parks the worker until it is called. Returns immediately if there is no leader or `is_over`
    /// returns true.
    pub(super) fn park(&self, worker: usize, is_over: impl Fn() -> bool) {
        let bit = 1_u64 << worker;
        self.parked.fetch_or(bit, Ordering::SeqCst);
        while self.parked.load(Ordering::SeqCst) & bit != 0 {
            if !self.has_leader() || is_over() {
                self.parked.fetch_and(!bit, Ordering::SeqCst);
                return;
            }
            thread::park();
        }
    }

    fn thread(&self, worker: usize) -> &Thread {
        self.threads[worker].get().expect("workers register before they park")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn there_is_one_leader_at_a_time() {
        let leadership = Leadership::new(2);
        assert!(leadership.try_lead(0));
        assert!(!leadership.try_lead(1));
        leadership.resign();
        assert!(leadership.try_lead(1));
    }

    #[test]
    fn a_leader_that_sleeps_is_relieved_and_finds_that_out() {
        let leadership = Leadership::new(3);
        assert!(leadership.try_lead(0));
        assert!(!leadership.try_relieve(1));
        leadership.fall_asleep(0);
        assert!(!leadership.try_lead(1));
        assert!(leadership.try_relieve(1));
        assert!(!leadership.try_relieve(2));
        assert!(!leadership.wake_up(0));
        leadership.fall_asleep(1);
        assert!(leadership.wake_up(1));
        assert!(!leadership.try_relieve(2));
    }

    #[test]
    fn a_leader_that_is_aside_too_long_is_replaced() {
        let leadership = Leadership::new(2);
        assert!(leadership.try_lead(0));
        leadership.replace_aside();
        leadership.step_aside(0);
        assert!(!leadership.try_lead(1));
        assert!(leadership.come_back(0));
        leadership.step_aside(0);
        leadership.replace_aside();
        assert!(leadership.try_lead(1));
        assert!(!leadership.come_back(0));
    }

    #[test]
    fn a_worker_does_not_park_when_none_leads() {
        let leadership = Leadership::new(1);
        leadership.register(0);
        leadership.park(0, || false);
        assert!(leadership.try_lead(0));
    }

    #[test]
    fn a_parked_worker_takes_over_from_a_leader_that_resigns() {
        let leadership = Leadership::new(2);
        assert!(leadership.try_lead(0));
        thread::scope(|scope| {
            let follower = scope.spawn(|| {
                leadership.register(1);
                leadership.park(1, || false);
                leadership.try_lead(1)
            });
            while leadership.parked.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            leadership.resign();
            assert!(follower.join().expect("the follower returns"));
        });
    }

    #[test]
    fn a_call_wakes_a_parked_worker_although_there_is_a_leader() {
        let leadership = Leadership::new(2);
        assert!(leadership.try_lead(0));
        thread::scope(|scope| {
            let called = scope.spawn(|| {
                leadership.register(1);
                leadership.park(1, || false);
            });
            while !called.is_finished() {
                leadership.call_one();
                thread::yield_now();
            }
        });
    }

    #[test]
    fn all_workers_wake_at_the_end() {
        let leadership = Leadership::new(3);
        let is_over = AtomicBool::new(false);
        assert!(leadership.try_lead(0));
        thread::scope(|scope| {
            for worker in 0..3 {
                let (leadership, is_over) = (&leadership, &is_over);
                scope.spawn(move || {
                    leadership.register(worker);
                    leadership.park(worker, || is_over.load(Ordering::SeqCst));
                });
            }
            while leadership.parked.load(Ordering::SeqCst).count_ones() < 3 {
                thread::yield_now();
            }
            is_over.store(true, Ordering::SeqCst);
            leadership.call_all();
        });
    }
}
