//! The rings of one worker, and access to them from other threads.
//!
//! ```text
//! worker ── holds the rings ──▶ serves, spins, sleeps
//! control thread ── RingSet::visit ──▶ pauses the worker
//! late work ── RingSet::hand_in ──▶ passes answers, which the worker delivers
//! ```
//!
//! The worker holds the lock unless another thread visits, also while it sleeps, so a request takes
//! no lock. A visitor first announces itself, then wakes the worker, then waits for the lock.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use rustix::event::{PollFd, PollFlags, poll};

use crate::event::Event;
use crate::ring::Ring;
use crate::server::Outcome;

const NOT_POISONED: &str = "nothing panics while it holds this lock";

/// Time for which a visitor waits before it assumes that the worker blocks on a call eventfd.
const WORKER_PATIENCE: Duration = Duration::from_millis(10);

/// Interval at which a visitor tries the lock.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);

/// Answer from another thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) ticket: Ticket,
    pub(crate) outcome: Outcome,
}

/// Identifies the request that an answer belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) slot: usize,
    /// Generation of the slot. Answers to requests of an earlier ring are dropped.
    pub(crate) run: u64,
    pub(crate) head: u16,
}

/// A slot for one ring.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) ring: Option<Ring>,
    pub(crate) kick: Option<Event>,
    /// Requests are taken only from an enabled ring.
    pub(crate) is_enabled: bool,
    /// The ring is about to be stopped. No more requests are taken.
    pub(crate) is_ending: bool,
    pub(crate) run: u64,
}

impl Slot {
    /// Returns the ring, if requests may be taken from it.
    pub(crate) fn open_ring(&mut self) -> Option<&mut Ring> {
        let is_open = self.is_enabled && !self.is_ending;
        self.ring.as_mut().filter(|_| is_open)
    }

    fn has_work(&self) -> bool {
        self.is_enabled && !self.is_ending && self.ring.as_ref().is_some_and(Ring::has_work)
    }
}

/// State of a worker's rings.
pub(crate) struct Rings {
    pub(crate) slots: Vec<Slot>,
    /// Writes must be durable before they are answered, because the driver did not negotiate
    /// flushes.
    pub(crate) is_write_through: bool,
}

impl Rings {
    pub(crate) fn has_work(&self) -> bool {
        self.slots.iter().any(Slot::has_work)
    }

    fn give(&mut self, done: &[Done]) {
        for Done { ticket, outcome } in done {
            let slot = &mut self.slots[ticket.slot];
            if slot.run == ticket.run
                && let Some(ring) = &mut slot.ring
            {
                ring.answer(ticket.head, *outcome);
                ring.signal();
            }
        }
    }
}

pub(crate) struct RingSet {
    rings: Mutex<Rings>,
    /// Call eventfd of each slot, on which the worker may block while it holds the rings.
    calls: Mutex<Vec<Option<Arc<Event>>>>,
    visitor_count: AtomicUsize,
    may_go_on: Condvar,
    /// Wakes the worker.
    wake: Event,
    inbox: Inbox,
    is_over: AtomicBool,
}

/// Answers for the thread that holds the rings.
#[derive(Default)]
struct Inbox {
    letters: Mutex<Letters>,
    /// Hint for threads that poll: the inbox may contain answers. Set under the lock.
    has_some: AtomicBool,
    one_came: Condvar,
}

#[derive(Default)]
struct Letters {
    waiting: Vec<Done>,
    /// Number of answers received so far, including those already taken.
    count: u64,
}

impl Inbox {
    fn put(&self, done: Done) {
        let mut letters = self.lock();
        letters.waiting.push(done);
        letters.count += 1;
        self.has_some.store(true, Ordering::SeqCst);
        drop(letters);
        self.one_came.notify_all();
    }

    fn has_some(&self) -> bool {
        self.has_some.load(Ordering::SeqCst)
    }

    fn take(&self) -> Vec<Done> {
        match self.has_some.swap(false, Ordering::SeqCst) {
            true => mem::take(&mut self.lock().waiting),
            false => Vec::new(),
        }
    }

    fn count(&self) -> u64 {
        self.lock().count
    }

    /// Waits until more than `seen` answers were received, even if another thread has taken them.
    /// Returns whether that happened within `time_max`.
    fn wait_for_more(&self, seen: u64, time_max: Duration) -> bool {
        let is_same = |letters: &mut Letters| letters.count == seen;
        let waited = self.one_came.wait_timeout_while(self.lock(), time_max, is_same);
        !waited.expect(NOT_POISONED).1.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().expect(NOT_POISONED)
    }
}

impl RingSet {
    pub(crate) fn new(slot_count: usize) -> io::Result<Self> {
        let slots = (0..slot_count).map(|_| Slot::default()).collect();
        Ok(Self {
            rings: Mutex::new(Rings { slots, is_write_through: true }),
            calls: Mutex::new(vec![None; slot_count]),
            visitor_count: AtomicUsize::new(0),
            may_go_on: Condvar::new(),
            wake: Event::new()?,
            inbox: Inbox::default(),
            is_over: AtomicBool::new(false),
        })
    }

    /// Runs `act` on the rings while their worker is paused. A worker that blocks on a full call
    /// eventfd is unblocked first.
    pub(crate) fn visit<T>(&self, act: impl FnOnce(&mut Rings) -> T) -> T {
        self.visitor_count.fetch_add(1, Ordering::SeqCst);
        self.wake.signal();
        let mut rings = self.lock_as_visitor();
        rings.slots.iter().filter_map(|slot| slot.ring.as_ref()).for_each(Ring::make_room);
        let result = act(&mut rings);
        self.visitor_count.fetch_sub(1, Ordering::SeqCst);
        drop(rings);
        self.may_go_on.notify_all();
        result
    }

    fn lock_as_visitor(&self) -> MutexGuard<'_, Rings> {
        let begun = Instant::now();
        loop {
            match self.rings.try_lock() {
                Ok(rings) => return rings,
                Err(TryLockError::WouldBlock) => thread::sleep(LOOK_INTERVAL),
                Err(TryLockError::Poisoned(_)) => panic!("{NOT_POISONED}"),
            }
            if begun.elapsed() > WORKER_PATIENCE {
                self.free_worker();
            }
        }
    }

    /// Records the call eventfd that the worker signals for a slot.
    pub(crate) fn watch_call(&self, slot: usize, call: Option<Arc<Event>>) {
        self.calls.lock().expect(NOT_POISONED)[slot] = call;
    }

    /// Unblocks a worker that blocks on a full call eventfd.
    pub(crate) fn free_worker(&self) {
        let calls = self.calls.lock().expect(NOT_POISONED);
        calls.iter().flatten().for_each(|call| call.make_room());
    }

    /// Passes an answer to the worker.
    pub(crate) fn hand_in(&self, done: Done) {
        self.inbox.put(done);
        self.wake.signal();
    }

    /// Delivers the answers in the inbox. For the thread that holds the rings.
    pub(crate) fn give_answers(&self, rings: &mut Rings) {
        rings.give(&self.inbox.take());
    }

    /// Stops the ring of a slot: takes no more requests and waits until all taken ones are
    /// answered. Requests that take longer than `patience` are failed. Returns the ring.
    pub(crate) fn end_ring(&self, slot: usize, patience: Duration) -> Option<Ring> {
        let deadline = Instant::now() + patience;
        loop {
            // Read before the visit, because the worker may deliver answers right after it.
            let seen = self.inbox.count();
            let (ended, is_open) = self.visit(|rings| {
                self.give_answers(rings);
                let is_late = Instant::now() >= deadline;
                let slot = &mut rings.slots[slot];
                slot.is_ending = true;
                let Some(ring) = &mut slot.ring else { return (None, false) };
                if ring.open_count() > 0 && !is_late {
                    return (None, true);
                }
                if ring.open_count() > 0 {
                    let open_count = ring.open_count();
                    tracing::warn!(
                        open_count,
                        "failing vhost-user requests that did not end in time"
                    );
                    ring.fail_open();
                }
                ring.signal();
                (slot.ring.take(), false)
            });
            if !is_open {
                self.visit(|rings| rings.slots[slot].reset());
                return ended;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            self.inbox.wait_for_more(seen, left);
        }
    }

    /// Asks the worker to end after its current work.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.wake.signal();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Returns whether another thread needs the worker's attention.
    pub(crate) fn has_news(&self) -> bool {
        self.visitor_count.load(Ordering::SeqCst) > 0 || self.inbox.has_some() || self.is_over()
    }

    /// Locks the rings, for the worker.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().expect(NOT_POISONED)
    }

    /// Lets waiting visitors run.
    pub(crate) fn let_in<'set>(
        &'set self,
        rings: MutexGuard<'set, Rings>,
    ) -> MutexGuard<'set, Rings> {
        let is_visited = |_: &mut Rings| self.visitor_count.load(Ordering::SeqCst) > 0;
        self.may_go_on.wait_while(rings, is_visited).expect(NOT_POISONED)
    }

    /// Sleeps until a driver kicks or a thread wakes the worker.
    pub(crate) fn sleep(&self, rings: &Rings) {
        let kicks = || rings.slots.iter().filter_map(|slot| slot.kick.as_ref());
        let events = kicks().chain([&self.wake]);
        let mut events: Vec<_> = events.map(|event| PollFd::new(event, PollFlags::IN)).collect();
        match poll(&mut events, None) {
            // The caller checks all rings and the inbox after each wakeup.
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("cannot wait for vhost-user events: {error}"),
        }
        let signalled: Vec<bool> = events.iter().map(|event| !event.revents().is_empty()).collect();
        let all = kicks().chain([&self.wake]).zip(signalled);
        all.filter(|(_, is_signalled)| *is_signalled).for_each(|(event, _)| event.clear());
    }
}

impl Slot {
    /// Prepares the slot for another ring. Answers to requests of the last ring are dropped from
    /// now on.
    fn reset(&mut self) {
        *self = Self { run: self.run + 1, is_enabled: self.is_enabled, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Status;

    fn done() -> Done {
        let outcome = Outcome { status: Status::Done, bytes: 0 };
        Done { ticket: Ticket { slot: 0, run: 0, head: 0 }, outcome }
    }

    #[test]
    fn an_answer_that_another_thread_has_taken_is_waited_for_no_longer() {
        let inbox = Inbox::default();
        let seen = inbox.count();
        inbox.put(done());
        assert_eq!(inbox.take().len(), 1);
        assert!(inbox.wait_for_more(seen, Duration::ZERO));
    }

    #[test]
    fn answers_that_were_seen_are_not_taken_for_new_ones() {
        let inbox = Inbox::default();
        inbox.put(done());
        assert!(!inbox.wait_for_more(inbox.count(), Duration::ZERO));
        assert!(inbox.has_some());
    }
}
