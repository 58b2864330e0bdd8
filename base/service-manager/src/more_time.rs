//! Requests for more time from the service manager during long operations (`EXTEND_TIMEOUT_USEC=`).

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::notify::{alive, extend_timeout, watchdog_time};

/// Time requested at once, and the interval of requests.
const MORE_TIME: Duration = Duration::from_secs(30);
const MORE_TIME_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum time without progress. After it no more time is requested.
const STALL_TIME_MAX: Duration = Duration::from_secs(300);

/// Part of one core, as a divisor, that a process exceeds while it works. The timers of one that
/// waits take less.
const WORKING_PART: u32 = 1000;

/// Requests more time from the service manager periodically, until it is dropped or the operation
/// stops making progress.
#[derive(Debug)]
pub struct MoreTime {
    progressed: Arc<Mutex<Instant>>,
    asking: Option<(Sender<()>, JoinHandle<()>)>,
}

impl MoreTime {
    /// Sends the first request before it returns. Also sends watchdog keep-alive messages. The
    /// caller reports progress.
    pub fn ask() -> Self {
        Self::ask_often(|| false)
    }

    /// The same for an operation that makes progress while this process uses processor time.
    pub fn ask_while_working() -> Self {
        let mut work = Work { looked: Instant::now(), used: processor_time() };
        Self::ask_often(move || work.goes_on(Instant::now(), processor_time()))
    }

    fn ask_often(progresses: impl FnMut() -> bool + Send + 'static) -> Self {
        let often = watchdog_time().map_or(MORE_TIME_INTERVAL, |time_max| time_max / 2);
        let times = (often.min(MORE_TIME_INTERVAL), STALL_TIME_MAX);
        Self::ask_every(times, progresses, || {
            extend_timeout(MORE_TIME);
            if watchdog_time().is_some() {
                alive();
            }
        })
    }

    fn ask_every(
        (interval, stall_max): (Duration, Duration),
        mut progresses: impl FnMut() -> bool + Send + 'static,
        ask: impl Fn() + Send + 'static,
    ) -> Self {
        ask();
        let progressed = Arc::new(Mutex::new(Instant::now()));
        let watched = Arc::clone(&progressed);
        let (stop, stopped) = mpsc::channel();
        let work = move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let mut progressed = watched.lock().expect(NO_PANIC);
                if progresses() {
                    *progressed = Instant::now();
                }
                if progressed.elapsed() < stall_max {
                    ask();
                }
            }
        };
        let started = std::thread::Builder::new().name("more-time".to_owned()).spawn(work);
        let started = started.inspect_err(|error| {
            tracing::warn!(%error,
                "cannot start the thread that extends the timeout (EXTEND_TIMEOUT_USEC); the \
                 service manager may end this process during a long start or stop");
        });
        Self { progressed, asking: started.ok().map(|thread| (stop, thread)) }
    }

    /// Records progress of the operation.
    pub fn progress(&self) {
        *self.progressed.lock().expect(NO_PANIC) = Instant::now();
    }
}

impl Drop for MoreTime {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.asking.take() {
            drop(stop);
            // A panic of the thread was reported there, and the operation has ended.
            let _ended = thread.join();
        }
    }
}

/// Processor time that this process had used at some time.
#[derive(Debug)]
struct Work {
    looked: Instant,
    used: Duration,
}

impl Work {
    /// Returns whether the process has worked since the last call.
    fn goes_on(&mut self, now: Instant, used: Duration) -> bool {
        let elapsed = now.saturating_duration_since(self.looked);
        let more = used.saturating_sub(self.used);
        *self = Self { looked: now, used };
        more * WORKING_PART >= elapsed
    }
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

const NO_PANIC: &str = "no thread panics with this lock";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_time_is_asked_for_again_and_again_while_there_is_progress() {
        let (told, heard) = mpsc::channel();
        let ask = move || told.send(()).expect("the test listens");
        let patience = Duration::from_secs(60);
        let times = (Duration::from_millis(1), patience);
        let more_time = MoreTime::ask_every(times, || false, ask);
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
        let more_time = MoreTime::ask_every((interval, Duration::ZERO), || false, ask);
        more_time.progress();
        assert_eq!(heard.recv(), Ok(()));
        assert!(heard.recv_timeout(interval * 20).is_err(), "it was asked for again");
    }

    #[test]
    fn a_process_works_while_it_uses_more_processor_time_than_its_timers() {
        let begun = Instant::now();
        let mut work = Work { looked: begun, used: Duration::from_secs(5) };
        let mut goes_on = |seconds, used_ms| {
            work.goes_on(begun + Duration::from_secs(seconds), Duration::from_millis(used_ms))
        };
        assert!(goes_on(10, 5_100));
        assert!(!goes_on(20, 5_101), "what was used before does not count");
        assert!(!goes_on(1000, 5_110), "timers");
        assert!(goes_on(1001, 5_111), "a slow disk");
    }

    #[test]
    fn a_process_that_computes_uses_processor_time() {
        let before = processor_time();
        while processor_time() == before {
            std::hint::black_box(before);
        }
        assert!(processor_time() > before);
    }
}
