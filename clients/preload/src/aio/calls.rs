//! System calls of asynchronous I/O. Errors are returned as negative numbers, and `errno` is not
//! changed.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::ptr;

use libc::{sigset_t, timespec};

use super::form::{Event, Request, Wait};
use crate::errno;
use crate::sys;

/// Signal mask argument of `io_pgetevents`.
#[repr(C)]
struct SignalMask {
    mask: *const sigset_t,
    bytes: usize,
}

/// Size of the kernel's signal masks; those of the C library are longer.
const MASK_BYTES: usize = 8;

#[cfg(target_arch = "x86_64")]
pub(crate) const SYS_IO_PGETEVENTS: i64 = 333;
/// Number on all newer platforms.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const SYS_IO_PGETEVENTS: i64 = 292;

fn call(number: i64, words: [usize; 6]) -> c_int {
    let _errno = errno::Kept::now();
    match sys::kernel_call(number, words) {
        Ok(result) => c_int::try_from(result).unwrap_or(c_int::MAX),
        Err(error) => -error,
    }
}

/// Creates a context for `count` requests, and stores its handle at `place`.
pub(crate) fn set_up(count: c_int, place: *mut usize) -> c_int {
    let count = count.cast_unsigned() as usize;
    call(libc::SYS_io_setup, [count, place as usize, 0, 0, 0, 0])
}

pub(crate) fn destroy(context: usize) -> c_int {
    call(libc::SYS_io_destroy, [context, 0, 0, 0, 0, 0])
}

pub(crate) fn submit(context: usize, count: isize, requests: *const *const Request) -> c_int {
    call(libc::SYS_io_submit, [context, count.cast_unsigned(), requests as usize, 0, 0, 0])
}

pub(crate) fn cancel(context: usize, request: *const Request, event: *mut Event) -> c_int {
    call(libc::SYS_io_cancel, [context, request as usize, event as usize, 0, 0, 0])
}

/// Waits for events and takes them.
pub(crate) fn collect(context: usize, wait: Wait, events: *mut Event) -> c_int {
    let (least, most) = (wait.least.cast_unsigned(), wait.most.cast_unsigned());
    let words = [context, least, most, events as usize, wait.timeout as usize, 0];
    if wait.mask.is_null() {
        return call(libc::SYS_io_getevents, words);
    }
    let mask = SignalMask { mask: wait.mask, bytes: MASK_BYTES };
    let [a, b, c, d, e, _] = words;
    call(SYS_IO_PGETEVENTS, [a, b, c, d, e, &raw const mask as usize])
}

/// Blocks until `fd` is readable. With `mask`, these signals are blocked meanwhile.
pub(super) fn sleep(fd: RawFd, mut left: Option<timespec>, mask: *const sigset_t) -> c_int {
    let mut wanted = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let left = left.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let words = [&raw mut wanted as usize, 1, left as usize, mask as usize, MASK_BYTES, 0];
    call(libc::SYS_ppoll, words)
}
