//! What happened lately, kept for people who ask and written to the log.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use api::{Event, EventLevel};

/// How many events are remembered.
const EVENT_COUNT_MAX: usize = 1000;

/// The last events of this run.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    remembered: Mutex<Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    last_id: u64,
    events: VecDeque<Event>,
}

impl EventLog {
    /// Something that is as it should be, and worth knowing.
    pub(crate) fn info(&self, kind: &str, volume: Option<&str>, message: String) {
        tracing::info!(kind, volume, "{message}");
        self.remember(EventLevel::Info, kind, volume, message);
    }

    /// Something that somebody should look at.
    pub(crate) fn warning(&self, kind: &str, volume: Option<&str>, message: String) {
        tracing::warn!(kind, volume, "{message}");
        self.remember(EventLevel::Warning, kind, volume, message);
    }

    /// Data is lost or not as safe as it should be.
    pub(crate) fn error(&self, kind: &str, volume: Option<&str>, message: String) {
        tracing::error!(kind, volume, "{message}");
        self.remember(EventLevel::Error, kind, volume, message);
    }

    /// The remembered events with an id higher than `after`, the oldest first.
    pub(crate) fn after(&self, after: u64) -> Vec<Event> {
        self.lock().events.iter().filter(|event| event.id > after).cloned().collect()
    }

    /// How many there were since the start.
    pub(crate) fn count(&self) -> u64 {
        self.lock().last_id
    }

    fn remember(&self, level: EventLevel, kind: &str, volume: Option<&str>, message: String) {
        let mut remembered = self.lock();
        remembered.last_id += 1;
        let event = Event {
            id: remembered.last_id,
            unix_seconds: unix_seconds(),
            level,
            kind: kind.to_owned(),
            message,
            volume: volume.map(str::to_owned),
        };
        if remembered.events.len() == EVENT_COUNT_MAX {
            remembered.events.pop_front();
        }
        remembered.events.push_back(event);
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().expect("nobody panics with this lock")
    }
}

/// The time of day, for people. Zero on a host whose clock was never set.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_events_are_forgotten_first() {
        let log = EventLog::default();
        for number in 0..=EVENT_COUNT_MAX {
            log.info("tested", None, number.to_string());
        }
        let events = log.after(0);
        assert_eq!(events.len(), EVENT_COUNT_MAX);
        assert_eq!((events[0].id, events[0].message.as_str()), (2, "1"));
        assert_eq!(log.count(), 1001);
    }

    #[test]
    fn only_later_events_are_told() {
        let log = EventLog::default();
        log.info("first", None, String::new());
        log.error("second", Some("db"), String::new());
        let kinds = |after| log.after(after).into_iter().map(|it| it.kind).collect::<Vec<_>>();
        assert_eq!(kinds(0), ["first", "second"]);
        assert_eq!(kinds(1), ["second"]);
        assert!(kinds(2).is_empty());
    }
}
