//! Calls with a timeout, because they may never return.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Polling interval of [`until`].
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// Runs `call` with a timeout. If it takes longer than `limit`, returns `TimedOut` and abandons the
/// thread, which may be stuck in the kernel.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (done, result) = mpsc::sync_channel(1);
    thread::Builder::new().name("ublk-control".to_owned()).spawn(move || {
        // After a timeout there is no receiver.
        let _ = done.send(call());
    })?;
    match result.recv_timeout(limit) {
        Ok(result) => result,
        Err(_) => {
            let text = format!("the kernel has not answered within {} s", limit.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        }
    }
}

/// Calls `ask` until it returns a value, or `limit` has elapsed.
pub(crate) fn until<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        match ask() {
            Some(found) => return Some(found),
            None if Instant::now() >= deadline => return None,
            None => thread::sleep(ASK_AGAIN_AFTER),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_never_returns_is_given_up() {
        let (_keep, never) = mpsc::channel::<()>();
        let call = move || {
            let _ = never.recv();
            Ok(())
        };
        let error = within(Duration::from_millis(10), call).expect_err("it does not return");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_call_that_returns_says_what_it_has_to_say() {
        assert_eq!(within(Duration::from_secs(60), || Ok(7)).expect("it succeeds"), 7);
        let failing = || -> io::Result<()> { Err(io::ErrorKind::InvalidInput.into()) };
        let error = within(Duration::from_secs(60), failing).expect_err("it fails");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn asking_ends_with_an_answer_or_with_the_time() {
        let mut asked = 0;
        let third = || {
            asked += 1;
            (asked == 3).then_some(asked)
        };
        assert_eq!(until(Duration::from_secs(60), third), Some(3));
        assert_eq!(until(Duration::ZERO, || None::<()>), None);
    }
}
