//! System calls of the hooks themselves, which do not pass through hooks.

use std::ffi::{CStr, c_int};
use std::os::fd::{BorrowedFd, RawFd};

use rustix::fs::{Advice, FileType, Mode, OFlags, SeekFrom};

use crate::text::Text;

/// Maximum number of writes for one message.
const WRITES_MAX: usize = 16;

/// Magic number of FUSE file systems (`FUSE_SUPER_MAGIC`).
const FUSE_MAGIC: u64 = 0x6573_5546;

/// Flag of descriptors with durable writes, which is part of `O_SYNC`. The constant of this name in
/// `rustix` is all of `O_SYNC` on Linux.
const DURABLE: u32 = libc::O_DSYNC.cast_unsigned();

/// Target and status of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) kind: StatusKind,
    /// Device number of the file system that contains the file.
    pub(crate) file_system: u64,
    pub(crate) inode: u64,
    /// Device number that a device file refers to.
    pub(crate) device: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusKind {
    BlockDevice,
    File,
    Other,
}

/// Modes in which a descriptor was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenedFor {
    pub(crate) may_read: bool,
    pub(crate) may_write: bool,
    pub(crate) is_direct: bool,
    /// Each write must be as durable as after a flush.
    pub(crate) is_synchronous: bool,
    /// Append-only writes, or no reads and writes at all (`O_APPEND`, `O_PATH`).
    pub(crate) is_peculiar: bool,
}

/// Borrows a descriptor for one call. If the program closes it meanwhile, the kernel reports an
/// error.
fn borrow(fd: RawFd) -> Option<BorrowedFd<'static>> {
    if fd < 0 {
        return None;
    }
    // SAFETY:
    // - alive: nothing is kept of it past the one system call that it is borrowed for, and a
    //   number that is no longer open is refused by the kernel.
    // - in bounds: it is not negative.
    Some(unsafe { BorrowedFd::borrow_raw(fd) })
}

pub(crate) fn status(fd: RawFd) -> Option<Status> {
    let stat = rustix::fs::fstat(borrow(fd)?).ok()?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => StatusKind::BlockDevice,
        FileType::RegularFile => StatusKind::File,
        _ => StatusKind::Other,
    };
    Some(Status { kind, file_system: stat.st_dev, inode: stat.st_ino, device: stat.st_rdev })
}

pub(crate) fn opened_for(fd: RawFd) -> Option<OpenedFor> {
    let flags = rustix::fs::fcntl_getfl(borrow(fd)?).ok()?;
    let access = flags & OFlags::RWMODE;
    Some(OpenedFor {
        may_read: access == OFlags::RDONLY || access == OFlags::RDWR,
        may_write: access == OFlags::WRONLY || access == OFlags::RDWR,
        is_direct: flags.contains(OFlags::DIRECT),
        is_synchronous: flags.bits() & DURABLE != 0,
        is_peculiar: flags.intersects(OFlags::APPEND | OFlags::PATH),
    })
}

/// Returns whether the file is on a FUSE file system.
pub(crate) fn is_on_fuse(fd: RawFd) -> Option<bool> {
    let status = rustix::fs::fstatfs(borrow(fd)?).ok()?;
    Some(u64::try_from(status.f_type) == Ok(FUSE_MAGIC))
}

/// Returns whether there is no file size limit (`RLIMIT_FSIZE`).
pub(crate) fn files_have_no_limit() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_none()
}

/// Upper bound of new descriptor numbers (`RLIMIT_NOFILE`), exclusive.
pub(crate) fn descriptor_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns whether the device is unclaimed: it has no mounted file system and no device stacked on
/// it.
pub(crate) fn is_unclaimed(fd: RawFd) -> bool {
    let mut path = Text::<32>::new();
    // The buffer has room for every number.
    let _ = std::fmt::Write::write_fmt(&mut path, format_args!("/proc/self/fd/{fd}\0"));
    let Ok(path) = CStr::from_bytes_until_nul(path.bytes()) else { return false };
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // Dropping it closes the descriptor by a direct system call.
    rustix::fs::open(path, flags, Mode::empty()).is_ok()
}

/// Moves the file offset, and returns the new offset.
pub(crate) fn move_offset(fd: RawFd, by: i64) -> Option<u64> {
    rustix::fs::seek(borrow(fd)?, SeekFrom::Current(by)).ok()
}

/// Writes back and drops the page cache of a device.
pub(crate) fn drop_page_cache(fd: RawFd) {
    write_page_cache(fd);
    if let Some(fd) = borrow(fd) {
        // This is advisory: pages in use are not dropped.
        let _ = rustix::fs::fadvise(fd, 0, None, Advice::DontNeed);
    }
}

/// Writes back the page cache of a device. Returns whether this succeeded.
pub(crate) fn write_page_cache(fd: RawFd) -> bool {
    const WAIT_BEFORE_WRITE_WAIT_AFTER: u32 = 1 | 2 | 4;
    let flags = WAIT_BEFORE_WRITE_WAIT_AFTER;
    let kept = crate::errno::Kept::now();
    let number = libc::SYS_sync_file_range;
    let words = [usize::try_from(fd).unwrap_or(usize::MAX), 0, 0, flags as usize, 0, 0];
    let result = kernel_call(number, words);
    drop(kept);
    result.is_ok()
}

/// A system call without a library function. The error is the error number.
pub(crate) fn kernel_call(number: i64, words: [usize; 6]) -> Result<usize, c_int> {
    let [a, b, c, d, e, f] = words;
    // SAFETY:
    // - The caller hands in what the kernel documents for this number.
    let result = unsafe { crate::real::syscall(number, a, b, c, d, e, f) };
    usize::try_from(result).map_err(|_| crate::errno::get())
}

/// Writes to a descriptor of the program without passing through a hook.
pub(crate) fn write_now(fd: RawFd, bytes: &[u8]) {
    if let Some(fd) = borrow(fd) {
        // The kernel does not report this failure to programs either.
        let _ = rustix::io::write(fd, bytes);
    }
}

/// Writes to standard error, as far as possible.
pub(crate) fn complain(mut message: &[u8]) {
    for _ in 0..WRITES_MAX {
        match borrow(2).map(|fd| rustix::io::write(fd, message)) {
            Some(Ok(count)) if count > 0 && count < message.len() => message = &message[count..],
            Some(Err(rustix::io::Errno::INTR)) => {}
            _ => return,
        }
    }
}
