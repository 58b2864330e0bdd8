//! Updates of the descriptor table when descriptors are closed or changed.

use std::ffi::{c_int, c_uint};
use std::os::fd::RawFd;

use crate::aio;
use crate::classify;
use crate::devices;
use crate::inside::Inside;
use crate::notice;
use crate::sys;
use crate::table::{self, Entry};

/// Flag of `close_range` that sets close-on-exec instead of closing (`CLOSE_RANGE_CLOEXEC`).
pub(crate) const ONLY_MARK: c_int = 1 << 2;

/// Time at which a range of descriptors is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    Now,
    AtExec,
}

/// Prepares the close of `fd`. Returns whether the program may close it; it may not close this
/// library's descriptors.
pub(crate) fn will_be_closed(fd: RawFd) -> bool {
    match table::get(fd) {
        Entry::Unknown | Entry::Foreign => {}
        Entry::Bypassed(bypass) => {
            aio::settle_all();
            if let Some(device) = devices::find(bypass.device)
                && let Some(_inside) = Inside::enter()
            {
                device.refresh_page_cache(fd);
            }
        }
        Entry::Own => {
            // Threads inside a hook close this library's own descriptors.
            let Some(_inside) = Inside::enter() else {
                table::renew(fd);
                return true;
            };
            return false;
        }
    }
    table::forget(fd);
    true
}

/// Updates the table after the flags of an open file have changed, possibly through another
/// descriptor.
pub(crate) fn flags_changed(fd: RawFd) {
    let before = table::get(fd);
    let is_elsewhere = match before {
        Entry::Bypassed(_) => false,
        // A duplicate may be bypassed: one that was classified under other flags, or only now.
        Entry::Unknown | Entry::Foreign => leads_elsewhere(fd),
        Entry::Own => true,
    };
    will_be_closed(fd);
    if is_elsewhere {
        return;
    }
    let is_same = |bypass: table::Bypass| match before {
        Entry::Bypassed(before) => bypass.device == before.device,
        _ => true,
    };
    for other in 0..table::count() {
        if matches!(table::get(other), Entry::Bypassed(bypass) if is_same(bypass)) {
            will_be_closed(other);
        }
    }
}

/// Returns whether `fd` is open on an object that is no volume, such as a socket, a pipe, or a file
/// on a disk.
fn leads_elsewhere(fd: RawFd) -> bool {
    let Some(_inside) = Inside::enter() else { return true };
    sys::status(fd).is_some_and(|status| classify::candidate(fd, status).is_none())
}

/// Leaves the object of `fd` to the kernel, because the program maps it into memory.
pub(crate) fn will_be_mapped(fd: RawFd) {
    if devices::is_off() {
        return;
    }
    let before = table::get(fd);
    let target = match before {
        Entry::Own => None,
        Entry::Bypassed(bypass) => devices::find(bypass.device).map(devices::Device::target),
        // A foreign object may later be opened in a way that would be bypassed.
        Entry::Unknown | Entry::Foreign => {
            let Some(_inside) = Inside::enter() else { return };
            sys::status(fd).and_then(|status| classify::candidate(fd, status))
        }
    };
    let Some(target) = target else { return };
    will_be_closed(fd);
    aio::settle_all();
    let Some(_inside) = Inside::enter() else { return };
    if !devices::leave(target, fd) {
        return;
    }
    notice::report_descriptor(fd, format_args!("mapped with mmap, through the kernel"));
    if matches!(before, Entry::Bypassed(_)) {
        notice::say(
            notice::Reason::Mapped,
            format_args!(
                "a volume is mapped with mmap: I/O of this program on it goes through the kernel \
                 from now on"
            ),
        );
    }
}

/// Closes the range with `call`, except for this library's own descriptors.
pub(crate) fn close_range(
    first: c_uint,
    last: c_uint,
    closing: Closing,
    call: impl Fn(c_uint, c_uint) -> c_int,
) -> c_int {
    let Ok(begin) = RawFd::try_from(first) else { return call(first, last) };
    if first > last || closing == Closing::AtExec {
        return call(first, last);
    }
    let end = last.checked_add(1).and_then(|end| RawFd::try_from(end).ok());
    let end = end.unwrap_or(RawFd::MAX).min(table::count());
    let mut first = first;
    for fd in begin..end.max(begin) {
        if table::get(fd) != Entry::Own {
            will_be_closed(fd);
            continue;
        }
        let own = fd.unsigned_abs();
        if own > first {
            let result = call(first, own - 1);
            if result != 0 {
                return result;
            }
        }
        first = own + 1;
    }
    if first <= last { call(first, last) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn bypassed(device: u8) -> Entry {
        Entry::Bypassed(table::Bypass {
            device,
            may_read: true,
            may_write: true,
            is_synchronous: false,
        })
    }

    #[test]
    fn flags_changed_by_a_number_that_is_not_bypassed_make_all_be_looked_at_again() {
        let [first, second, unused] = [49_000, 49_001, 49_002];
        table::set(first, bypassed(100));
        table::set(second, bypassed(101));
        flags_changed(first);
        assert_eq!(table::get(first), Entry::Unknown);
        assert_eq!(table::get(second), bypassed(101));
        flags_changed(unused);
        assert_eq!(table::get(second), Entry::Unknown);
        // The kernel serves a duplicate since its flags were others.
        table::set(first, Entry::Foreign);
        table::set(second, bypassed(101));
        flags_changed(first);
        assert_eq!(table::get(first), Entry::Unknown);
        assert_eq!(table::get(second), Entry::Unknown);
    }

    #[test]
    fn ranges_are_closed_around_what_is_our_own() {
        for fd in [50_010, 50_011, 50_020] {
            assert!(table::set(fd, Entry::Own));
        }
        assert!(table::set(50_015, Entry::Foreign));
        let calls = RefCell::new(Vec::new());
        let call = |first, last| {
            calls.borrow_mut().push((first, last));
            0
        };
        assert_eq!(close_range(50_000, c_uint::MAX, Closing::Now, call), 0);
        let expected = [(50_000, 50_009), (50_012, 50_019), (50_021, c_uint::MAX)];
        assert_eq!(*calls.borrow(), expected);
        assert_eq!(table::get(50_015), Entry::Unknown);
        calls.borrow_mut().clear();
        assert_eq!(close_range(50_011, 50_011, Closing::Now, call), 0);
        assert_eq!(*calls.borrow(), []);
        assert_eq!(close_range(50_000, 50_020, Closing::AtExec, call), 0);
        assert_eq!(*calls.borrow(), [(50_000, 50_020)]);
    }
}
