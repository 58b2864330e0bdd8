//! Submitting requests: ours are done at once, or begun on a lane; with the first that is not ours
//! the context is given back to the kernel.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

use libc::iovec;

use super::calls;
use super::context;
use super::flight::Flight;
use super::form::{self, Event, Request};
use crate::transfer::{self, Memory, Wish};

/// What came of one request.
enum Served {
    Done,
    /// Too many events wait to be taken.
    Full,
    /// It is the kernel's.
    Not,
}

/// Submits requests as `io_submit` does. `requests` are `count` addresses of requests.
///
/// # Safety
///
/// As for `io_submit`: all that the program names must be there.
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

/// What the kernel said of the rest, after `done` requests. An error shows with the next call.
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

/// The request at the address, if an address can be there.
///
/// # Safety
///
/// The program vouches for what it names.
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

/// Does a request on a descriptor that is bypassed.
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
        // Given back meanwhile: the kernel does it once more, which does no harm.
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
