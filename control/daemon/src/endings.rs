//! Concurrent shutdown of several parts of the daemon with one deadline.
//!
//! A part that hangs does not delay the others. It is abandoned with its thread, which ends with
//! the process.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// Grace period after the deadline for parts that give up at the deadline.
const RETURN_TIME_MAX: Duration = Duration::from_secs(2);

/// Parts that are shutting down.
pub(crate) struct Endings {
    deadline: Instant,
    running: Vec<&'static str>,
    over: (Sender<&'static str>, Receiver<&'static str>),
}

impl Endings {
    /// Starts without parts. All parts together have `time_max` from now on.
    pub(crate) fn within(time_max: Duration) -> Self {
        Self { deadline: Instant::now() + time_max, running: Vec::new(), over: mpsc::channel() }
    }

    /// Runs `end` on its own thread, and passes the remaining time to it.
    pub(crate) fn begin(
        &mut self,
        what: &'static str,
        end: impl FnOnce(Duration) + Send + 'static,
    ) {
        let (over, deadline) = (self.over.0.clone(), self.deadline);
        let work = move || {
            end(deadline.saturating_duration_since(Instant::now()));
            // The waiting thread may have given up.
            let _told = over.send(what);
        };
        match std::thread::Builder::new().name("ending".to_owned()).spawn(work) {
            Ok(_) => self.running.push(what),
            Err(error) => tracing::warn!(%error, "cannot start a thread to stop {what}"),
        }
    }

    /// Waits until all parts have ended or the deadline has passed. Returns those that have not
    /// ended.
    pub(crate) fn wait(mut self) -> Vec<&'static str> {
        let deadline = self.deadline + RETURN_TIME_MAX;
        while !self.running.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(ended) = self.over.1.recv_timeout(left) else { break };
            let place = self.running.iter().position(|what| *what == ended);
            place.map(|place| self.running.remove(place));
        }
        self.running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_hangs_holds_up_no_other() {
        let (_open, never) = mpsc::channel::<()>();
        let (told, heard) = mpsc::channel();
        let mut endings = Endings::within(Duration::ZERO);
        endings.begin("the one that hangs", move |_| {
            let _opened = never.recv();
        });
        endings.begin("the other", move |_| told.send(()).expect("it is waited for"));
        heard.recv().expect("the other ends beside it");
        assert_eq!(endings.wait(), ["the one that hangs"]);
    }

    #[test]
    fn all_are_waited_for_and_told_the_same_deadline() {
        let (told, heard) = mpsc::channel();
        let mut endings = Endings::within(Duration::from_secs(60));
        for what in ["one", "two", "three"] {
            let told = told.clone();
            endings.begin(what, move |left| told.send(left).expect("it is waited for"));
        }
        assert!(endings.wait().is_empty());
        let lefts: Vec<Duration> = heard.try_iter().collect();
        assert_eq!(lefts.len(), 3);
        assert!(lefts.iter().all(|left| *left <= Duration::from_secs(60)), "{lefts:?}");
    }
}
