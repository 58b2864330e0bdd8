//! Replacements of libaio's functions.
//!
//! Each function has the safety requirements that libaio documents, and passes its arguments to
//! functions with the same requirements.

use std::ffi::{c_int, c_long, c_void};
use std::ptr;

use libc::{sigset_t, timespec};

use crate::aio::{self, Event, Request, Wait};

/// Callback of a request: context, request, and two results.
type Callback = unsafe extern "C" fn(usize, *mut c_void, c_long, c_long);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn io_setup(count: c_int, place: *mut usize) -> c_int {
    // SAFETY: - The caller keeps what `io_setup` asks for.
    unsafe { aio::set_up(count, place) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn io_queue_init(count: c_int, place: *mut usize) -> c_int {
    if place.is_null() || count <= 0 {
        return -libc::EINVAL;
    }
    // SAFETY: - alive, aligned: the caller keeps what `io_queue_init` asks for.
    unsafe { *place = 0 };
    // SAFETY: - The caller keeps what `io_queue_init` asks for.
    unsafe { aio::set_up(count, place) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn io_destroy(context: usize) -> c_int {
    aio::destroy(context)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn io_queue_release(context: usize) -> c_int {
    aio::destroy(context)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn io_submit(
    context: usize,
    count: c_long,
    requests: *const *const Request,
) -> c_int {
    let Ok(count) = isize::try_from(count) else { return -libc::EINVAL };
    // SAFETY: - The caller keeps what `io_submit` asks for.
    unsafe { aio::submit(context, count, requests) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn io_cancel(context: usize, request: *const Request, event: *mut Event) -> c_int {
    aio::cancel(context, request, event)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn io_getevents(
    context: usize,
    least: c_long,
    most: c_long,
    events: *mut Event,
    timeout: *const timespec,
) -> c_int {
    // SAFETY: - The caller keeps what `io_getevents` asks for.
    unsafe { io_pgetevents(context, least, most, events, timeout, ptr::null()) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn io_pgetevents(
    context: usize,
    least: c_long,
    most: c_long,
    events: *mut Event,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let (Ok(least), Ok(most)) = (isize::try_from(least), isize::try_from(most)) else {
        return -libc::EINVAL;
    };
    let wait = Wait { least, most, timeout, mask };
    // SAFETY: - The caller keeps what `io_pgetevents` asks for.
    unsafe { aio::collect(context, wait, events) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn io_queue_wait(context: usize, timeout: *const timespec) -> c_int {
    // SAFETY: - in bounds: no event is asked for, as libaio does.
    unsafe { io_getevents(context, 0, 0, ptr::null_mut(), timeout) }
}

/// Runs the callbacks of all available events.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn io_queue_run(context: usize) -> c_int {
    let at_once = timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        let mut event = Event::default();
        let wait = Wait { least: 0, most: 1, timeout: &raw const at_once, mask: ptr::null() };
        // SAFETY: - in bounds: there is room for one event, which is what is asked for.
        let result = unsafe { aio::collect(context, wait, &raw mut event) };
        if result != 1 {
            return result;
        }
        let address = ptr::with_exposed_provenance::<c_void>(event.data);
        // SAFETY: - same type: programs that use `io_queue_run` leave the function there.
        let callback = unsafe { std::mem::transmute::<*const c_void, Option<Callback>>(address) };
        let Some(callback) = callback else { continue };
        let request = ptr::with_exposed_provenance_mut(event.request);
        // SAFETY: - It is what the program asked for.
        unsafe { callback(context, request, event.result, event.second_result) };
    }
}
