//! Thread-local flag of threads that are inside a hook.
//!
//! Code called by hooks also calls the C library, and so do signal handlers that interrupt hooks.
//! Such calls go directly to the kernel, so hooks are not reentrant.

use std::cell::Cell;

use crate::errno;

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread as inside a hook while it exists. When dropped, restores `errno`.
pub(crate) struct Inside {
    _errno: errno::Kept,
}

impl Inside {
    /// Returns `None` if the thread is already inside a hook.
    pub(crate) fn enter() -> Option<Self> {
        let was_inside = IS_INSIDE.replace(true);
        (!was_inside).then(|| Self { _errno: errno::Kept::now() })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        IS_INSIDE.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_enters_once() {
        let inside = Inside::enter();
        assert!(inside.is_some());
        assert!(Inside::enter().is_none());
        std::thread::spawn(|| assert!(Inside::enter().is_some())).join().expect("it may enter");
        drop(inside);
        assert!(Inside::enter().is_some());
    }
}
