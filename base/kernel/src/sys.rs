//! System calls: one function each, one unsafe operation in each, with an `io::Result`.

use std::ffi::c_int;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::slice;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

const LOOP_CLR_FD: libc::Ioctl = 0x4C01;
const LOOP_SET_STATUS64: libc::Ioctl = 0x4C04;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
const LOOP_SET_CAPACITY: libc::Ioctl = 0x4C07;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;

pub(crate) const LO_FLAGS_READ_ONLY: u32 = 1;
pub(crate) const LO_FLAGS_AUTOCLEAR: u32 = 4;
pub(crate) const LO_FLAGS_PARTSCAN: u32 = 8;
pub(crate) const LO_FLAGS_DIRECT_IO: u32 = 16;

pub(crate) const LO_NAME_SIZE: usize = 64;

/// `struct loop_info64` of the kernel's ABI.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LoopInfo64 {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) rdevice: u64,
    pub(crate) offset: u64,
    pub(crate) size_limit: u64,
    pub(crate) number: u32,
    pub(crate) encrypt_type: u32,
    pub(crate) encrypt_key_size: u32,
    pub(crate) flags: u32,
    pub(crate) file_name: [u8; LO_NAME_SIZE],
    pub(crate) crypt_name: [u8; LO_NAME_SIZE],
    pub(crate) encrypt_key: [u8; 32],
    pub(crate) init: [u64; 2],
}

const _: () = assert!(size_of::<LoopInfo64>() == 232);
const _: () = assert!(offset_of!(LoopInfo64, file_name) == 56);

impl LoopInfo64 {
    pub(crate) const EMPTY: Self = Self {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: 0,
        file_name: [0; LO_NAME_SIZE],
        crypt_name: [0; LO_NAME_SIZE],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
}

/// `struct loop_config` of the kernel's ABI.
#[repr(C)]
pub(crate) struct LoopConfig {
    pub(crate) fd: u32,
    pub(crate) block_size: u32,
    pub(crate) info: LoopInfo64,
    pub(crate) reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopConfig>() == 304);
const _: () = assert!(offset_of!(LoopConfig, info) == 8);

/// Changes a setting of the allocator. Returns false if it is not supported.
#[cfg(target_env = "gnu")]
pub(crate) fn set_allocator(parameter: c_int, value: c_int) -> bool {
    // SAFETY:
    // - in bounds: both arguments are numbers.
    // - one caller: the library locks its own state.
    unsafe { libc::mallopt(parameter, value) == 1 }
}

/// Returns the number of a free loop device. The kernel creates one if there is none.
pub(crate) fn loop_control_get_free(control: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY:
    // - alive: `control` borrows an open descriptor.
    // - in bounds: this request takes no pointer.
    let result = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(result).map_err(|_| io::Error::last_os_error())
}

pub(crate) fn loop_configure(device: BorrowedFd<'_>, config: &LoopConfig) -> io::Result<()> {
    // SAFETY:
    // - alive: `device` borrows an open descriptor, `config` lives until the call returns.
    // - same type: the kernel reads one `struct loop_config`, whose layout is asserted above.
    done(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const *config) })
}

pub(crate) fn loop_get_status(device: BorrowedFd<'_>) -> io::Result<LoopInfo64> {
    let mut info = LoopInfo64::EMPTY;
    // SAFETY:
    // - alive: `device` borrows an open descriptor, `info` lives until the call returns.
    // - exclusive: no other thread knows `info`.
    // - same type: the kernel writes one `struct loop_info64`, whose layout is asserted above, and
    //   every bit pattern is a valid one.
    done(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) })?;
    Ok(info)
}

pub(crate) fn loop_set_status(device: BorrowedFd<'_>, info: &LoopInfo64) -> io::Result<()> {
    // SAFETY:
    // - alive: `device` borrows an open descriptor, `info` lives until the call returns.
    // - same type: the kernel reads one `struct loop_info64`, whose layout is asserted above.
    done(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_STATUS64, &raw const *info) })
}

pub(crate) fn loop_set_capacity(device: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY:
    // - alive: `device` borrows an open descriptor.
    // - in bounds: this request takes no pointer.
    done(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_CAPACITY) })
}

pub(crate) fn loop_clear(device: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY:
    // - alive: `device` borrows an open descriptor.
    // - in bounds: this request takes no pointer.
    done(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD) })
}

/// Fills `groups` with the supplementary groups of a socket's peer, and returns their number. Fails
/// with `ERANGE` if there are more.
pub(crate) fn peer_groups(socket: BorrowedFd<'_>, groups: &mut [u32]) -> io::Result<usize> {
    let bytes = size_of_val(groups);
    let mut length = libc::socklen_t::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY:
    // - alive, exclusive: `socket` borrows an open descriptor; `groups` and `length` are borrowed
    //   for the call.
    // - in bounds: `length` says how many bytes `groups` has.
    // - same type: the kernel writes `gid_t`, which is `u32`.
    done(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    Ok(usize::try_from(length).map_err(io::Error::other)? / size_of::<u32>())
}

/// Maps `length` bytes of `file`, shared, for reading and writing.
pub(crate) fn map_shared(
    file: BorrowedFd<'_>,
    offset: u64,
    length: usize,
) -> io::Result<NonNull<u8>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY:
    // - exclusive: the kernel chooses the address, so no mapping of ours is replaced.
    let start =
        unsafe { mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, file, offset) }?;
    Ok(NonNull::new(start.cast()).expect("mmap never returns null without MAP_FIXED"))
}

/// Allocates missing memory of the file, and fills the page tables.
pub(crate) fn populate(start: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY:
    // - alive: the caller's mapping; the advice changes no contents.
    Ok(unsafe { madvise(start.as_ptr().cast(), length, Advice::LinuxPopulateWrite) }?)
}

/// Excludes the contents from core dumps.
pub(crate) fn keep_out_of_dumps(start: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY:
    // - alive: the caller's mapping; the advice changes no contents.
    Ok(unsafe { madvise(start.as_ptr().cast(), length, Advice::LinuxDontDump) }?)
}

/// Bytes of a mapping of [`map_shared`], while `owner` is borrowed.
pub(crate) fn bytes<T>(start: NonNull<u8>, length: usize, _owner: &T) -> &[u8] {
    // SAFETY:
    // - in bounds, alive: `KeptMemory` calls this with its own mapping, which lives as long as it,
    //   and whose file cannot become shorter.
    // - exclusive: only shared borrows of the owner are alive, no other owner has the bytes, and
    //   the caller of `KeptMemory::map` promised that nobody writes to the file.
    // - initialised: bytes of files are.
    unsafe { slice::from_raw_parts(start.as_ptr(), length) }
}

/// Bytes of a mapping of [`map_shared`], while `owner` is borrowed.
pub(crate) fn bytes_mut<T>(start: NonNull<u8>, length: usize, _owner: &mut T) -> &mut [u8] {
    // SAFETY:
    // - in bounds, alive: `KeptMemory` calls this with its own mapping, which lives as long as it,
    //   and whose file cannot become shorter.
    // - exclusive: the owner is borrowed exclusively, no other owner has the bytes, and the caller
    //   of `KeptMemory::map` promised that nobody writes to the file.
    // - initialised: bytes of files are.
    unsafe { slice::from_raw_parts_mut(start.as_ptr(), length) }
}

/// Unmaps a mapping of [`map_shared`].
pub(crate) fn unmap(start: NonNull<u8>, length: usize) {
    // SAFETY:
    // - alive, one caller: `KeptMemory::drop` calls this once, with what `mmap` returned.
    let result = unsafe { munmap(start.as_ptr().cast(), length) };
    result.expect("a whole mapping can be unmapped");
}

fn done(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
