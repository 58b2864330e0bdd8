//! The kernel's own calls. Errors are negative numbers; `errno` is left alone.

use std::ffi::c_int;

use libc::{sigset_t, timespec};

use super::form::{Event, Request};
use crate::errno;
use crate::sys;

/// What `io_pgetevents` takes for a mask of signals.
#[repr(C)]
struct SignalMask {
    mask: *const sigset_t,
    bytes: usize,
}

/// The kernel's masks of signals have this size, the C library's are longer.
const MASK_BYTES: usize = 8;

#[cfg(target_arch = "x86_64")]
const SYS_IO_PGETEVENTS: i64 = 333;
/// The number of all newer platforms.
#[cfg(not(target_arch = "x86_64"))]
const SYS_IO_PGETEVENTS: i64 = 292;

fn call(number: i64, words: [usize; 6]) -> c_int {
    let _errno = errno::Kept::now();
    match sys::kernel_call(number, words) {
        Ok(result) => c_int::try_from(result).unwrap_or(c_int::MAX),
        Err(error) => -error,
    }
}

/// Makes a context for `count` requests.
pub(crate) fn set_up(count: u32) -> Result<usize, c_int> {
    let mut context = 0_usize;
    let place = &raw mut context;
    let result = call(libc::SYS_io_setup, [count as usize, place as usize, 0, 0, 0, 0]);
    if result < 0 { Err(result) } else { Ok(context) }
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

/// Waits for `least` events and takes `most`. With `mask`, these signals are blocked meanwhile.
pub(crate) fn collect(
    context: usize,
    (least, most): (isize, isize),
    events: *mut Event,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let (least, most) = (least.cast_unsigned(), most.cast_unsigned());
    let words = [context, least, most, events as usize, timeout as usize, 0];
    if mask.is_null() {
        return call(libc::SYS_io_getevents, words);
    }
    let mask = SignalMask { mask, bytes: MASK_BYTES };
    let [a, b, c, d, e, _] = words;
    call(SYS_IO_PGETEVENTS, [a, b, c, d, e, &raw const mask as usize])
}
