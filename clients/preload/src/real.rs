//! The C library's functions that this library replaces.
//!
//! Each is looked up at its first use with `RTLD_NEXT`, so that other preloaded libraries also
//! work. Nothing here allocates memory, and only the functions themselves change `errno`.
//!
//! Variadic functions are declared with their optional arguments. On the platforms that Linux
//! supports, both are passed in the same way, and excess arguments are ignored.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{iovec, off64_t, size_t, ssize_t};

use crate::errno;

/// A function of the C library, by name.
struct Real {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    fn address(&self) -> Option<NonNull<c_void>> {
        // Relaxed: code does not change, and all threads find the same address.
        NonNull::new(self.address.load(Ordering::Relaxed)).or_else(|| self.look_up())
    }

    #[cold]
    fn look_up(&self) -> Option<NonNull<c_void>> {
        let _errno = errno::Kept::now();
        // SAFETY:
        // - alive: the name is a constant that ends with a zero byte.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        NonNull::new(found)
    }
}

/// Return value if the C library lacks the function. This does not normally happen, because callers
/// were linked against a library that has it.
trait Failed {
    fn failed() -> Self;
}

impl Failed for c_int {
    fn failed() -> Self {
        errno::set(libc::ENOSYS);
        -1
    }
}

impl Failed for isize {
    fn failed() -> Self {
        errno::set(libc::ENOSYS);
        -1
    }
}

impl Failed for i64 {
    fn failed() -> Self {
        errno::set(libc::ENOSYS);
        -1
    }
}

impl Failed for *mut c_void {
    fn failed() -> Self {
        errno::set(libc::ENOSYS);
        ptr::null_mut()
    }
}

macro_rules! real {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(
            #[allow(clippy::too_many_arguments, reason = "the C library chose them")]
            pub(crate) unsafe fn $name($($argument: $kind),*) -> $result {
                const NAME: &[u8] = concat!(stringify!($name), "\0").as_bytes();
                static REAL: Real = Real::new(match CStr::from_bytes_with_nul(NAME) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no zero byte"),
                });
                let Some(address) = REAL.address() else { return Failed::failed() };
                type Function = unsafe extern "C" fn($($kind),*) -> $result;
                let pointer = address.as_ptr();
                // SAFETY:
                // - same type: the C library documents the function of this name so.
                let function = unsafe { std::mem::transmute::<*mut c_void, Function>(pointer) };
                // SAFETY:
                // - The caller keeps what the C library asks of its callers.
                unsafe { function($($argument),*) }
            }
        )*
    };
}

real! {
    read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t;
    write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t;
    readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    pread64(fd: c_int, buffer: *mut c_void, count: size_t, offset: off64_t) -> ssize_t;
    pwrite64(fd: c_int, buffer: *const c_void, count: size_t, offset: off64_t) -> ssize_t;
    preadv64(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t) -> ssize_t;
    pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t) -> ssize_t;
    preadv64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t, flags: c_int)
        -> ssize_t;
    pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t, flags: c_int)
        -> ssize_t;
    __read_chk(fd: c_int, buffer: *mut c_void, count: size_t, room: size_t) -> ssize_t;
    __pread64_chk(fd: c_int, buffer: *mut c_void, count: size_t, offset: off64_t, room: size_t)
        -> ssize_t;
    fsync(fd: c_int) -> c_int;
    fdatasync(fd: c_int) -> c_int;

    open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    __open64_2(path: *const c_char, flags: c_int) -> c_int;
    __openat64_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int;
    creat64(path: *const c_char, mode: c_uint) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fclose(stream: *mut c_void) -> c_int;
    freopen(path: *const c_char, mode: *const c_char, stream: *mut c_void) -> *mut c_void;
    freopen64(path: *const c_char, mode: *const c_char, stream: *mut c_void) -> *mut c_void;
    dup(fd: c_int) -> c_int;
    dup2(old: c_int, new: c_int) -> c_int;
    dup3(old: c_int, new: c_int, flags: c_int) -> c_int;
    fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int;
    mmap64(
        address: *mut c_void,
        length: size_t,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: off64_t
    ) -> *mut c_void;
    syscall(
        number: c_long,
        first: usize,
        second: usize,
        third: usize,
        fourth: usize,
        fifth: usize,
        sixth: usize
    ) -> c_long;
}
