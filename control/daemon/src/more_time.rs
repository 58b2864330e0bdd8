//! Requests for more time from the service manager during long operations (`EXTEND_TIMEOUT_USEC=`).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use service_manager::{alive, extend_timeout, watchdog_time};

use crate::ticker::Ticker;

/// Time requested at once, and the interval of requests.
const MORE_TIME: Duration = Duration::from_secs(30);
const MORE_TIME_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum time without progress. After it no more time is requested.
const STALL_TIME_MAX: Duration = Duration::from_secs(300);

/// Requests more time from the service manager periodically, until it is dropped or the operation
/// stops making progress.
pub(crate) struct MoreTime {
    progressed: Arc<Mutex<Instant>>,
    _asking: Option<Ticker>,
}

impl MoreTime {
    /// Sends the first request before it returns. Also sends watchdog keep-alive messages.
    pub(crate) fn ask() -> Self {
        let often = watchdog_time().map_or(MORE_TIME_INTERVAL, |time_max| time_max / 2);
        Self::ask_every(often.min(MORE_TIME_INTERVAL), STALL_TIME_MAX, || {
            extend_timeout(MORE_TIME);
            if watchdog_time().is_some() {
                alive();
            }
        })
    }

    fn ask_every(interval: Duration, stall_max: Duration, ask: impl Fn() + Send + 'static) -> Self {
        ask();
        let progressed = Arc::new(Mutex::new(Instant::now()));
        let watched = Arc::clone(&progressed);
        let turn = move || {
            if watched.lock().expect(NO_PANIC).elapsed() < stall_max {
                ask();
            }
            interval
        };
        let started = Ticker::start("more-time", interval, turn).inspect_err(|error| {
            tracing::warn!(%error,
                "cannot start the thread that extends the stop timeout (EXTEND_TIMEOUT_USEC); \
                 the service manager may kill the daemon while it saves an image");
        });
        Self { progressed, _asking: started.ok() }
    }

    /// Records progress of the operation.
    pub(crate) fn progress(&self) {
        *self.progressed.lock().expect(NO_PANIC) = Instant::now();
    }
}

const NO_PANIC: &str = "no thread panics with this lock";

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn more_time_is_asked_for_again_and_again_while_there_is_progress() {
        let (told, heard) = mpsc::channel();
        let ask = move || told.send(()).expect("the test listens");
        let patience = Duration::from_secs(60);
        let more_time = MoreTime::ask_every(Duration::from_millis(1), patience, ask);
        assert_eq!(heard.try_recv(), Ok(()), "the first time is before anything else");
        (0..3).for_each(|_| heard.recv_timeout(patience).expect("it is asked for again"));
        drop(more_time);
        assert!(heard.iter().count() < usize::MAX, "it ends when it is dropped");
    }

    #[test]
    fn no_more_time_is_asked_for_what_hangs() {
        let (told, heard) = mpsc::channel();
        let ask = move || told.send(()).expect("the test listens");
        let interval = Duration::from_millis(1);
        let more_time = MoreTime::ask_every(interval, Duration::ZERO, ask);
        more_time.progress();
        assert_eq!(heard.recv(), Ok(()));
        assert!(heard.recv_timeout(interval * 20).is_err(), "it was asked for again");
    }
}
