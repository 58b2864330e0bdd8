//! Reads, writes and flushes of bypassed descriptors.
//!
//! Only regular requests are served here: whole sectors inside the volume, at plausible memory
//! addresses. For all others, and if the ring refuses, the result is `None`. The kernel then
//! repeats the whole call, so short transfers and error numbers are those of the kernel. Repeating
//! a read or write is harmless.
//!
//! The kernel maintains the file offset, which processes may share. A read or write at the file
//! offset first advances it, which reserves the range among concurrent calls, and moves it back if
//! the transfer fails.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

use libc::{iovec, ssize_t};
use sdk::RawKind;

use crate::classify;
use crate::devices::{self, Device};
use crate::inside::Inside;
use crate::sys;
use crate::table::{self, Bypass, Entry};

/// Maximum number of bytes that the kernel transfers in one call.
const BYTES_MAX: u64 = 0x7FFF_F000;

/// Maximum length of a write that the ring executes completely or not at all.
const PIECE_BYTES: u64 = 4096;

/// Maximum number of parts of one call (`UIO_MAXIOV`).
const PARTS_MAX: usize = 1024;

/// Bounds of plausible user memory. The kernel reports an error for addresses outside.
const MEMORY_START: u64 = 1 << 16;
const MEMORY_END: u64 = 1 << 47;

/// Special semantics of one read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Ordinary,
    /// The write must be flushed.
    Durable,
}

impl Wish {
    /// Converts the flags of `preadv2` and `pwritev2`; `None` for flags that are left to the
    /// kernel.
    pub(crate) fn of_flags(flags: c_int) -> Option<Self> {
        const DURABLE: c_int = libc::RWF_DSYNC | libc::RWF_SYNC;
        match flags & !(DURABLE | libc::RWF_HIPRI) {
            0 if flags & DURABLE != 0 => Some(Self::Durable),
            0 => Some(Self::Ordinary),
            _ => None,
        }
    }
}

/// Memory of the program for one call, in parts.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'parts> {
    parts: &'parts [iovec],
}

impl<'parts> Memory<'parts> {
    pub(crate) fn of(part: &'parts iovec) -> Self {
        Self { parts: std::slice::from_ref(part) }
    }

    /// Parts given by the program; `None` if the address is implausible.
    ///
    /// # Safety
    ///
    /// As for `readv`: `parts` must have `count` elements, if `count` is one that the kernel
    /// accepts.
    pub(crate) unsafe fn of_parts(parts: *const iovec, count: c_int) -> Option<Self> {
        let count = usize::try_from(count).ok().filter(|count| (1..=PARTS_MAX).contains(count))?;
        if !can_be_there(parts as u64, count as u64) || !parts.is_aligned() {
            return None;
        }
        // SAFETY:
        // - alive, initialised, in bounds: the caller vouches for it.
        // - aligned: looked at above.
        // - exclusive: programs that change the parts during the call get what they deserve from
        //   the kernel too; each part is read once.
        let parts = unsafe { std::slice::from_raw_parts(parts, count) };
        Some(Self { parts })
    }

    /// Total length, if all parts have plausible addresses and are aligned.
    fn length(&self, device: &Device) -> Option<u64> {
        let mut length = 0_u64;
        for part in self.parts {
            let (address, count) = (part.iov_base as u64, part.iov_len as u64);
            let is_odd = address & device.memory_mask != 0 || count & device.length_mask != 0;
            if is_odd || !can_be_there(address, count) {
                return None;
            }
            length += count;
        }
        (1..=BYTES_MAX).contains(&length).then_some(length)
    }
}

fn can_be_there(address: u64, length: u64) -> bool {
    address >= MEMORY_START && length <= BYTES_MAX && address < MEMORY_END - BYTES_MAX
}

/// One call on a bypassed descriptor.
struct Call<'parts> {
    device: &'static Device,
    memory: Memory<'parts>,
    length: u64,
    is_durable: bool,
}

/// Vectored read at an offset, as by `preadv`.
pub(crate) fn read_at(fd: RawFd, memory: Memory<'_>, offset: i64) -> Option<ssize_t> {
    let call = Call::to_read(bypassed(fd)?, memory)?;
    let _inside = Inside::enter()?;
    call.read(u64::try_from(offset).ok()?)
}

/// Vectored write at an offset, as by `pwritev`.
pub(crate) fn write_at(fd: RawFd, memory: Memory<'_>, offset: i64, wish: Wish) -> Option<ssize_t> {
    let call = Call::to_write(bypassed(fd)?, memory, wish)?;
    let _inside = Inside::enter()?;
    call.write(u64::try_from(offset).ok()?)
}

/// A regular read or write of one part, for execution on a lane.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) device: &'static Device,
    pub(crate) kind: RawKind,
    pub(crate) offset: u64,
    pub(crate) length: usize,
}

/// Plans the request that [`read_at`] would execute.
pub(crate) fn plan_read(fd: RawFd, part: &iovec, offset: i64) -> Option<Plan> {
    Call::to_read(bypassed(fd)?, Memory::of(part))?.plan(RawKind::Read, offset)
}

/// Plans the request that [`write_at`] would execute, unless it must be flushed.
pub(crate) fn plan_write(fd: RawFd, part: &iovec, offset: i64) -> Option<Plan> {
    let call = Call::to_write(bypassed(fd)?, Memory::of(part), Wish::Ordinary)?;
    call.plan(RawKind::Write, offset).filter(|_| !call.is_durable)
}

/// Vectored read at the file offset, as by `readv`.
pub(crate) fn read(fd: RawFd, memory: Memory<'_>) -> Option<ssize_t> {
    let call = Call::to_read(bypassed(fd)?, memory)?;
    let _inside = Inside::enter()?;
    call.at_offset_of(fd, |offset| call.read(offset))
}

/// Vectored write at the file offset, as by `writev`.
pub(crate) fn write(fd: RawFd, memory: Memory<'_>, wish: Wish) -> Option<ssize_t> {
    let call = Call::to_write(bypassed(fd)?, memory, wish)?;
    let _inside = Inside::enter()?;
    call.at_offset_of(fd, |offset| call.write(offset))
}

/// Flushes as `fdatasync` does.
pub(crate) fn flush(fd: RawFd) -> Option<c_int> {
    let device = devices::find(bypassed(fd)?.device)?;
    let _inside = Inside::enter()?;
    // The kernel would also write back data that others left in the page cache.
    if device.is_block_device() && !sys::write_page_cache(fd) {
        return None;
    }
    device.disk.flush().ok()?;
    device.refresh_page_cache(fd);
    Some(0)
}

/// Bypass of `fd`, if it has one.
#[inline]
pub(crate) fn bypassed(fd: RawFd) -> Option<Bypass> {
    match table::get(fd) {
        Entry::Bypassed(bypass) => Some(bypass),
        Entry::Unknown => classify::classify(fd),
        Entry::Foreign | Entry::Own => None,
    }
}

impl<'parts> Call<'parts> {
    fn to_read(bypass: Bypass, memory: Memory<'parts>) -> Option<Self> {
        let device = devices::find(bypass.device).filter(|_| bypass.may_read)?;
        let length = memory.length(device)?;
        Some(Self { device, memory, length, is_durable: false })
    }

    fn to_write(bypass: Bypass, memory: Memory<'parts>, wish: Wish) -> Option<Self> {
        let device = devices::find(bypass.device).filter(|_| bypass.may_write)?;
        let length = memory.length(device).filter(|_| !device.disk.is_read_only())?;
        let is_durable = bypass.is_synchronous || wish == Wish::Durable;
        Some(Self { device, memory, length, is_durable })
    }

    /// Returns `offset` if it is aligned. The ring checks that it is inside the volume.
    fn sound(&self, offset: u64) -> Option<u64> {
        (offset & self.device.length_mask == 0).then_some(offset)
    }

    fn plan(&self, kind: RawKind, offset: i64) -> Option<Plan> {
        let offset = self.sound(u64::try_from(offset).ok()?)?;
        let device = self.device;
        let plan = Plan { device, kind, offset, length: usize::try_from(self.length).ok()? };
        device.disk.holds(offset, self.length).then_some(plan)
    }

    fn read(&self, offset: u64) -> Option<ssize_t> {
        let mut offset = self.sound(offset)?;
        for part in self.memory.parts.iter().filter(|part| part.iov_len > 0) {
            self.device.disk.read(offset, bytes_mut(part.iov_base, part.iov_len)).ok()?;
            offset += part.iov_len as u64;
        }
        self.done()
    }

    fn write(&self, offset: u64) -> Option<ssize_t> {
        let mut offset = self.sound(offset)?;
        // The ring splits larger writes, so they must be checked before the first piece.
        let is_one_piece = self.memory.parts.len() == 1 && self.length <= PIECE_BYTES;
        if !is_one_piece && !self.device.disk.holds(offset, self.length) {
            return None;
        }
        self.device.will_be_written();
        for part in self.memory.parts.iter().filter(|part| part.iov_len > 0) {
            self.device.disk.write(offset, bytes(part.iov_base, part.iov_len)).ok()?;
            offset += part.iov_len as u64;
        }
        if self.is_durable {
            self.device.disk.flush().ok()?;
        }
        self.done()
    }

    fn at_offset_of(
        &self,
        fd: RawFd,
        transfer: impl FnOnce(u64) -> Option<ssize_t>,
    ) -> Option<ssize_t> {
        let length = i64::try_from(self.length).ok()?;
        let end = sys::move_offset(fd, length)?;
        let done = end.checked_sub(self.length).and_then(transfer);
        if done.is_none() {
            // Other threads may have advanced the offset meanwhile, so it is moved back by the same
            // distance.
            sys::move_offset(fd, -length);
        }
        done
    }

    fn done(&self) -> Option<ssize_t> {
        ssize_t::try_from(self.length).ok()
    }
}

fn bytes<'call>(start: *const c_void, length: usize) -> &'call [u8] {
    // SAFETY:
    // - alive, initialised, in bounds: programs vouch for the memory that they hand to `write`, and
    //   the slice is used for the length of that call.
    // - exclusive: nothing here changes it; a program that does races with itself.
    unsafe { std::slice::from_raw_parts(start.cast(), length) }
}

fn bytes_mut<'call>(start: *mut c_void, length: usize) -> &'call mut [u8] {
    // SAFETY:
    // - alive, in bounds: programs vouch for the memory that they hand to `read`, and the slice is
    //   used for the length of that call.
    // - initialised: it is only written to.
    // - exclusive: a program that uses it meanwhile races with itself.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_flags_that_are_understood_are_taken() {
        assert_eq!(Wish::of_flags(0), Some(Wish::Ordinary));
        assert_eq!(Wish::of_flags(libc::RWF_HIPRI), Some(Wish::Ordinary));
        assert_eq!(Wish::of_flags(libc::RWF_DSYNC), Some(Wish::Durable));
        assert_eq!(Wish::of_flags(libc::RWF_SYNC | libc::RWF_HIPRI), Some(Wish::Durable));
        assert_eq!(Wish::of_flags(libc::RWF_NOWAIT), None);
        assert_eq!(Wish::of_flags(libc::RWF_APPEND), None);
    }

    #[test]
    fn memory_that_no_program_has_is_left_to_the_kernel() {
        assert!(!can_be_there(0, 1));
        assert!(!can_be_there(u64::MAX, 1));
        assert!(!can_be_there(1 << 20, BYTES_MAX + 1));
        assert!(can_be_there(1 << 20, BYTES_MAX));
        let part = iovec { iov_base: std::ptr::null_mut(), iov_len: 1 };
        // SAFETY: - The count is not one that the kernel takes.
        let none = unsafe { Memory::of_parts(&raw const part, 0) };
        assert!(none.is_none());
        // SAFETY: - Nothing can be there, so nothing is looked at.
        let nowhere = unsafe { Memory::of_parts(std::ptr::null(), 1) };
        assert!(nowhere.is_none());
    }
}
