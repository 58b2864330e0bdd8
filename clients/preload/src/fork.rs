//! What happens when a process forks: the child forgets all that it shares with its parent.
//!
//! Rings belong to one process. A child connects anew when it first uses a volume. One that still
//! shares memory with its parent (`vfork`, `posix_spawn`) uses what the parent has, which waits.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::devices;
use crate::sys;
use crate::table::{self, Entry};

const NOT_YET: u8 = 0;
const WATCHED: u8 = 1;
const REFUSED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(NOT_YET);

/// How many forks lie between this process and the one that was started.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Sees to it that children forget. Returns whether they will.
pub(crate) fn is_watched() -> bool {
    let state = STATE.load(Ordering::Relaxed);
    if state != NOT_YET {
        return state == WATCHED;
    }
    // SAFETY:
    // - alive: the function below is there for as long as this library, which is never unloaded.
    let result = unsafe { libc::pthread_atfork(None, None, Some(forget_in_child)) };
    // Two threads may both come here: forgetting twice does no harm.
    STATE.store(if result == 0 { WATCHED } else { REFUSED }, Ordering::Relaxed);
    result == 0
}

pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

extern "C" fn forget_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    for fd in 0..table::count() {
        match table::get(fd) {
            Entry::Own => {
                table::renew(fd);
                sys::close_own(fd);
            }
            Entry::Bypassed(_) => table::renew(fd),
            Entry::Unknown | Entry::Foreign => {}
        }
    }
    devices::forget_all();
}
