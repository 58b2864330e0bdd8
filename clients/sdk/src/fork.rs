//! Telling a forked child from its parent, without a system call for each request.
//!
//! A child has its parent's memory and sockets, and must use neither: both would speak on the same
//! lanes. A handler runs in each child, before `fork` returns: it closes the sockets, so that they
//! end with the parent, and raises a count by which everything else knows.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Sockets that children close at once. Those beyond end with the child at the latest.
const SOCKETS_MAX: usize = 1024;

const NO_SOCKET: RawFd = -1;

static FORKS: AtomicU64 = AtomicU64::new(0);
static SOCKETS: [AtomicI32; SOCKETS_MAX] = [const { AtomicI32::new(NO_SOCKET) }; SOCKETS_MAX];
static WATCH: Once = Once::new();

/// Forks that lie between the first process that used the library and this one.
#[inline]
pub(crate) fn count() -> u64 {
    // Relaxed: a child has one thread when the count changes.
    FORKS.load(Ordering::Relaxed)
}

/// From now on children are told. Costs nothing when called again.
pub(crate) fn watch() {
    WATCH.call_once(|| {
        // SAFETY:
        // - same type: the handler is a function of C without arguments, as pthread_atfork(3) asks.
        // - alive: it is part of this library, which the registration goes with.
        let result = unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
        assert_eq!(result, 0, "there is memory for a fork handler");
    });
}

/// Has children close a socket, until [`forget`].
pub(crate) fn remember(socket: BorrowedFd<'_>) {
    let number = socket.as_raw_fd();
    // Relaxed, here and below: the table is for children alone, which have one thread.
    let _found = SOCKETS.iter().find(|place| {
        place.compare_exchange(NO_SOCKET, number, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    });
}

/// To be called before the socket is closed.
pub(crate) fn forget(socket: BorrowedFd<'_>) {
    let number = socket.as_raw_fd();
    let place = SOCKETS.iter().find(|place| place.load(Ordering::Relaxed) == number);
    if let Some(place) = place {
        place.store(NO_SOCKET, Ordering::Relaxed);
    }
}

/// Calls nothing but what may be called between fork and exec.
extern "C" fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    for place in &SOCKETS {
        let number = place.swap(NO_SOCKET, Ordering::Relaxed);
        if number != NO_SOCKET {
            // SAFETY:
            // - alive: the descriptor was open in the parent when it forked, and values of
            //   this process that have its number see by the count not to close it again.
            unsafe { libc::close(number) };
        }
    }
}
