//! Keep-alive messages to the service manager (`WatchdogSec=`).
//!
//! The daemon is considered alive while the maintenance of the pool and the REST interface make
//! progress. Neither blocks for long, not even while a disk hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ticker::Ticker;

/// Number of checks within the watchdog's timeout.
const LOOKS: u32 = 4;

/// Heartbeat counter of one part of the daemon.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulse {
    beats: Arc<AtomicU64>,
}

impl Pulse {
    // Relaxed: only the change of the count matters.
    pub(crate) fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }
}

/// The running thread. Dropping it ends the thread.
pub(crate) struct Watchdog {
    _ticker: Option<Ticker>,
}

impl Watchdog {
    /// Monitors the parts, if the service manager has enabled its watchdog.
    pub(crate) fn start(parts: Vec<(&'static str, Pulse)>) -> Self {
        let Some(time_max) = service_manager::watchdog_time() else {
            return Self { _ticker: None };
        };
        let mut watch = Watch::new(parts);
        let interval = time_max / LOOKS;
        let turn = move || {
            watch.look(service_manager::alive);
            interval
        };
        let started = Ticker::start("watchdog", interval, turn).inspect_err(|error| {
            tracing::error!(%error,
                "cannot start the watchdog thread; systemd may restart the daemon");
        });
        Self { _ticker: started.ok() }
    }
}

struct Watch {
    /// Name, heartbeat, and its count at the last check at which all parts were alive.
    parts: Vec<(&'static str, Pulse, u64)>,
}

impl Watch {
    fn new(parts: Vec<(&'static str, Pulse)>) -> Self {
        Self { parts: parts.into_iter().map(|(name, pulse)| (name, pulse, 0)).collect() }
    }

    fn look(&mut self, tell: impl Fn()) {
        match self.still() {
            None => {
                self.parts.iter_mut().for_each(|(_, pulse, before)| *before = pulse.count());
                tell();
            }
            Some(name) => tracing::debug!("{name} made no progress since the last check"),
        }
    }

    /// Returns a part without a heartbeat since all parts were last alive.
    fn still(&self) -> Option<&'static str> {
        let still = |(_, pulse, before): &&(&str, Pulse, u64)| pulse.count() == *before;
        self.parts.iter().find(still).map(|(name, ..)| *name)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn being_alive_is_told_only_while_every_part_gets_on() {
        let (one, other) = (Pulse::default(), Pulse::default());
        let mut watch = Watch::new(vec![("one", one.clone()), ("other", other.clone())]);
        one.beat();
        assert_eq!(watch.still(), Some("other"));
        let told = Cell::new(0);
        let tell = || told.set(told.get() + 1);
        watch.look(tell);
        assert_eq!(told.get(), 0, "one is still");
        other.beat();
        watch.look(tell);
        assert_eq!(told.get(), 1, "both have done something");
        watch.look(tell);
        assert_eq!(told.get(), 1, "both are still");
    }
}
