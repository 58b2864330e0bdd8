//! The rings that one worker serves, and how others get at them.
//!
//! ```text
//! worker ── holds the rings ──▶ serves, spins, sleeps
//! control thread ── Bench::visit ──▶ has the worker step aside for a moment
//! desk's threads ── Bench::hand_in ──▶ leave answers, which the worker gives to the driver
//! ```
//!
//! The worker keeps the lock for as long as nobody visits, also while it sleeps: a request costs no
//! lock. Who visits first says so, then wakes it, then waits for the lock.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use std::{io, mem};

use rustix::event::{PollFd, PollFlags, poll};

use crate::event::Event;
use crate::ring::Ring;
use crate::server::Outcome;

const NOT_POISONED: &str = "nothing panics while it holds this lock";

/// An answer that was found on another thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) ticket: Ticket,
    pub(crate) outcome: Outcome,
}

/// Which request an answer is for.
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

/// What a worker works on.
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

pub(crate) struct Bench {
    rings: Mutex<Rings>,
    visitor_count: AtomicUsize,
    may_go_on: Condvar,
    /// Ends the worker's sleep.
    wake: Event,
    inbox: Mutex<Vec<Done>>,
    has_done: AtomicBool,
    one_is_done: Condvar,
    is_over: AtomicBool,
}

impl Bench {
    pub(crate) fn new(slot_count: usize) -> io::Result<Self> {
        let slots = (0..slot_count).map(|_| Slot::default()).collect();
        Ok(Self {
            rings: Mutex::new(Rings { slots, is_write_through: true }),
            visitor_count: AtomicUsize::new(0),
            may_go_on: Condvar::new(),
            wake: Event::new()?,
            inbox: Mutex::default(),
            has_done: AtomicBool::new(false),
            one_is_done: Condvar::new(),
            is_over: AtomicBool::new(false),
        })
    }

    /// Does something to the rings while their worker stands aside.
    pub(crate) fn visit<T>(&self, act: impl FnOnce(&mut Rings) -> T) -> T {
        self.visitor_count.fetch_add(1, Ordering::SeqCst);
        self.wake.signal();
        let mut rings = self.lock();
        let result = act(&mut rings);
        self.visitor_count.fetch_sub(1, Ordering::SeqCst);
        drop(rings);
        self.may_go_on.notify_all();
        result
    }

    /// Leaves an answer for the worker.
    pub(crate) fn hand_in(&self, done: Done) {
        self.inbox.lock().expect(NOT_POISONED).push(done);
        self.has_done.store(true, Ordering::SeqCst);
        self.one_is_done.notify_all();
        self.wake.signal();
    }

    /// Answers what was handed in. For whoever has the rings.
    pub(crate) fn give_answers(&self, rings: &mut Rings) {
        if self.has_done.swap(false, Ordering::SeqCst) {
            let done = mem::take(&mut *self.inbox.lock().expect(NOT_POISONED));
            rings.give(&done);
        }
    }

    /// Takes nothing more from the ring of a slot and waits until everything that was taken is
    /// answered; what is not after `patience` is failed. Returns the ring.
    pub(crate) fn end_ring(&self, slot: usize, patience: Duration) -> Option<Ring> {
        let deadline = Instant::now() + patience;
        loop {
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
                    tracing::warn!(open_count, "requests of a virtual machine are given up");
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
            let inbox = self.inbox.lock().expect(NOT_POISONED);
            // Who handed in before the lock was taken has set the mark.
            let is_empty = |_: &mut Vec<Done>| !self.has_done.load(Ordering::SeqCst);
            drop(self.one_is_done.wait_timeout_while(inbox, left, is_empty).expect(NOT_POISONED));
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

    /// Whether somebody waits for the worker to look up.
    pub(crate) fn has_news(&self) -> bool {
        self.visitor_count.load(Ordering::SeqCst) > 0
            || self.has_done.load(Ordering::SeqCst)
            || self.is_over()
    }

    /// The rings, for the worker.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().expect(NOT_POISONED)
    }

    /// Lets visitors in, if there are any.
    pub(crate) fn let_in<'bench>(
        &'bench self,
        rings: MutexGuard<'bench, Rings>,
    ) -> MutexGuard<'bench, Rings> {
        let is_visited = |_: &mut Rings| self.visitor_count.load(Ordering::SeqCst) > 0;
        self.may_go_on.wait_while(rings, is_visited).expect(NOT_POISONED)
    }

    /// Sleeps until a driver kicks or somebody wakes the worker.
    pub(crate) fn sleep(&self, rings: &Rings) {
        let kicks = || rings.slots.iter().filter_map(|slot| slot.kick.as_ref());
        let events = kicks().chain([&self.wake]);
        let mut events: Vec<_> = events.map(|event| PollFd::new(event, PollFlags::IN)).collect();
        match poll(&mut events, None) {
            // The caller looks everywhere anyway.
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("cannot wait for virtual machines: {error}"),
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

/// The worker's end of the bench, by which others know of it.
pub(crate) type SharedBench = Arc<Bench>;
