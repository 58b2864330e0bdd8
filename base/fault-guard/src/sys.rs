//! The raw side of contained faults: one function for each call, one unsafe operation in each
//! block.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

use sync::atomic::{AtomicBool, Ordering};
use vm_memory::MmapRegion;

/// What the handler of faults goes by.
struct Handling {
    /// What the process did about the signal before.
    before: libc::sigaction,
    contain: fn(usize) -> bool,
}

static HANDLING: OnceLock<Handling> = OnceLock::new();

/// Has every `SIGBUS` of the process come to [`on_fault`]. `contain` is asked on the thread whose
/// access failed whether the access may be made again: it takes no lock and no memory.
pub(crate) fn install_handler(contain: fn(usize) -> bool) -> io::Result<()> {
    // First, as the signal may come as soon as the handler is there.
    HANDLING.get_or_init(|| Handling { before: current_action(), contain });
    let mut action = zeroed_action();
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
    action.sa_sigaction = handler as libc::sighandler_t;
    // On the stack for signals: an overflow of a stack is such a signal, too.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    set_action(&action)
}

/// What the kernel calls on the thread whose access failed.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY:
    // - alive, initialised: with `SA_SIGINFO` the kernel hands over one on this thread's stack.
    let info = unsafe { &*info };
    // Above zero: the kernel found a fault; no process sent the signal.
    let is_fault = info.si_code > 0;
    let handling = HANDLING.get().filter(|_| is_fault);
    // SAFETY:
    // - initialised: the kernel fills in the address for each fault of this signal.
    let address = || unsafe { info.si_addr() }.addr();
    if handling.is_some_and(|handling| (handling.contain)(address())) {
        return;
    }
    let before = handling.map_or_else(zeroed_action, |handling| handling.before);
    // The access fails again on return, and meets the action from before. A failure to set that
    // ends in this handler for ever, so it must end the process itself.
    if set_action(&before).is_err() {
        std::process::abort();
    }
    if !is_fault {
        // SAFETY:
        // - in bounds: a number; the signal is delivered when this handler returns.
        unsafe { libc::raise(signal) };
    }
}

/// Raises the flag of a slot.
pub(crate) fn raise(flag: *mut AtomicBool) {
    // SAFETY:
    // - alive: the guard of the address keeps the flag, and the thread that accesses the address
    //   keeps the guard; the slot was read as a whole.
    // - aligned, initialised: it comes from an `Arc`.
    unsafe { &*flag }.store(true, Ordering::Relaxed);
}

/// Puts private zeros in the place of a guarded mapping; false when the kernel refuses.
pub(crate) fn replace_by_zeros(range: &Range<usize>) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let start = ptr::without_provenance_mut(range.start);
    // SAFETY:
    // - in bounds: the range is one mapping of a shared file, whose guard exists.
    // - alive: only volatile copies and atomics of its owner use it, which take any contents, as
    //   another process could have stored them.
    let placed = unsafe { libc::mmap(start, range.len(), protection, kind, -1, 0) };
    placed == start
}

/// Guests' memory belongs into no core dump.
pub(crate) fn keep_out_of_dumps(region: &MmapRegion) -> io::Result<()> {
    let start = region.as_ptr();
    // SAFETY:
    // - alive: the caller's mapping; the advice changes no contents.
    done(unsafe { libc::madvise(start.cast(), region.size(), libc::MADV_DONTDUMP) })
}

fn current_action() -> libc::sigaction {
    let mut action = zeroed_action();
    // SAFETY:
    // - alive, exclusive: the kernel writes one `struct sigaction`, which no other thread knows.
    let result = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut action) };
    assert_eq!(result, 0, "the signal exists");
    action
}

fn set_action(action: &libc::sigaction) -> io::Result<()> {
    // SAFETY:
    // - alive: the kernel reads one `struct sigaction` before the call returns.
    // - one caller: the handler in it is [`on_fault`], or what was there before.
    done(unsafe { libc::sigaction(libc::SIGBUS, &raw const *action, ptr::null_mut()) })
}

/// The action of the system: the process ends.
fn zeroed_action() -> libc::sigaction {
    // SAFETY:
    // - initialised: all zeros are a `struct sigaction`, with SIG_DFL, no flags and an empty mask.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn done(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
