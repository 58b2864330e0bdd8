//! Mark of threads that are inside a hook.
//!
//! What the hooks use calls the C library too, and so do signal handlers that interrupt them. Such
//! calls go straight to the kernel: nothing is entered twice by one thread.

use std::cell::Cell;

use crate::errno;

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// This thread is at work, until this is dropped; `errno` is then what it was.
pub(crate) struct Inside {
    _errno: errno::Kept,
}

impl Inside {
    /// `None` when it was at work before.
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
