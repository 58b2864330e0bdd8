//! The rings that one worker serves, and how others get at them.
//!
//! ```text
//! worker ── holds the rings ──▶ serves, spins, sleeps
//! control thread ── RingSet::visit ──▶ has the worker step aside for a moment
//! late work ── RingSet::hand_in ──▶ leaves answers, which the worker gives to the driver
//! ```
//!
//! The worker keeps the lock for as long as no thread visits, also while it sleeps: a request costs
//! no lock. A visitor first says so, then wakes the worker, then waits for the lock.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use rustix::event::{PollFd, PollFlags, poll};

use crate::event::Event;
use crate::ring::Ring;
use crate::server::Outcome;

const NOT_POISONED: &str = "nothing panics while it holds this lock";

/// How long a visitor waits for the worker before it looks whether that waits for the front end.
const WORKER_PATIENCE: Duration = Duration::from_millis(10);

/// Between two looks of a visitor.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);

/// An answer that was found on another thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) ticket: Ticket,
    pub(crate) outcome: Outcome,
}

/// Identity of the request that an answer is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) slot: usize,
    /// Answers that were meant for an earlier ring of the slot are dropped.
    pub(crate) run: u64,
    pub(crate) head: u16,
}

/// A place for one ring.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) ring: Option<Ring>,
    pub(crate) kick: Option<Event>,
    /// Nothing is taken from a ring that is not enabled.
    pub(crate) is_enabled: bool,
    /// Nothing more is taken: the ring is about to be given up.
    pub(crate) is_ending: bool,
    pub(crate) run: u64,
}

impl Slot {
    /// The ring, if requests may be taken from it.
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
    /// Writes are durable when they are answered: the driver does not know how to flush.
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
    /// The call event of each slot: what the worker may wait for while it has the rings.
    calls: Mutex<Vec<Option<Arc<Event>>>>,
    visitor_count: AtomicUsize,
    may_go_on: Condvar,
    /// Ends the worker's sleep.
    wake: Event,
    inbox: Inbox,
    is_over: AtomicBool,
}

/// Answers that wait for the thread that has the rings.
#[derive(Default)]
struct Inbox {
    letters: Mutex<Letters>,
    /// Whether there may be some, for threads that look often. Set under the lock.
    has_some: AtomicBool,
    one_came: Condvar,
}

#[derive(Default)]
struct Letters {
    waiting: Vec<Done>,
    /// Answers that ever came, with those that another thread has taken.
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

    /// Waits until more than `seen` answers came, though another thread has taken them. Says
    /// whether they did within `time_max`.
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

    /// Does something to the rings while their worker stands aside. A worker that waits for the
    /// front end to take calls back is freed first.
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

    /// Notes what the worker signals for the ring of a slot.
    pub(crate) fn watch_call(&self, slot: usize, call: Option<Arc<Event>>) {
        self.calls.lock().expect(NOT_POISONED)[slot] = call;
    }

    /// Lets a worker go on that waits because a front end takes no calls back.
    pub(crate) fn free_worker(&self) {
        let calls = self.calls.lock().expect(NOT_POISONED);
        calls.iter().flatten().for_each(|call| call.make_room());
    }

    /// Leaves an answer for the worker.
    pub(crate) fn hand_in(&self, done: Done) {
        self.inbox.put(done);
        self.wake.signal();
    }

    /// Answers what was handed in. For the thread that has the rings.
    pub(crate) fn give_answers(&self, rings: &mut Rings) {
        rings.give(&self.inbox.take());
    }

    /// Takes nothing more from the ring of a slot and waits until everything that was taken is
    /// answered; what is not after `patience` is failed. Returns the ring.
    pub(crate) fn end_ring(&self, slot: usize, patience: Duration) -> Option<Ring> {
        let deadline = Instant::now() + patience;
        loop {
            // Before the visit: the worker may give what comes right after it.
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

    /// Has the worker end as soon as it has served what it is at.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.wake.signal();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Returns whether a thread waits for the worker to look up.
    pub(crate) fn has_news(&self) -> bool {
        self.visitor_count.load(Ordering::SeqCst) > 0 || self.inbox.has_some() || self.is_over()
    }

    /// The rings, for the worker.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().expect(NOT_POISONED)
    }

    /// Lets visitors in, if there are any.
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
            // The caller looks everywhere anyway.
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("cannot wait for vhost-user events: {error}"),
        }
        let signalled: Vec<bool> = events.iter().map(|event| !event.revents().is_empty()).collect();
        let all = kicks().chain([&self.wake]).zip(signalled);
        all.filter(|(_, is_signalled)| *is_signalled).for_each(|(event, _)| event.clear());
    }
}

impl Slot {
    /// Is ready for another ring. Answers to the last one are dropped from now on.
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
