//! The calls of libaio, for whichever kind of context the program holds.

use std::ffi::c_int;

use super::calls;
use super::context;
use super::form::{Event, Request};

/// Sets up a context as `io_setup` does.
///
/// # Safety
///
/// As for `io_setup`: what is at `place` may be written.
pub(crate) unsafe fn set_up(count: c_int, place: *mut usize) -> c_int {
    let result = calls::set_up(count, place);
    if result == 0 {
        // SAFETY: - alive, initialised: the kernel has just written there.
        let kernel = unsafe { place.read_unaligned() };
        // SAFETY: - alive: the kernel has just written there.
        unsafe { place.write_unaligned(context::adopt(kernel)) };
    }
    result
}

/// Cancels a request as `io_cancel` does. What is served here is over at once, or soon; the kernel
/// says of requests that it does not have that they cannot be cancelled.
pub(crate) fn cancel(handle: usize, request: *const Request, event: *mut Event) -> c_int {
    let kernel = context::find(handle).map_or(handle, |mut state| state.ring().kernel());
    calls::cancel(kernel, request, event)
}
