//! Forks of a process: a child drops all state that it shares with its parent.
//!
//! A ring belongs to one process, so a child connects again at its first use of a volume. A child
//! that was created without the `pthread_atfork` handlers (`_Fork`, `clone`, a system call) is
//! detected by a page that the kernel clears in children (`MADV_WIPEONFORK`). All its requests go
//! through the kernel, because threads of the parent may have held locks at the fork. A child that
//! still shares memory with its parent (`vfork`, `posix_spawn`) uses the parent's state while the
//! parent is suspended, and changes nothing in it that the parent relies on.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::aio;
use crate::devices;
use crate::table;

const NOT_YET: u8 = 0;
const WATCHED: u8 = 1;
const REFUSED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(NOT_YET);

/// Number of forks between this process and the one that was started.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Constructor of the library. A child of `vfork` may be the first to use a volume, and must not be
/// taken for the main process.
#[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
#[cfg_attr(test, expect(dead_code, reason = "tests load no library"))]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    is_watched();
}

/// Installs the fork handling, once. Returns whether it is installed.
pub(crate) fn is_watched() -> bool {
    let state = STATE.load(Ordering::Relaxed);
    if state != NOT_YET {
        return state == WATCHED;
    }
    let are_told_apart = sdk::tell_children_apart().is_ok();
    // SAFETY:
    // - alive: the function below is there for as long as this library, which is never unloaded.
    let result = unsafe { libc::pthread_atfork(None, None, Some(forget_in_child)) };
    let is_watched = are_told_apart && result == 0;
    // Two threads may both get here. Installing the handler twice is harmless.
    STATE.store(if is_watched { WATCHED } else { REFUSED }, Ordering::Relaxed);
    is_watched
}

pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// The client's own fork handler has already closed the sockets.
extern "C" fn forget_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    table::forget_all();
    devices::forget_all();
    aio::forget_all();
}
