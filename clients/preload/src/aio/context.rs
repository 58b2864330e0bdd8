//! Asynchronous I/O contexts that this library serves, each in place of a kernel context.
//!
//! A context is served here from its creation until a request arrives that only the kernel can
//! serve. It occupies a slot of a fixed table; slots are never deallocated. A thread must check
//! under the slot's lock that the slot still belongs to its handle, because the context may have
//! been given back, destroyed or replaced.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use sdk::Watch;

use super::calls;
use super::flight::{Flight, Flights, UsagePattern};
use super::form::Event;
use super::ring::Ring;
use super::under_way;
use crate::fork;
use crate::inside::Inside;
use crate::link;
use crate::table;

/// Maximum number of contexts. Further ones are left to the kernel.
const CONTEXTS_MAX: usize = 256;

/// Handle that the program holds for each slot; zero if the slot is free.
static HANDLES: [AtomicUsize; CONTEXTS_MAX] = [const { AtomicUsize::new(0) }; CONTEXTS_MAX];

static CONTEXTS: [Context; CONTEXTS_MAX] = [const { Context::new() }; CONTEXTS_MAX];

/// Number of slots up to the highest one ever used.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Slot of a context.
struct Context {
    /// Fork generation of the process that owns the context, because children do not inherit
    /// contexts.
    generation: AtomicU32,
    state: Mutex<State>,
}

/// State of a context, while its lock is held.
pub(super) struct State {
    ring: Option<Ring>,
    usage: UsagePattern,
    flights: Option<Box<Flights>>,
    /// Number of threads that wait for events or for the end of the context.
    waiting: usize,
    signal: Option<Signal>,
}

/// Eventfd that wakes waiting threads. It exists while any thread waits.
struct Signal(OwnedFd);

impl Context {
    const fn new() -> Self {
        let state = State {
            ring: None,
            usage: UsagePattern::new(),
            flights: None,
            waiting: 0,
            signal: None,
        };
        Self { generation: AtomicU32::new(0), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves a new kernel context here, if there is a free slot. Returns the handle for the program.
pub(super) fn adopt(kernel: usize) -> usize {
    if sdk::is_untold_child() {
        return kernel;
    }
    let Some((index, mut state)) = (0..CONTEXTS_MAX).find_map(room) else { return kernel };
    let Some(ring) = Ring::in_front_of(kernel) else { return kernel };
    let handle = ring.handle();
    (state.ring, state.usage) = (Some(ring), UsagePattern::new());
    CONTEXTS[index].generation.store(fork::generation(), Ordering::Relaxed);
    COUNT.fetch_max(index + 1, Ordering::Relaxed);
    HANDLES[index].store(handle, Ordering::Relaxed);
    handle
}

/// Locks a free slot. The first thread that gets its lock takes it.
fn room(index: usize) -> Option<(usize, MutexGuard<'static, State>)> {
    let context = &CONTEXTS[index];
    let is_parents = context.generation.load(Ordering::Relaxed) != fork::generation();
    if HANDLES[index].load(Ordering::Relaxed) != 0 && !is_parents {
        return None;
    }
    let mut state = match context.state.try_lock() {
        Ok(state) => state,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    if is_parents {
        // In a child the signal's descriptor may belong to another file, and the waiting threads do
        // not exist.
        std::mem::forget(state.signal.take());
        (state.ring, state.waiting) = (None, 0);
        state.end_flights();
    }
    (state.ring.is_none() && state.waiting == 0).then_some((index, state))
}

/// Finds the context with this handle, if it is served here. The lock is held for a few
/// instructions, or while a lane is opened.
pub(super) fn find(handle: usize) -> Option<MutexGuard<'static, State>> {
    let index = place_of(handle)?;
    let state = CONTEXTS[index].lock();
    state.ring.as_ref().is_some_and(|ring| ring.handle() == handle).then_some(state)
}

fn place_of(handle: usize) -> Option<usize> {
    let count = COUNT.load(Ordering::Relaxed);
    let is_it = |place: &AtomicUsize| place.load(Ordering::Relaxed) == handle;
    let index = HANDLES[..count].iter().position(is_it)?;
    let is_own = CONTEXTS[index].generation.load(Ordering::Relaxed) == fork::generation();
    (handle != 0 && is_own && !sdk::is_untold_child()).then_some(index)
}

/// Gives the context back to the kernel, with its uncollected events. Returns zero or an error,
/// after which the call may be repeated.
pub(crate) fn give_back(handle: usize) -> c_int {
    let Some(mut state) = find_settled(handle) else { return 0 };
    if let Err(error) = state.ring().give_back() {
        return -error.raw_os_error();
    }
    state.end(handle);
    0
}

/// Destroys the context. Uncollected events are lost, as with the kernel.
pub(crate) fn destroy(handle: usize) -> c_int {
    let Some(mut state) = find_settled(handle) else { return calls::destroy(handle) };
    let result = calls::destroy(state.ring().kernel());
    state.ring().unmap();
    state.end(handle);
    result
}

/// Finds the context as [`find`] does, after all its requests in flight have completed.
fn find_settled(handle: usize) -> Option<MutexGuard<'static, State>> {
    loop {
        let mut state = find(handle)?;
        state.land();
        let Some(watch) = state.watch() else { return Some(state) };
        drop(state);
        wait_for(&watch, Duration::MAX);
    }
}

/// Waits for all requests in flight, in all contexts of this process.
pub(crate) fn settle_all() {
    if !under_way::is_any() || sdk::is_untold_child() {
        return;
    }
    for place in &HANDLES[..COUNT.load(Ordering::Relaxed)] {
        drop(find_settled(place.load(Ordering::Relaxed)));
    }
}

/// Waits as [`Watch::wait`] does, marked as inside a hook.
pub(super) fn wait_for(watch: &Watch, time_max: Duration) {
    let _inside = Inside::enter();
    watch.wait(time_max);
}

impl State {
    pub(super) fn ring(&mut self) -> &mut Ring {
        self.ring.as_mut().expect("it was found with one")
    }

    pub(super) fn add(&mut self, event: Event) {
        self.ring().add(event);
        self.wake();
    }

    /// Returns whether the ring has no room for the event of another request.
    pub(super) fn is_full(&mut self) -> bool {
        let under_way = self.flights.as_ref().map_or(0, |flights| flights.count());
        self.ring().is_full(under_way)
    }

    /// Takes the oldest event.
    pub(super) fn take(&mut self) -> Option<Event> {
        let event = self.ring().take();
        if event.is_some() {
            self.usage.saw_collected();
        }
        event
    }

    /// Starts a request on the context's lane. Returns false if the request must be executed
    /// synchronously.
    ///
    /// # Safety
    ///
    /// As for [`Flights::begin`].
    pub(super) unsafe fn begin(&mut self, flight: Flight) -> bool {
        if self.ring().is_read_in_memory() {
            self.usage.make_unfit();
        }
        if self.ring().count() > 0 {
            self.usage.saw_overlapping();
        }
        if !self.usage.wants_lane() {
            return false;
        }
        let (Some(plan), Some(_inside)) = (flight.plan(), Inside::enter()) else { return false };
        if self.flights.is_none() {
            let Some(flights) = Flights::on(plan.device) else {
                self.usage.make_unfit();
                return false;
            };
            self.ring().forbid_reading_in_memory();
            self.flights = Some(Box::new(flights));
        }
        let flights = self.flights.as_mut().expect("it was just looked");
        // SAFETY: - The caller vouches for it.
        let has_begun = flights.is_on(plan.device) && unsafe { flights.begin(plan, flight) };
        if has_begun {
            under_way::add_one();
            // Waiting threads must watch the new request from now on.
            self.wake();
        }
        has_begun
    }

    /// Adds the events of requests that have completed on the lane.
    pub(super) fn land(&mut self) {
        let Self { ring: Some(ring), flights: Some(flights), .. } = self else { return };
        if flights.count() == 0 {
            return;
        }
        let _inside = Inside::enter();
        let mut count = 0;
        flights.land(|event| {
            ring.add(event);
            count += 1;
        });
        if count > 0 {
            under_way::remove(count);
            self.wake();
        }
    }

    /// Closes the lane, marked as inside a hook, because programs must not close this library's
    /// descriptors.
    fn end_flights(&mut self) {
        let _inside = Inside::enter();
        self.flights = None;
    }

    /// Watch for requests in flight, so that waiting needs no lock.
    pub(super) fn watch(&self) -> Option<Watch> {
        self.flights.as_ref().and_then(|flights| flights.watch())
    }

    fn end(&mut self, handle: usize) {
        self.ring = None;
        self.end_flights();
        let place = HANDLES.iter().find(|place| place.load(Ordering::Relaxed) == handle);
        if let Some(place) = place {
            place.store(0, Ordering::Relaxed);
        }
        self.wake();
    }

    fn wake(&self) {
        if let Some(signal) = &self.signal {
            // Fails only if the counter of the eventfd would overflow.
            let _ = rustix::io::write(&signal.0, &1_u64.to_ne_bytes());
        }
    }
}

/// A thread that waits for events of a context.
pub(super) struct Waiter {
    index: usize,
    /// Readable when there are new events.
    pub(super) signal: RawFd,
}

impl Waiter {
    /// Registers the thread when there are no events to take. Every later event makes `signal`
    /// readable.
    pub(super) fn register(
        mut state: MutexGuard<'static, State>,
        handle: usize,
    ) -> Result<Self, c_int> {
        let index = place_of(handle).ok_or(-libc::EINVAL)?;
        if state.signal.is_none() {
            let signal = Signal::new().map_err(|error| -error.raw_os_error())?;
            state.signal = Some(signal);
        }
        let signal = state.signal.as_ref().expect("it was just made");
        // Earlier signals were for events that were checked under the lock, which is still held.
        let _ = rustix::io::read(&signal.0, &mut [0; 8]);
        let signal = signal.0.as_raw_fd();
        state.waiting += 1;
        Ok(Self { index, signal })
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = CONTEXTS[self.index].lock();
        state.waiting -= 1;
        if state.waiting == 0 {
            state.signal = None;
        }
    }
}

impl Signal {
    fn new() -> Result<Self, rustix::io::Errno> {
        let _inside = Inside::enter();
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(link::keep_out_of_the_way(fd)))
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        // Removes this library's mark from the descriptor, so that it can be closed.
        table::renew(self.0.as_raw_fd());
    }
}
