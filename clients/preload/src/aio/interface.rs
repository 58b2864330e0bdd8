//! The calls of libaio, for whichever kind of context the program holds.

use std::ffi::c_int;

use super::calls;
use super::collect::{self as collecting, Wait};
use super::context::{self, Found};
use super::form::{Event, Request};
use super::submit as submitting;

/// As `io_setup`.
///
/// # Safety
///
/// As for `io_setup`: there must be room for a context at `place`.
pub(crate) unsafe fn set_up(count: c_int, place: *mut usize) -> c_int {
    if place.is_null() || !place.is_aligned() {
        return -libc::EFAULT;
    }
    // SAFETY: - alive, initialised: the program vouches for it; aligned: looked at above.
    let is_used = unsafe { *place } != 0;
    let Some(count) = u32::try_from(count).ok().filter(|_| !is_used) else { return -libc::EINVAL };
    match context::set_up(count) {
        // SAFETY: - alive: the program vouches for it; aligned: looked at above.
        Ok(handle) => unsafe {
            *place = handle;
            0
        },
        Err(error) => error,
    }
}

/// As `io_destroy`.
pub(crate) fn destroy(handle: usize) -> c_int {
    match context::find(handle) {
        Found::Ours(context) => context::destroy(context),
        Found::Gone => -libc::EINVAL,
        Found::Kernels => calls::destroy(handle),
    }
}

/// As `io_submit`.
///
/// # Safety
///
/// As for `io_submit`: all that the program names must be there.
pub(crate) unsafe fn submit(handle: usize, count: isize, requests: *const *const Request) -> c_int {
    match context::find(handle) {
        // SAFETY: - The caller vouches for it.
        Found::Ours(context) => unsafe { submitting::submit(context, count, requests) },
        Found::Gone => -libc::EINVAL,
        Found::Kernels => calls::submit(handle, count, requests),
    }
}

/// As `io_cancel`.
pub(crate) fn cancel(handle: usize, request: *const Request, event: *mut Event) -> c_int {
    match context::find(handle) {
        Found::Ours(context) => context::cancel(context, request, event),
        Found::Gone => -libc::EINVAL,
        Found::Kernels => calls::cancel(handle, request, event),
    }
}

/// As `io_pgetevents`.
///
/// # Safety
///
/// As for `io_getevents`: there must be room for as many events as are wanted.
pub(crate) unsafe fn collect(handle: usize, wait: &Wait, events: *mut Event) -> c_int {
    match context::find(handle) {
        // SAFETY: - The caller vouches for it.
        Found::Ours(context) => unsafe { collecting::collect(context, wait, events) },
        Found::Gone => -libc::EINVAL,
        Found::Kernels => {
            calls::collect(handle, (wait.least, wait.most), events, wait.timeout, wait.mask)
        }
    }
}
