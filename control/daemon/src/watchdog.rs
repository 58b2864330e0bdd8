//! Tells the service manager that the daemon is alive, for as long as it is (`WatchdogSec=`).
//!
//! Alive is who gets on with the work that nothing holds up for long: the upkeep of the pool and
//! the REST interface. A disk that hangs stops neither.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::notify;

/// How often it is looked, within the time that the service manager waits.
const LOOKS: u32 = 4;

/// Counts what one part of the daemon does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulse {
    beats: Arc<AtomicU64>,
}

impl Pulse {
    // Relaxed: that it moves is all that is asked.
    pub(crate) fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }
}

/// The running thread. Dropped, it ends.
pub(crate) struct Watchdog {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Watchdog {
    /// Watches the parts, if the service manager wants to know.
    pub(crate) fn start(parts: Vec<(&'static str, Pulse)>) -> Self {
        let Some(time_max) = notify::watchdog_time() else { return Self { running: None } };
        let (stop, stopped) = mpsc::channel();
        let mut watch = Watch::new(parts);
        let work = move || watch.look_until(&stopped, time_max / LOOKS, notify::alive);
        match std::thread::Builder::new().name("watchdog".to_owned()).spawn(work) {
            Ok(thread) => Self { running: Some((stop, thread)) },
            Err(error) => {
                tracing::error!(%error, "no thread to tell the service manager of being alive");
                Self { running: None }
            }
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            // A panic of the thread was reported there, and the owner is ending anyway.
            let _ended = thread.join();
        }
    }
}

struct Watch {
    /// With the count of its beats when all were last alive.
    parts: Vec<(&'static str, Pulse, u64)>,
}

impl Watch {
    fn new(parts: Vec<(&'static str, Pulse)>) -> Self {
        Self { parts: parts.into_iter().map(|(name, pulse)| (name, pulse, 0)).collect() }
    }

    fn look_until(&mut self, stopped: &Receiver<()>, interval: Duration, tell: impl Fn()) {
        while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
            match self.still() {
                None => {
                    self.parts.iter_mut().for_each(|(_, pulse, before)| *before = pulse.count());
                    tell();
                }
                Some(name) => tracing::debug!("{name} has done nothing since it was last looked"),
            }
        }
    }

    /// A part that did nothing since all were last alive.
    fn still(&self) -> Option<&'static str> {
        let still = |(_, pulse, before): &&(&str, Pulse, u64)| pulse.count() == *before;
        self.parts.iter().find(still).map(|(name, ..)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn being_alive_is_told_only_while_every_part_gets_on() {
        let (one, other) = (Pulse::default(), Pulse::default());
        let mut watch = Watch::new(vec![("one", one.clone()), ("other", other.clone())]);
        one.beat();
        assert_eq!(watch.still(), Some("other"));
        let (stop, stopped) = mpsc::channel();
        let (told, heard) = mpsc::channel();
        let watching = std::thread::spawn(move || {
            watch.look_until(&stopped, Duration::from_millis(1), || {
                told.send(()).expect("somebody listens");
            });
        });
        assert!(heard.recv_timeout(Duration::from_millis(50)).is_err(), "one is still");
        other.beat();
        heard.recv().expect("both have done something");
        assert!(heard.recv_timeout(Duration::from_millis(50)).is_err(), "both are still");
        drop(stop);
        watching.join().expect("the watch ends");
    }
}
