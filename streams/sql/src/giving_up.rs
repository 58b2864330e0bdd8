//! Work that is given up from outside: a thread parses or plans for one statement, and looks now
//! and then whether anybody still waits for it. Passes that the engine makes look too, through
//! what is ours in them.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{SqlError, SqlState};

thread_local! {
    /// What the thread works for now.
    static CURRENT: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Mark that work is still waited for: until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Arc<AtomicBool>);

impl Waiting {
    /// Does the work, which ends early once nobody waits; to be called on the thread of the work.
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

/// The thread works for whoever waits, until this is dropped.
pub(crate) struct Working {
    before: Option<Arc<AtomicBool>>,
}

impl Drop for Working {
    fn drop(&mut self) {
        CURRENT.replace(self.before.take());
    }
}

/// Returns whether nobody waits any more for what the thread does.
pub(crate) fn is_given_up() -> bool {
    CURRENT.with_borrow(|it| it.as_ref().is_some_and(|it| it.load(Ordering::Relaxed)))
}

/// Returns whether the thread plans, which is not to hold large values.
pub(crate) fn is_planning() -> bool {
    CURRENT.with_borrow(Option::is_some)
}

/// Ends what nobody waits for.
pub(crate) fn check() -> Result<(), SqlError> {
    match is_given_up() {
        true => Err(SqlError::new(SqlState::CANCELLED, "canceling statement: nobody waits for it")),
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
