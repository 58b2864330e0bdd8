//! Replacements of functions that open, duplicate, change and close descriptors. They invalidate
//! the table's entry when a number refers to another file.
//!
//! Descriptors of this library appear closed to programs: closing one fails with `EBADF`.
//!
//! Each function has the safety requirements that the C library documents, and passes its arguments
//! to functions with the same requirements.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::descriptor::{self, Closing};
use crate::errno;
use crate::real;
use crate::table;

/// Invalidates the entry of `fd`, which a call has just returned, and returns `fd`.
fn new(fd: c_int) -> c_int {
    table::renew(fd);
    fd
}

macro_rules! opening {
    ($($name:ident = $function:ident($($argument:ident: $kind:ty),*);)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                // SAFETY: - The caller keeps what the function of this name asks for.
                new(unsafe { real::$function($($argument),*) })
            }
        )*
    };
}

opening! {
    open = open64(path: *const c_char, flags: c_int, mode: c_uint);
    open64 = open64(path: *const c_char, flags: c_int, mode: c_uint);
    openat = openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint);
    openat64 = openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint);
    __open_2 = __open64_2(path: *const c_char, flags: c_int);
    __open64_2 = __open64_2(path: *const c_char, flags: c_int);
    __openat_2 = __openat64_2(folder: c_int, path: *const c_char, flags: c_int);
    __openat64_2 = __openat64_2(folder: c_int, path: *const c_char, flags: c_int);
    creat = creat64(path: *const c_char, mode: c_uint);
    creat64 = creat64(path: *const c_char, mode: c_uint);
    dup = dup(fd: c_int);
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn dup2(old: c_int, to: c_int) -> c_int {
    if old != to && !descriptor::will_be_closed(to) {
        return refuse();
    }
    // SAFETY: - `dup2` may be called with any numbers.
    unsafe { real::dup2(old, to) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn dup3(old: c_int, to: c_int, flags: c_int) -> c_int {
    if old != to && !descriptor::will_be_closed(to) {
        return refuse();
    }
    // SAFETY: - `dup3` may be called with any numbers.
    unsafe { real::dup3(old, to, flags) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    if !descriptor::will_be_closed(fd) {
        return refuse();
    }
    // SAFETY: - `close` may be called with any number.
    unsafe { real::close(fd) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(super) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let closing = if flags & descriptor::ONLY_MARK == 0 { Closing::Now } else { Closing::AtExec };
    let call = |first, last| {
        // SAFETY: - `close_range` may be called with any numbers.
        unsafe { real::close_range(first, last, flags) }
    };
    descriptor::close_range(first, last, closing, call)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn closefrom(first: c_int) {
    let first = c_uint::try_from(first).unwrap_or(0);
    // SAFETY: - `close_range` may be called with any numbers.
    unsafe { close_range(first, c_uint::MAX, 0) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fclose(stream: *mut c_void) -> c_int {
    // SAFETY: - The caller keeps what `fclose` asks for.
    unsafe { leave_stream(stream) };
    // SAFETY: - The caller keeps what `fclose` asks for.
    unsafe { real::fclose(stream) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: - The caller keeps what `freopen` asks for.
    unsafe { leave_stream(stream) };
    // SAFETY: - The caller keeps what `freopen` asks for.
    unsafe { real::freopen(path, mode, stream) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: - The caller keeps what `freopen` asks for.
    unsafe { leave_stream(stream) };
    // SAFETY: - The caller keeps what `freopen` asks for.
    unsafe { real::freopen64(path, mode, stream) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: - The caller keeps what `fcntl` asks for.
    let result = unsafe { real::fcntl64(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => new(result),
        libc::F_SETFL => {
            descriptor::flags_changed(fd);
            result
        }
        _ => result,
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: - The caller keeps what `fcntl` asks for.
    unsafe { fcntl64(fd, command, argument) }
}

/// Prepares the close of a stream's descriptor, which the C library closes without calling a hook.
///
/// # Safety
///
/// `stream` must be an open stream.
unsafe fn leave_stream(stream: *mut c_void) {
    let _errno = errno::Kept::now();
    // SAFETY: - The caller vouches for the stream.
    let fd = unsafe { libc::fileno(stream.cast()) };
    descriptor::will_be_closed(fd);
}

fn refuse() -> c_int {
    errno::set(libc::EBADF);
    -1
}
