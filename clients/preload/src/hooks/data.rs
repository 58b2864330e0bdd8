//! Replacements of the C library's functions for reading, writing and flushing.
//!
//! Each function has the safety requirements that the C library documents, and passes its arguments
//! to functions with the same requirements.

use std::ffi::{c_int, c_void};

use libc::{iovec, off64_t, size_t, ssize_t};

use crate::real;
use crate::transfer::{self, Memory, Wish};

/// Offset argument with which `preadv2` and `pwritev2` use the file offset.
const OWN_OFFSET: off64_t = -1;

fn part(buffer: *const c_void, count: size_t) -> iovec {
    iovec { iov_base: buffer.cast_mut(), iov_len: count }
}

/// Buffer of a fortified call, if it has `room` for `count` bytes.
fn checked(buffer: *mut c_void, count: size_t, room: size_t) -> Option<iovec> {
    (count <= room).then(|| part(buffer, count))
}

/// Defines functions that are served here, or else call the C library's function of the same name.
/// Vectored functions name their parts and count.
macro_rules! serve {
    (
        $(
            $name:ident($($argument:ident: $kind:ty),*) -> $result:ty
            = $(in($parts:ident, $count:ident))? $served:expr;
        )*
    ) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
                let served = $served;
                $(
                    // SAFETY: - The caller keeps what the function of this name asks for.
                    let memory = unsafe { Memory::of_parts($parts, $count) };
                    let served = memory.and_then(served);
                )?
                match served {
                    Some(done) => done,
                    // SAFETY: - The caller keeps what the function of this name asks for.
                    None => unsafe { real::$name($($argument),*) },
                }
            }
        )*
    };
}

serve! {
    read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t
        = transfer::read(fd, Memory::of(&part(buffer, count)));
    write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t
        = transfer::write(fd, Memory::of(&part(buffer, count)), Wish::Ordinary);
    __read_chk(fd: c_int, buffer: *mut c_void, count: size_t, room: size_t) -> ssize_t
        = checked(buffer, count, room).and_then(|part| transfer::read(fd, Memory::of(&part)));
    readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t
        = in(parts, count) |memory| transfer::read(fd, memory);
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t
        = in(parts, count) |memory| transfer::write(fd, memory, Wish::Ordinary);
    pread64(fd: c_int, buffer: *mut c_void, count: size_t, offset: off64_t) -> ssize_t
        = transfer::read_at(fd, Memory::of(&part(buffer, count)), offset);
    pwrite64(fd: c_int, buffer: *const c_void, count: size_t, offset: off64_t) -> ssize_t
        = transfer::write_at(fd, Memory::of(&part(buffer, count)), offset, Wish::Ordinary);
    __pread64_chk(
        fd: c_int, buffer: *mut c_void, count: size_t, offset: off64_t, room: size_t
    ) -> ssize_t
        = checked(buffer, count, room)
            .and_then(|part| transfer::read_at(fd, Memory::of(&part), offset));
    preadv64(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t) -> ssize_t
        = in(parts, count) |memory| transfer::read_at(fd, memory, offset);
    pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t) -> ssize_t
        = in(parts, count) |memory| transfer::write_at(fd, memory, offset, Wish::Ordinary);
    preadv64v2(
        fd: c_int, parts: *const iovec, count: c_int, offset: off64_t, flags: c_int
    ) -> ssize_t
        = in(parts, count) |memory| match (Wish::of_flags(flags)?, offset) {
            (_, OWN_OFFSET) => transfer::read(fd, memory),
            _ => transfer::read_at(fd, memory, offset),
        };
    pwritev64v2(
        fd: c_int, parts: *const iovec, count: c_int, offset: off64_t, flags: c_int
    ) -> ssize_t
        = in(parts, count) |memory| match (Wish::of_flags(flags)?, offset) {
            (wish, OWN_OFFSET) => transfer::write(fd, memory, wish),
            (wish, _) => transfer::write_at(fd, memory, offset, wish),
        };
    fsync(fd: c_int) -> c_int = transfer::flush(fd);
    fdatasync(fd: c_int) -> c_int = transfer::flush(fd);
}

/// Defines aliases, because file offsets have 64 bits under either name on this platform.
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
