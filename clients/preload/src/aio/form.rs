//! Requests and events as the kernel and programs know them (`linux/aio_abi.h`), on platforms whose
//! addresses have 64 bits.

use std::mem::{offset_of, size_of};

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const READ_PARTS: u16 = 7;
pub(crate) const WRITE_PARTS: u16 = 8;

/// The program wants a number added to an eventfd when the request is over (`IOCB_FLAG_RESFD`).
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

/// Two fields that change places with the order of bytes.
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
    /// The address of the request.
    pub(crate) request: usize,
    pub(crate) result: i64,
    pub(crate) second_result: i64,
}

const _: () = assert!(size_of::<Event>() == 32);
