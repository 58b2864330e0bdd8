//! Replacement of `syscall`, for system calls that change descriptors.
//!
//! An aio context that is used this way is given back to the kernel. Reads and writes made this way
//! go through the kernel to the same data, so they need no handling.

use std::ffi::{c_int, c_long, c_uint};
use std::os::fd::RawFd;

use crate::aio;
use crate::descriptor;
use crate::errno;
use crate::notice::{self, Reason};
use crate::real;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn syscall(
    number: c_long,
    first: usize,
    second: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
    sixth: usize,
) -> c_long {
    match number {
        libc::SYS_close if !descriptor::will_be_closed(number_of(first)) => return refuse(),
        libc::SYS_dup2 | libc::SYS_dup3
            if first != second && !descriptor::will_be_closed(number_of(second)) =>
        {
            return refuse();
        }
        libc::SYS_close_range => return close_range(first, second, third),
        libc::SYS_mmap if is_of_file(fourth) => {
            let _errno = errno::Kept::now();
            descriptor::will_be_mapped(number_of(fifth));
        }
        libc::SYS_io_uring_setup => say_io_uring(),
        libc::SYS_io_submit
        | libc::SYS_io_getevents
        | aio::SYS_IO_PGETEVENTS
        | libc::SYS_io_cancel
        | libc::SYS_io_destroy => {
            // If the context cannot be given back, the kernel reports that it does not know it.
            aio::give_back(first);
        }
        _ => {}
    }
    // SAFETY: - The caller keeps what the kernel documents for this call.
    let result = unsafe { real::syscall(number, first, second, third, fourth, fifth, sixth) };
    if number == libc::SYS_fcntl && second == libc::F_SETFL as usize {
        descriptor::flags_changed(number_of(first));
    }
    result
}

fn close_range(first: usize, second: usize, third: usize) -> c_long {
    let (Ok(first), Ok(last)) = (c_uint::try_from(first), c_uint::try_from(second)) else {
        errno::set(libc::EINVAL);
        return -1;
    };
    let flags = number_of(third);
    // SAFETY: - `close_range` may be called with any numbers.
    let result = unsafe { super::descriptors::close_range(first, last, flags) };
    c_long::from(result)
}

fn number_of(word: usize) -> RawFd {
    // The kernel uses only the lower 32 bits.
    let lower = u32::try_from(word & 0xFFFF_FFFF).unwrap_or(u32::MAX);
    c_int::from_ne_bytes(lower.to_ne_bytes())
}

fn is_of_file(flags: usize) -> bool {
    number_of(flags) & libc::MAP_ANONYMOUS == 0
}

fn say_io_uring() {
    let _errno = errno::Kept::now();
    notice::say(
        Reason::IoUring,
        format_args!("this program uses io_uring: its io_uring requests go through the kernel"),
    );
}

fn refuse() -> c_long {
    errno::set(libc::EBADF);
    -1
}
