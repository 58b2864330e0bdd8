//! Cancellation of synchronous work: a thread that parses or plans a statement polls whether
//! anybody still waits for the result. Passes of the engine poll too, through this crate's code in
//! them.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{SqlError, SqlState};

thread_local! {
    /// Flag of the statement that the thread works for.
    static CURRENT: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Guard held while the result of the work is awaited. Dropping it cancels the work.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Arc<AtomicBool>);

impl Waiting {
    /// Returns a function that marks the current thread as working for this handle. It must be
    /// called on the thread of the work, which ends early once the handle is dropped.
    pub(crate) fn work(&self) -> impl FnOnce() -> Working + Send + use<> {
        let is_given_up = Arc::clone(&self.0);
        move || Working { before: CURRENT.replace(Some(is_given_up)) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Marks the thread as working for a waiting statement until dropped.
pub(crate) struct Working {
    before: Option<Arc<AtomicBool>>,
}

impl Drop for Working {
    fn drop(&mut self) {
        CURRENT.replace(self.before.take());
    }
}

/// Returns whether the thread's current work was cancelled.
pub(crate) fn is_given_up() -> bool {
    CURRENT.with_borrow(|it| it.as_ref().is_some_and(|it| it.load(Ordering::Relaxed)))
}

/// Returns whether the thread is planning. Planning must not keep large values.
pub(crate) fn is_planning() -> bool {
    CURRENT.with_borrow(Option::is_some)
}

/// Fails if the work was cancelled.
pub(crate) fn check() -> Result<(), SqlError> {
    match is_given_up() {
        true => Err(SqlError::new(
            SqlState::CANCELLED,
            "canceling statement: its result is no longer needed",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_given_up_when_nobody_waits() {
        let waiting = Waiting::default();
        let begin = waiting.work();
        assert!(!is_planning());
        let working = begin();
        assert!(is_planning());
        check().expect("it is waited for");
        drop(waiting);
        assert_eq!(check().expect_err("nobody waits").state, SqlState::CANCELLED);
        drop(working);
        check().expect("the thread does something else");
    }
}
