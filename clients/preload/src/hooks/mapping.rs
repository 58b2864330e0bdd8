//! Replacements of functions that map files into memory. The kernel caches mapped pages, so all I/O
//! on such files must go through the kernel.

use std::ffi::{c_int, c_void};

use libc::{off64_t, size_t};

use crate::descriptor;
use crate::errno;
use crate::real;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    if fd >= 0 && flags & libc::MAP_ANONYMOUS == 0 {
        let _errno = errno::Kept::now();
        descriptor::will_be_mapped(fd);
    }
    // SAFETY: - The caller keeps what `mmap` asks for.
    unsafe { real::mmap64(address, length, protection, flags, fd, offset) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    // SAFETY: - The caller keeps what `mmap` asks for.
    unsafe { mmap64(address, length, protection, flags, fd, offset) }
}
