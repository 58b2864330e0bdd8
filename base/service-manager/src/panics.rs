//! Termination of a program when a thread panics, and exempt work: it changes no shared state, and
//! is undone when it is dropped.

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{self, AssertUnwindSafe};
use std::pin::pin;
use std::process;
use std::task::Poll;

/// Payload of a panic.
pub type Panic = Box<dyn Any + Send>;

thread_local! {
    /// True if a panic ends only the work of this thread.
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Makes a panic end the process after it was reported, unless the panicking work is contained.
/// Released programs and those under test behave the same.
pub fn die_of_panics() {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        tell(panic);
        // A thread whose thread-locals are already destroyed contains nothing.
        if !IS_CONTAINED.try_with(Cell::get).unwrap_or(false) {
            process::abort();
        }
    }));
}

/// Setting of the thread's containment, restored when this is dropped.
struct Set {
    before: bool,
    /// Not `Send`, because the setting belongs to the thread.
    _thread: PhantomData<*const ()>,
}

impl Set {
    fn new(is_contained: bool) -> Self {
        Self { before: IS_CONTAINED.replace(is_contained), _thread: PhantomData }
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        IS_CONTAINED.set(self.before);
    }
}

/// Does work whose panic is returned as an error.
///
/// # Errors
/// The work panicked.
pub fn contain<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    let _set = Set::new(true);
    panic::catch_unwind(AssertUnwindSafe(work))
}

/// Runs a future whose panic is returned as an error. It is dropped after a panic.
///
/// # Errors
/// The work panicked.
pub async fn contain_future<T>(work: impl Future<Output = T>) -> Result<T, Panic> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| match contain(|| work.as_mut().poll(context)) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

/// Runs a part of contained work that changes shared state, so that a panic in it ends the process.
pub async fn do_or_die<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        let _set = Set::new(false);
        work.as_mut().poll(context)
    })
    .await
}

/// Message of a panic.
pub fn text_of(panic: &Panic) -> &str {
    let texts = [panic.downcast_ref::<&str>().copied(), panic.downcast_ref().map(String::as_str)];
    texts.into_iter().flatten().next().unwrap_or("a panic without a text")
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn panics_are_contained_for_as_long_as_the_work_lasts() {
        assert!(!IS_CONTAINED.get());
        let number = 7;
        let panic = contain(|| assert_eq!(number, 8, "no eight")).expect_err("it panics");
        assert!(text_of(&panic).contains("no eight"), "{}", text_of(&panic));
        assert!(!IS_CONTAINED.get());
        let work = contain_future(async {
            let during = do_or_die(async { IS_CONTAINED.get() }).await;
            (IS_CONTAINED.get(), during)
        });
        let polled = pin!(work).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Ok((true, false)))));
        assert!(!IS_CONTAINED.get());
    }
}
