//! Submitting requests: ours are done at once, the others are handed on in the order they came in.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use libc::iovec;

use super::calls;
use super::context::Context;
use super::form::{self, Event, Request};
use crate::table::{self, Entry};
use crate::transfer::{self, Memory, Wish};

/// What marks the request that wakes a waiting thread, in place of the address of a request.
pub(super) const WAKE: usize = 0x6D65_6D6C_616E_6521;

/// As `io_submit`. `requests` are `count` addresses of requests.
///
/// # Safety
///
/// As for `io_submit`: all that the program names must be there.
pub(crate) unsafe fn submit(
    context: &Context,
    count: isize,
    requests: *const *const Request,
) -> c_int {
    let Ok(total) = usize::try_from(count) else { return -libc::EINVAL };
    let mut done = 0;
    while done < total {
        // SAFETY: - in bounds: it is one of the program's `count`.
        let next = unsafe { requests.add(done) };
        // SAFETY: - alive: the program vouches for the addresses and the requests.
        if let Some(result) = unsafe { serve(context, next) } {
            match result {
                Ok(()) => done += 1,
                Err(_) if done > 0 => break,
                Err(error) => return error,
            }
            continue;
        }
        let mut run = 1;
        while done + run < total {
            // SAFETY: - in bounds: it is one of the program's `count`.
            let another = unsafe { next.add(run) };
            // SAFETY: - alive: the program vouches for the addresses and the requests.
            if unsafe { may_be_bypassed(another) } {
                break;
            }
            run += 1;
        }
        let handed_on = calls::submit(context.kernel(), run.cast_signed(), next);
        let Ok(taken) = usize::try_from(handed_on) else {
            return if done > 0 { count_of(done) } else { handed_on };
        };
        context.handed_to_kernel(taken);
        done += taken;
        if taken < run {
            break;
        }
    }
    count_of(done)
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

unsafe fn may_be_bypassed(place: *const *const Request) -> bool {
    // SAFETY: - The caller vouches for it.
    let request = unsafe { request_at(place) };
    request.is_some_and(|(_, request)| {
        let fd = fd_of(&request);
        matches!(table::get(fd), Entry::Bypassed(_) | Entry::Unknown)
    })
}

fn fd_of(request: &Request) -> RawFd {
    RawFd::try_from(request.fd).unwrap_or(-1)
}

/// Does a request on a descriptor that is bypassed; `None` when it is the kernel's.
unsafe fn serve(context: &Context, place: *const *const Request) -> Option<Result<(), c_int>> {
    // SAFETY: - The caller vouches for it.
    let (address, request) = unsafe { request_at(place) }?;
    let bypass = transfer::bypassed(fd_of(&request))?;
    if request.flags & !form::TELLS_EVENTFD != 0 || request.reserved != 0 {
        return None;
    }
    if context.is_full() {
        return Some(Err(-libc::EAGAIN));
    }
    // SAFETY: - alive: the program vouches for the memory that the request names.
    let result = unsafe { transfer_of(&request) }?;
    let result = i64::try_from(result).unwrap_or(i64::MAX);
    let event = Event { data: request.data, request: address, result, second_result: 0 };
    context.over().events.push_back(event);
    if request.flags & form::TELLS_EVENTFD != 0 {
        tell(request.eventfd);
    }
    // PAIRS-WITH: collect::wait, "an event, or a thread that waits for it"
    if context.waiting.load(Ordering::SeqCst) > 0 {
        wake(context, &request, bypass.may_read);
    }
    Some(Ok(()))
}

unsafe fn transfer_of(request: &Request) -> Option<isize> {
    let fd = fd_of(request);
    let wish = Wish::of_flags(request.words.wishes)?;
    let buffer = std::ptr::with_exposed_provenance_mut::<c_void>(request.buffer);
    let part = iovec { iov_base: buffer, iov_len: request.length };
    let parts = || {
        let count = c_int::try_from(request.length).ok()?;
        // SAFETY: - The caller vouches for it.
        unsafe { Memory::of_parts(buffer.cast_const().cast(), count) }
    };
    match request.operation {
        form::READ => transfer::read_at(fd, Memory::of(&part), request.offset),
        form::WRITE => transfer::write_at(fd, Memory::of(&part), request.offset, wish),
        form::READ_PARTS => transfer::read_at(fd, parts()?, request.offset),
        form::WRITE_PARTS => transfer::write_at(fd, parts()?, request.offset, wish),
        _ => None,
    }
}

fn tell(eventfd: u32) {
    let one = 1_u64.to_ne_bytes();
    let fd = RawFd::try_from(eventfd).unwrap_or(-1);
    crate::sys::write_now(fd, &one);
}

/// Wakes the threads that wait in the kernel, one each, by requests that move nothing.
fn wake(context: &Context, on: &Request, may_read: bool) {
    let operation = if may_read { form::READ } else { form::WRITE };
    let nothing =
        Request { data: WAKE, operation, fd: on.fd, buffer: on.buffer, ..Request::default() };
    let address = &raw const nothing;
    // A thread that is not woken now, for want of room in the kernel, has events of the kernel's to
    // collect.
    if calls::submit(context.kernel(), 1, &raw const address) == 1 {
        context.handed_to_kernel(1);
    }
}
