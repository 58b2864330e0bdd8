//! Collecting events: ours, and those of the kernel.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use libc::{sigset_t, timespec};

use super::calls;
use super::context::Context;
use super::form::Event;
use super::submit::WAKE;

/// For how many events and how long.
pub(crate) struct Wait {
    pub(crate) least: isize,
    pub(crate) most: isize,
    /// Null for as long as it takes.
    pub(crate) timeout: *const timespec,
    /// Null for the signals that are blocked anyhow.
    pub(crate) mask: *const sigset_t,
}

static AT_ONCE: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// As `io_pgetevents`.
///
/// # Safety
///
/// As for `io_getevents`: there must be room for `most` events.
pub(crate) unsafe fn collect(context: &Context, wait: &Wait, events: *mut Event) -> c_int {
    let (Ok(least), Ok(most)) = (usize::try_from(wait.least), usize::try_from(wait.most)) else {
        return -libc::EINVAL;
    };
    if least > most || (most > 0 && (events.is_null() || !events.is_aligned())) {
        return -libc::EINVAL;
    }
    // SAFETY: - alive: the program vouches for the time.
    let deadline = match unsafe { deadline_of(wait.timeout) } {
        Ok(deadline) => deadline,
        Err(error) => return error,
    };
    let mut room = Room { events, taken: 0, most };
    loop {
        room.take(context);
        if context.count_at_kernel() > 0 && room.left() > 0 {
            // An error shows when there is nothing else to tell.
            room.ask(context, 0, &raw const AT_ONCE, ptr::null());
        }
        if room.taken >= least {
            return room.result();
        }
        let error = room.block(context, deadline, wait.mask);
        if error < 0 {
            return if room.taken > 0 { room.result() } else { error };
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            room.take(context);
            return room.result();
        }
    }
}

unsafe fn deadline_of(timeout: *const timespec) -> Result<Option<Instant>, c_int> {
    if timeout.is_null() {
        return Ok(None);
    }
    // SAFETY: - alive, aligned, initialised: the program vouches for it.
    let timeout = unsafe { *timeout };
    let seconds = u64::try_from(timeout.tv_sec).map_err(|_| -libc::EINVAL)?;
    let nanoseconds = u32::try_from(timeout.tv_nsec).map_err(|_| -libc::EINVAL)?;
    // A time that cannot be reckoned with never comes.
    let timeout =
        Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanoseconds.into()));
    Ok(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
}

/// The program's room for events.
struct Room {
    events: *mut Event,
    taken: usize,
    most: usize,
}

impl Room {
    fn left(&self) -> usize {
        self.most - self.taken
    }

    fn result(&self) -> c_int {
        c_int::try_from(self.taken).unwrap_or(c_int::MAX)
    }

    /// The next free place.
    fn next(&self) -> *mut Event {
        // SAFETY:
        // - in bounds: there is room for `most`, as the program vouches, and no more are taken.
        unsafe { self.events.add(self.taken) }
    }

    fn add(&mut self, event: Event) {
        assert!(self.taken < self.most, "events were taken for which there is no room");
        let place = self.next();
        // SAFETY: - alive, aligned, in bounds: it is one of the program's places, as checked above.
        unsafe { place.write(event) };
        self.taken += 1;
    }

    /// Takes events of ours.
    fn take(&mut self, context: &Context) {
        let left = self.left();
        if left == 0 {
            return;
        }
        let mut over = context.over();
        let count = over.events.len().min(left);
        for event in over.events.drain(..count) {
            self.add(event);
        }
    }

    /// Waits in the kernel for one event, of the kernel's or of ours. Returns zero or an error.
    fn block(
        &mut self,
        context: &Context,
        deadline: Option<Instant>,
        mask: *const sigset_t,
    ) -> c_int {
        // Registered before looking once more: a thread that adds an event after that sees us.
        // PAIRS-WITH: submit::serve, "an event, or a thread that waits for it"
        context.waiting.fetch_add(1, Ordering::SeqCst);
        let is_empty = context.over().events.is_empty();
        let result = if is_empty {
            let left = deadline.map(|it| timespec_of(it.saturating_duration_since(Instant::now())));
            let timeout = left.as_ref().map_or(ptr::null(), ptr::from_ref);
            self.ask(context, 1, timeout, mask)
        } else {
            0
        };
        context.waiting.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Asks the kernel for events and leaves out those that only wake. Returns zero or an error.
    fn ask(
        &mut self,
        context: &Context,
        least: isize,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        let (start, left) = (self.next(), self.left().cast_signed());
        let result = calls::collect(context.kernel(), (least, left), start, timeout, mask);
        let Ok(count) = usize::try_from(result) else { return result };
        context.taken_from_kernel(count);
        for index in 0..count {
            // SAFETY: - in bounds: the kernel filled `count` places from the first free one on.
            let place = unsafe { start.add(index) };
            // SAFETY: - alive, aligned, initialised: the kernel filled it. It is read before an
            //   earlier place is written.
            let event = unsafe { place.read() };
            let only_wakes = event.data == WAKE && event.result == 0;
            if !only_wakes {
                self.add(event);
            }
        }
        0
    }
}

fn timespec_of(duration: Duration) -> timespec {
    timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
