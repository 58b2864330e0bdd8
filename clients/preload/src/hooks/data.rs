//! Reading, writing and flushing.
//!
//! Every function here may be called as the C library documents it, and hands its arguments to
//! others that ask the same of their callers.

use std::ffi::{c_int, c_void};

use libc::{iovec, off64_t, size_t, ssize_t};

use crate::real;
use crate::transfer::{self, Memory, Wish};

/// The offset by which `preadv2` and `pwritev2` ask for the descriptor's own.
const OWN_OFFSET: off64_t = -1;

fn part(buffer: *const c_void, count: size_t) -> iovec {
    iovec { iov_base: buffer.cast_mut(), iov_len: count }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t {
    match transfer::read(fd, Memory::of(&part(buffer, count))) {
        Some(done) => done,
        // SAFETY: - The caller keeps what `read` asks for.
        None => unsafe { real::read(fd, buffer, count) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    room: size_t,
) -> ssize_t {
    let memory = part(buffer, count);
    let done = if count <= room { transfer::read(fd, Memory::of(&memory)) } else { None };
    match done {
        Some(done) => done,
        // SAFETY: - The caller keeps what `read` asks for.
        None => unsafe { real::__read_chk(fd, buffer, count, room) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t {
    match transfer::write(fd, Memory::of(&part(buffer, count)), Wish::Ordinary) {
        Some(done) => done,
        // SAFETY: - The caller keeps what `write` asks for.
        None => unsafe { real::write(fd, buffer, count) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: - The caller keeps what `readv` asks for.
    let memory = unsafe { Memory::of_parts(parts, count) };
    match memory.and_then(|memory| transfer::read(fd, memory)) {
        Some(done) => done,
        // SAFETY: - The caller keeps what `readv` asks for.
        None => unsafe { real::readv(fd, parts, count) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: - The caller keeps what `writev` asks for.
    let memory = unsafe { Memory::of_parts(parts, count) };
    match memory.and_then(|memory| transfer::write(fd, memory, Wish::Ordinary)) {
        Some(done) => done,
        // SAFETY: - The caller keeps what `writev` asks for.
        None => unsafe { real::writev(fd, parts, count) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pread64(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    offset: off64_t,
) -> ssize_t {
    match transfer::read_at(fd, Memory::of(&part(buffer, count)), offset) {
        Some(done) => done,
        // SAFETY: - The caller keeps what `pread` asks for.
        None => unsafe { real::pread64(fd, buffer, count, offset) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __pread64_chk(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    offset: off64_t,
    room: size_t,
) -> ssize_t {
    let memory = part(buffer, count);
    let done =
        if count <= room { transfer::read_at(fd, Memory::of(&memory), offset) } else { None };
    match done {
        Some(done) => done,
        // SAFETY: - The caller keeps what `pread` asks for.
        None => unsafe { real::__pread64_chk(fd, buffer, count, offset, room) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pwrite64(
    fd: c_int,
    buffer: *const c_void,
    count: size_t,
    offset: off64_t,
) -> ssize_t {
    match transfer::write_at(fd, Memory::of(&part(buffer, count)), offset, Wish::Ordinary) {
        Some(done) => done,
        // SAFETY: - The caller keeps what `pwrite` asks for.
        None => unsafe { real::pwrite64(fd, buffer, count, offset) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn preadv64(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off64_t,
) -> ssize_t {
    // SAFETY: - The caller keeps what `preadv` asks for.
    let memory = unsafe { Memory::of_parts(parts, count) };
    match memory.and_then(|memory| transfer::read_at(fd, memory, offset)) {
        Some(done) => done,
        // SAFETY: - The caller keeps what `preadv` asks for.
        None => unsafe { real::preadv64(fd, parts, count, offset) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pwritev64(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off64_t,
) -> ssize_t {
    // SAFETY: - The caller keeps what `pwritev` asks for.
    let memory = unsafe { Memory::of_parts(parts, count) };
    match memory.and_then(|memory| transfer::write_at(fd, memory, offset, Wish::Ordinary)) {
        Some(done) => done,
        // SAFETY: - The caller keeps what `pwritev` asks for.
        None => unsafe { real::pwritev64(fd, parts, count, offset) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn preadv64v2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off64_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: - The caller keeps what `preadv2` asks for.
    let memory = unsafe { Memory::of_parts(parts, count) };
    let wanted = memory.filter(|_| Wish::of_flags(flags).is_some());
    let done = wanted.and_then(|memory| match offset {
        OWN_OFFSET => transfer::read(fd, memory),
        _ => transfer::read_at(fd, memory, offset),
    });
    match done {
        Some(done) => done,
        // SAFETY: - The caller keeps what `preadv2` asks for.
        None => unsafe { real::preadv64v2(fd, parts, count, offset, flags) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pwritev64v2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off64_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: - The caller keeps what `pwritev2` asks for.
    let memory = unsafe { Memory::of_parts(parts, count) };
    let wanted = memory.zip(Wish::of_flags(flags));
    let done = wanted.and_then(|(memory, wish)| match offset {
        OWN_OFFSET => transfer::write(fd, memory, wish),
        _ => transfer::write_at(fd, memory, offset, wish),
    });
    match done {
        Some(done) => done,
        // SAFETY: - The caller keeps what `pwritev2` asks for.
        None => unsafe { real::pwritev64v2(fd, parts, count, offset, flags) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    match transfer::flush(fd) {
        Some(done) => done,
        // SAFETY: - `fsync` may be called with any number.
        None => unsafe { real::fsync(fd) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    match transfer::flush(fd) {
        Some(done) => done,
        // SAFETY: - `fdatasync` may be called with any number.
        None => unsafe { real::fdatasync(fd) },
    }
}

/// On this platform a file offset has 64 bits under either name.
macro_rules! same {
    ($($name:ident = $function:ident($($argument:ident: $kind:ty),*);)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name($($argument: $kind),*) -> ssize_t {
                // SAFETY: - The caller keeps what the function of this name asks for.
                unsafe { $function($($argument),*) }
            }
        )*
    };
}

const _: () = assert!(size_of::<libc::off_t>() == size_of::<off64_t>());

same! {
    pread = pread64(fd: c_int, buffer: *mut c_void, count: size_t, offset: off64_t);
    pwrite = pwrite64(fd: c_int, buffer: *const c_void, count: size_t, offset: off64_t);
    preadv = preadv64(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t);
    pwritev = pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t);
    preadv2 = preadv64v2(
        fd: c_int, parts: *const iovec, count: c_int, offset: off64_t, flags: c_int
    );
    pwritev2 = pwritev64v2(
        fd: c_int, parts: *const iovec, count: c_int, offset: off64_t, flags: c_int
    );
    __pread_chk = __pread64_chk(
        fd: c_int, buffer: *mut c_void, count: size_t, offset: off64_t, room: size_t
    );
}
