//! Entry points of libaio's functions, for contexts of this library and of the kernel.

use std::ffi::c_int;

use super::calls;
use super::context;
use super::form::{Event, Request};

/// Sets up a context as `io_setup` does.
///
/// # Safety
///
/// As for `io_setup`: `place` must be writable.
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

/// Cancels a request as `io_cancel` does. Requests served here complete at once or soon; the kernel
/// does not know them and reports that they cannot be cancelled.
pub(crate) fn cancel(handle: usize, request: *const Request, event: *mut Event) -> c_int {
    let kernel = context::find(handle).map_or(handle, |mut state| state.ring().kernel());
    calls::cancel(kernel, request, event)
}
