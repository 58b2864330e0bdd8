//! A thread that calls a function periodically.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// The running thread. Dropping it ends the thread after the current call.
#[derive(Debug)]
pub(crate) struct Ticker {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Ticker {
    /// Starts the thread. It waits for `interval` before the first call, and then for the time that
    /// each call returns.
    pub(crate) fn start(
        name: &str,
        mut interval: Duration,
        mut turn: impl FnMut() -> Duration + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let work = move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                interval = turn();
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Self { running: Some((stop, thread)) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            // A panic of the thread was reported there, and the owner is being dropped.
            let _ended = thread.join();
        }
    }
}
