//! System calls of fault containment: one function for each call, one unsafe operation in each
//! block.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

use sync::atomic::{AtomicBool, Ordering};
use vm_memory::MmapRegion;

/// State of the signal handler.
struct Handling {
    /// Former action for the signal.
    before: libc::sigaction,
    contain: fn(usize) -> bool,
}

static HANDLING: OnceLock<Handling> = OnceLock::new();

/// Installs [`on_fault`] as the handler of every `SIGBUS` of the process. `contain` is called on
/// the faulting thread, and returns whether the access may be repeated. It must take no lock and
/// allocate no memory.
pub(crate) fn install_handler(contain: fn(usize) -> bool) -> io::Result<()> {
    // Set first, because a signal may arrive as soon as the handler is installed.
    HANDLING.get_or_init(|| Handling { before: current_action(), contain });
    let mut action = zeroed_action();
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
    action.sa_sigaction = handler as libc::sighandler_t;
    // On the alternate signal stack, because a stack overflow also raises such a signal.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    set_action(&action)
}

/// Signal handler, called on the faulting thread.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY:
    // - alive, initialised: with `SA_SIGINFO` the kernel hands over one on this thread's stack.
    let info = unsafe { &*info };
    // A positive code means that the kernel detected a fault; no process sent the signal.
    let is_fault = info.si_code > 0;
    let handling = HANDLING.get().filter(|_| is_fault);
    // SAFETY:
    // - initialised: the kernel fills in the address for each fault of this signal.
    let address = || unsafe { info.si_addr() }.addr();
    if handling.is_some_and(|handling| (handling.contain)(address())) {
        return;
    }
    let before = handling.map_or_else(zeroed_action, |handling| handling.before);
    // On return the access faults again, with the former action. If that cannot be set, the handler
    // would be called forever, so the process must be ended.
    if set_action(&before).is_err() {
        std::process::abort();
    }
    if !is_fault {
        // SAFETY:
        // - in bounds: a number; the signal is delivered when this handler returns.
        unsafe { libc::raise(signal) };
    }
}

/// Sets the flag of a slot.
pub(crate) fn raise(flag: *mut AtomicBool) {
    // SAFETY:
    // - alive: the guard of the address keeps the flag, and the thread that accesses the address
    //   keeps the guard; the slot was read as a whole.
    // - aligned, initialised: it comes from an `Arc`.
    unsafe { &*flag }.store(true, Ordering::Relaxed);
}

/// Replaces a guarded mapping by private zeros. Returns false if the kernel refuses.
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

/// Excludes guest memory from core dumps.
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

/// The default action of the system, which ends the process.
fn zeroed_action() -> libc::sigaction {
    // SAFETY:
    // - initialised: all zeros are a `struct sigaction`, with SIG_DFL, no flags and an empty mask.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn done(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
