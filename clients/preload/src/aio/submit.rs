//! Submission of requests. Requests on bypassed descriptors are executed synchronously or started
//! on a lane. With the first other request, the context is given back to the kernel.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

use libc::iovec;

use super::calls;
use super::context;
use super::flight::Flight;
use super::form::{self, Event, Request};
use crate::transfer::{self, Memory, Wish};

/// Result of serving one request.
enum Served {
    Done,
    /// Too many events were not collected.
    Full,
    /// Only the kernel can serve the request.
    Not,
}

/// Submits requests as `io_submit` does. `requests` has `count` addresses of requests.
///
/// # Safety
///
/// As for `io_submit`: all memory that the program refers to must be valid.
pub(crate) unsafe fn submit(handle: usize, count: isize, requests: *const *const Request) -> c_int {
    let is_ours = context::find(handle).is_some();
    let total = match usize::try_from(count) {
        Ok(total) if is_ours => total,
        Err(_) if is_ours => return -libc::EINVAL,
        _ => return calls::submit(handle, count, requests),
    };
    let mut done = 0;
    while done < total {
        // SAFETY: - alive: the program vouches for the addresses and the requests.
        match unsafe { serve(handle, requests.wrapping_add(done)) } {
            Served::Done => done += 1,
            Served::Full if done == 0 => return -libc::EAGAIN,
            Served::Full => break,
            Served::Not => {
                let rest = requests.wrapping_add(done);
                return after(done, by_kernel(handle, count - done.cast_signed(), rest));
            }
        }
    }
    count_of(done)
}

fn by_kernel(handle: usize, count: isize, requests: *const *const Request) -> c_int {
    match context::give_back(handle) {
        0 => calls::submit(handle, count, requests),
        error => error,
    }
}

/// Return value after `done` requests and the kernel's result for the rest. After at least one
/// success, the next call reports the error.
fn after(done: usize, rest: c_int) -> c_int {
    match usize::try_from(rest) {
        Ok(taken) => count_of(done + taken),
        Err(_) if done > 0 => count_of(done),
        Err(_) => rest,
    }
}

fn count_of(done: usize) -> c_int {
    c_int::try_from(done).unwrap_or(c_int::MAX)
}

/// Reads the request at an address, if the address is plausible.
///
/// # Safety
///
/// As for `io_submit`: the program must pass valid addresses.
unsafe fn request_at(place: *const *const Request) -> Option<(usize, Request)> {
    if place.is_null() || !place.is_aligned() {
        return None;
    }
    // SAFETY: - alive, in bounds, initialised: the program vouches for it; aligned: see above.
    let address = unsafe { *place };
    if address.is_null() || !address.is_aligned() {
        return None;
    }
    // SAFETY: - alive, in bounds, initialised: the program vouches for it; aligned: see above.
    let request = unsafe { *address };
    Some((address as usize, request))
}

fn fd_of(request: &Request) -> RawFd {
    RawFd::try_from(request.fd).unwrap_or(-1)
}

/// Executes a request on a bypassed descriptor.
unsafe fn serve(handle: usize, place: *const *const Request) -> Served {
    // SAFETY: - The caller vouches for it.
    let Some((address, request)) = (unsafe { request_at(place) }) else { return Served::Not };
    if request.flags & !form::TELLS_EVENTFD != 0 || request.reserved != 0 {
        return Served::Not;
    }
    {
        let Some(mut state) = context::find(handle) else { return Served::Not };
        if state.is_full() {
            return Served::Full;
        }
        // SAFETY: - The program vouches for the memory until it has collected the event.
        if unsafe { state.begin(Flight::new(request, address)) } {
            return Served::Done;
        }
    }
    // SAFETY: - alive: the program vouches for the memory that the request names.
    let Some(result) = (unsafe { result_of(&request) }) else { return Served::Not };
    let event = Event { data: request.data, request: address, result, second_result: 0 };
    match context::find(handle) {
        Some(mut state) => state.add(event),
        // The context was given back meanwhile. The kernel repeats the request, which is harmless.
        None => return Served::Not,
    }
    if request.flags & form::TELLS_EVENTFD != 0 {
        tell(request.eventfd);
    }
    Served::Done
}

unsafe fn result_of(request: &Request) -> Option<i64> {
    let fd = fd_of(request);
    let wish = Wish::of_flags(request.words.wishes)?;
    let buffer = std::ptr::with_exposed_provenance_mut::<c_void>(request.buffer);
    let part = iovec { iov_base: buffer, iov_len: request.length };
    let parts = || {
        let count = c_int::try_from(request.length).ok()?;
        // SAFETY: - The caller vouches for it.
        unsafe { Memory::of_parts(buffer.cast_const().cast(), count) }
    };
    let count = match request.operation {
        form::READ => transfer::read_at(fd, Memory::of(&part), request.offset),
        form::WRITE => transfer::write_at(fd, Memory::of(&part), request.offset, wish),
        form::READ_PARTS => transfer::read_at(fd, parts()?, request.offset),
        form::WRITE_PARTS => transfer::write_at(fd, parts()?, request.offset, wish),
        form::FLUSH | form::FLUSH_DATA if request.is_bare() => {
            return transfer::flush(fd).map(i64::from);
        }
        _ => None,
    };
    count.map(|count| i64::try_from(count).unwrap_or(i64::MAX))
}

fn tell(eventfd: u32) {
    let one = 1_u64.to_ne_bytes();
    let fd = RawFd::try_from(eventfd).unwrap_or(-1);
    crate::sys::write_now(fd, &one);
}
