//! Requests and events in the layout of the kernel's ABI (`linux/aio_abi.h`), on 64-bit platforms.

use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{sigset_t, timespec};

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const FLUSH: u16 = 2;
pub(crate) const FLUSH_DATA: u16 = 3;
pub(crate) const READ_PARTS: u16 = 7;
pub(crate) const WRITE_PARTS: u16 = 8;

/// Flag: completion is signalled by an eventfd (`IOCB_FLAG_RESFD`).
pub(crate) const TELLS_EVENTFD: u32 = 1;

/// `struct iocb`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) data: usize,
    pub(crate) words: KeyAndFlags,
    pub(crate) operation: u16,
    pub(crate) priority: i16,
    pub(crate) fd: u32,
    pub(crate) buffer: usize,
    pub(crate) length: usize,
    pub(crate) offset: i64,
    pub(crate) reserved: u64,
    pub(crate) flags: u32,
    pub(crate) eventfd: u32,
}

impl Request {
    /// A read request of zero bytes.
    pub(crate) fn nothing(file: &OwnedFd) -> Self {
        Self { operation: READ, fd: file.as_raw_fd().cast_unsigned(), ..Self::default() }
    }

    /// Returns whether buffer, length, offset and flags are zero, as flush requests require.
    pub(crate) fn is_bare(&self) -> bool {
        (self.buffer, self.length, self.offset, self.words.wishes) == (0, 0, 0, 0)
    }
}

/// Two fields whose order depends on the byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyAndFlags {
    #[cfg(target_endian = "little")]
    pub(crate) key: u32,
    pub(crate) wishes: i32,
    #[cfg(target_endian = "big")]
    pub(crate) key: u32,
}

const _: () = assert!(size_of::<Request>() == 64);
const _: () = assert!(offset_of!(Request, operation) == 16);
const _: () = assert!(offset_of!(Request, flags) == 56);

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) data: usize,
    /// Address of the request.
    pub(crate) request: usize,
    pub(crate) result: i64,
    pub(crate) second_result: i64,
}

const _: () = assert!(size_of::<Event>() == 32);

/// Number of events to wait for, and timeout.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) least: isize,
    pub(crate) most: isize,
    /// Null: no timeout.
    pub(crate) timeout: *const timespec,
    /// Null: the thread's signal mask stays as it is.
    pub(crate) mask: *const sigset_t,
}
