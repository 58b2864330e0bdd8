//! Collection of events from contexts that this library serves.

use std::ffi::c_int;
use std::ptr;
use std::time::{Duration, Instant};

use libc::{sigset_t, timespec};

use super::calls;
use super::context::{self, State, Waiter};
use super::form::{Event, Wait};

/// Collects events as `io_pgetevents` does.
///
/// # Safety
///
/// As for `io_getevents`: `events` must have room for `most` events.
pub(crate) unsafe fn collect(handle: usize, wait: Wait, events: *mut Event) -> c_int {
    let Some(mut state) = context::find(handle) else {
        return calls::collect(handle, wait, events);
    };
    // SAFETY: - alive: the program vouches for the time.
    let patience = unsafe { patience_of(wait.timeout) };
    let numbers = usize::try_from(wait.least).ok().zip(usize::try_from(wait.most).ok());
    let (Some(patience), Some((least, most)), false) = (
        patience,
        numbers.filter(|(least, most)| least <= most),
        events.is_null() && wait.most > 0,
    ) else {
        drop(state);
        return by_kernel(handle, wait, events);
    };
    let mut room = Room { events, taken: 0, most };
    let deadline = match patience {
        Patience::Endless => None,
        Patience::Until(deadline) => Some(deadline),
    };
    loop {
        state.land();
        room.take(&mut state);
        if room.taken >= least || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return room.result();
        }
        let ended = match state.watch() {
            Some(watch) => {
                drop(state);
                context::wait_for(&watch, left_of(deadline));
                0
            }
            None => match Waiter::register(state, handle) {
                Ok(waiter) => sleep(&waiter, deadline, wait.mask),
                Err(error) => error,
            },
        };
        let Some(found) = context::find(handle) else {
            return room.rest_by_kernel(handle, wait, deadline);
        };
        state = found;
        if ended < 0 {
            room.take(&mut state);
            return if room.taken > 0 { room.result() } else { ended };
        }
    }
}

/// Gives the context back and lets the kernel handle unusual arguments.
fn by_kernel(handle: usize, wait: Wait, events: *mut Event) -> c_int {
    match context::give_back(handle) {
        0 => calls::collect(handle, wait, events),
        error => error,
    }
}

enum Patience {
    Endless,
    Until(Instant),
}

/// Converts a timeout. `None` for values that are left to the kernel.
unsafe fn patience_of(timeout: *const timespec) -> Option<Patience> {
    if timeout.is_null() {
        return Some(Patience::Endless);
    }
    if !timeout.is_aligned() {
        return None;
    }
    // SAFETY: - alive, initialised: the program vouches for it; aligned: looked at above.
    let timeout = unsafe { *timeout };
    let seconds = u64::try_from(timeout.tv_sec).ok()?;
    let nanoseconds = u64::try_from(timeout.tv_nsec).ok()?;
    let timeout = Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanoseconds))?;
    // A deadline beyond the range of the clock is treated as none.
    let deadline = Instant::now().checked_add(timeout);
    Some(deadline.map_or(Patience::Endless, Patience::Until))
}

/// Sleeps until an event, the deadline or a signal. Returns zero or an error.
fn sleep(waiter: &Waiter, deadline: Option<Instant>, mask: *const sigset_t) -> c_int {
    let left = deadline.map(|deadline| timespec_of(left_of(Some(deadline))));
    calls::sleep(waiter.signal, left, mask).min(0)
}

/// The program's array of events.
struct Room {
    events: *mut Event,
    taken: usize,
    most: usize,
}

impl Room {
    fn result(&self) -> c_int {
        c_int::try_from(self.taken).unwrap_or(c_int::MAX)
    }

    /// Next free element.
    fn next(&self) -> *mut Event {
        // SAFETY:
        // - in bounds: there is room for `most`, as the program vouches, and no more are taken.
        unsafe { self.events.add(self.taken) }
    }

    fn take(&mut self, state: &mut State) {
        while self.taken < self.most
            && let Some(event) = state.take()
        {
            // SAFETY:
            // - alive, in bounds: it is one of the program's places, as the program vouches.
            unsafe { self.next().write_unaligned(event) };
            self.taken += 1;
        }
    }

    /// Collects the remaining events from the kernel, after the context was given back or
    /// destroyed.
    fn rest_by_kernel(&self, handle: usize, wait: Wait, deadline: Option<Instant>) -> c_int {
        let left = deadline.map(|deadline| timespec_of(left_of(Some(deadline))));
        let taken = self.taken.cast_signed();
        let rest = Wait {
            least: wait.least - taken,
            most: wait.most - taken,
            timeout: left.as_ref().map_or(ptr::null(), ptr::from_ref),
            mask: wait.mask,
        };
        match calls::collect(handle, rest, self.next()) {
            count if count >= 0 => self.result().saturating_add(count),
            error if self.taken == 0 => error,
            _ => self.result(),
        }
    }
}

fn left_of(deadline: Option<Instant>) -> Duration {
    let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
    deadline.map_or(Duration::MAX, left)
}

fn timespec_of(duration: Duration) -> timespec {
    timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
