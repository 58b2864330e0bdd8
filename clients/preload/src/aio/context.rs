//! Contexts: what programs hold instead of one of the kernel's.
//!
//! Contexts are places in a fixed table, which never go away, so that a program that uses one that
//! it destroyed is refused and does no harm. What a program holds is the address of a place.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use super::calls;
use super::form::{Event, Request};
use crate::fork;

/// More at once are the kernel's own.
const CONTEXTS_MAX: usize = 256;

/// The most events of one context that wait to be collected.
const EVENTS_MAX: usize = 1 << 16;

/// Room for threads that submit at once, so that none of them needs memory.
const THREADS_TYPICAL: usize = 16;

static CONTEXTS: [Context; CONTEXTS_MAX] = [const { Context::new() }; CONTEXTS_MAX];

/// A context, or room for one.
pub(crate) struct Context {
    /// The kernel's, or zero for room.
    kernel: AtomicUsize,
    /// Children do not have the contexts of their parents.
    generation: AtomicU32,
    /// Requests that the kernel has, or events that it holds.
    at_kernel: AtomicUsize,
    /// Threads that wait, or are about to.
    pub(super) waiting: AtomicUsize,
    over: Mutex<Over>,
}

/// Requests that are over.
pub(super) struct Over {
    pub(super) events: VecDeque<Event>,
    /// How many may wait to be collected.
    count_max: usize,
}

impl Context {
    const fn new() -> Self {
        Self {
            kernel: AtomicUsize::new(0),
            generation: AtomicU32::new(0),
            at_kernel: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            over: Mutex::new(Over { events: VecDeque::new(), count_max: 0 }),
        }
    }

    pub(super) fn kernel(&self) -> usize {
        self.kernel.load(Ordering::Relaxed)
    }

    pub(super) fn over(&self) -> MutexGuard<'_, Over> {
        self.over.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether as many requests are over, and not collected, as there may be. Threads that submit
    /// at once may add one more each.
    pub(super) fn is_full(&self) -> bool {
        let over = self.over();
        over.events.len() >= over.count_max
    }

    /// How much the kernel has of this context.
    pub(super) fn count_at_kernel(&self) -> usize {
        self.at_kernel.load(Ordering::Relaxed)
    }

    pub(super) fn handed_to_kernel(&self, count: usize) {
        self.at_kernel.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn taken_from_kernel(&self, count: usize) {
        // What was submitted past us is not counted.
        let less = |known: usize| Some(known.saturating_sub(count));
        let _ = self.at_kernel.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// Makes a context for `count` requests and returns what the program is to hold.
pub(crate) fn set_up(count: u32) -> Result<usize, c_int> {
    if sdk::is_untold_child() {
        return calls::set_up(count);
    }
    // One more for the request that wakes a thread that waits.
    let kernel = calls::set_up(count.saturating_add(1).min(c_int::MAX as u32))?;
    let Some((context, mut over)) = CONTEXTS.iter().find_map(room) else { return Ok(kernel) };
    let count_max = usize::try_from(count).unwrap_or(EVENTS_MAX).min(EVENTS_MAX);
    over.events.clear();
    over.events.reserve(count_max + THREADS_TYPICAL);
    over.count_max = count_max;
    context.at_kernel.store(0, Ordering::Relaxed);
    context.waiting.store(0, Ordering::Relaxed);
    context.generation.store(fork::generation(), Ordering::Relaxed);
    context.kernel.store(kernel, Ordering::Relaxed);
    Ok(std::ptr::from_ref(context) as usize)
}

/// The place is taken by the thread that gets its lock first.
fn room(context: &'static Context) -> Option<(&'static Context, MutexGuard<'static, Over>)> {
    if context.kernel() != 0 {
        return None;
    }
    let over = match context.over.try_lock() {
        Ok(over) => over,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    (context.kernel() == 0).then_some((context, over))
}

/// Whose context a program means.
pub(crate) enum Found {
    Ours(&'static Context),
    /// It is not, or no longer, one that this process has.
    Gone,
    Kernels,
}

/// What the program holds.
pub(crate) fn find(handle: usize) -> Found {
    let start = CONTEXTS.as_ptr() as usize;
    let size = size_of::<Context>();
    let Some(distance) = handle.checked_sub(start) else { return Found::Kernels };
    let Some(context) = CONTEXTS.get(distance / size) else { return Found::Kernels };
    let is_own =
        context.generation.load(Ordering::Relaxed) == fork::generation() && !sdk::is_untold_child();
    match distance % size == 0 && is_own && context.kernel() != 0 {
        true => Found::Ours(context),
        false => Found::Gone,
    }
}

/// Ends the context. What was over and not collected is lost, as it is with the kernel.
pub(crate) fn destroy(context: &Context) -> c_int {
    let mut over = context.over();
    let kernel = context.kernel.swap(0, Ordering::Relaxed);
    if kernel == 0 {
        return -libc::EINVAL;
    }
    over.events.clear();
    drop(over);
    calls::destroy(kernel)
}

/// Cancels a request that the kernel has. Those of descriptors that are bypassed are over.
pub(crate) fn cancel(context: &Context, request: *const Request, event: *mut Event) -> c_int {
    calls::cancel(context.kernel(), request, event)
}
