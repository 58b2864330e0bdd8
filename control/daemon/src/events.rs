//! Recent events, stored across restarts and written to the log.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use api::{Event, EventLevel};

use crate::event_file::EventFile;

/// Maximum number of events that are kept.
const EVENT_COUNT_MAX: usize = 1000;

/// Number of event ids that are skipped after a daemon that was not stopped cleanly. It may have
/// reported events that were not yet written to the file.
const IDS_PASSED_OVER: u64 = 1000;

/// Kind of the last event of a daemon that was stopped cleanly.
const STOPPED: &str = "daemon_stopped";

/// Recent events of this run and of earlier runs.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    remembered: Mutex<Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    last_id: u64,
    /// Number of events of this run.
    count: u64,
    events: VecDeque<Event>,
    /// `None`: events are not stored.
    file: Option<EventFile>,
}

impl EventLog {
    /// Loads the events in `state_dir`, and logs how the last daemon ended. If the file cannot be
    /// used, the daemon runs without it.
    pub(crate) fn open(state_dir: &Path) -> Self {
        let log = Self::default();
        match EventFile::open(state_dir.join("events.jsonl"), EVENT_COUNT_MAX) {
            Ok((file, events)) => log.go_on(file, events),
            Err(error) => {
                let message = format!("cannot keep events across restarts: {error:#}");
                log.warning("events_not_kept", None, message);
            }
        }
        log
    }

    fn go_on(&self, file: EventFile, events: Vec<Event>) {
        let last = events.iter().max_by_key(|event| event.id).cloned();
        let has_died = last.as_ref().is_some_and(|last| last.kind != STOPPED);
        {
            let mut remembered = self.lock();
            remembered.last_id = last.as_ref().map_or(0, |last| last.id);
            if has_died {
                remembered.last_id += IDS_PASSED_OVER;
            }
            remembered.events = events.into();
            remembered.file = Some(file);
        }
        if has_died {
            let message = "unclean shutdown: the previous daemon was killed or crashed, or the \
                           host went down";
            self.warning("daemon_died", None, message.to_owned());
        }
        let version = env!("CARGO_PKG_VERSION");
        self.info("daemon_started", None, format!("memlaned {version} is starting"));
    }

    /// Records a clean stop of the daemon. Later events are not stored.
    pub(crate) fn stopped(&self) {
        self.info(STOPPED, None, "the daemon was stopped".to_owned());
        let file = self.lock().file.take();
        file.into_iter().for_each(EventFile::close);
    }

    /// Reports an event that needs no action.
    pub(crate) fn info(&self, kind: &str, volume: Option<&str>, message: String) {
        tracing::info!(kind, volume, "{message}");
        self.remember(EventLevel::Info, kind, volume, message);
    }

    /// Reports an event that the operator should investigate.
    pub(crate) fn warning(&self, kind: &str, volume: Option<&str>, message: String) {
        tracing::warn!(kind, volume, "{message}");
        self.remember(EventLevel::Warning, kind, volume, message);
    }

    /// Reports a loss of data, or data less durable than configured.
    pub(crate) fn error(&self, kind: &str, volume: Option<&str>, message: String) {
        tracing::error!(kind, volume, "{message}");
        self.remember(EventLevel::Error, kind, volume, message);
    }

    /// Returns the events with an id higher than `after`, the oldest first.
    pub(crate) fn after(&self, after: u64) -> Vec<Event> {
        self.lock().events.iter().filter(|event| event.id > after).cloned().collect()
    }

    /// Number of events since the start.
    pub(crate) fn count(&self) -> u64 {
        self.lock().count
    }

    fn remember(&self, level: EventLevel, kind: &str, volume: Option<&str>, message: String) {
        let mut remembered = self.lock();
        remembered.last_id += 1;
        remembered.count += 1;
        let event = Event {
            id: remembered.last_id,
            unix_seconds: unix_seconds(),
            level,
            kind: kind.to_owned(),
            message,
            volume: volume.map(str::to_owned),
        };
        // Appended under the lock to keep the order of events in the file. `append` does not block.
        if let Some(file) = &remembered.file {
            file.append(event.clone());
        }
        if remembered.events.len() >= EVENT_COUNT_MAX {
            remembered.events.pop_front();
        }
        remembered.events.push_back(event);
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().expect("no thread panics with this lock")
    }
}

/// Seconds since the Unix epoch, for display. Zero on a host whose clock was never set.
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

    fn kinds(log: &EventLog) -> Vec<String> {
        log.after(0).into_iter().map(|event| event.kind).collect()
    }

    #[test]
    fn events_outlive_a_stop_and_their_ids_grow() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = EventLog::open(dir.path());
        log.error("broken", Some("db"), "a message".to_owned());
        log.stopped();
        let log = EventLog::open(dir.path());
        assert_eq!(kinds(&log), ["daemon_started", "broken", STOPPED, "daemon_started"]);
        let ids: Vec<u64> = log.after(0).iter().map(|event| event.id).collect();
        assert_eq!(ids, [1, 2, 3, 4]);
        assert_eq!(log.count(), 1, "only those of this run are counted");
    }

    #[test]
    fn a_daemon_that_died_is_an_event_of_the_next_start() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = EventLog::open(dir.path());
        let file = log.lock().file.take();
        file.expect("it has a file").close();
        log.info("never_written", None, String::new());
        let last_id = log.after(0).last().expect("an event").id;
        let log = EventLog::open(dir.path());
        assert_eq!(kinds(&log), ["daemon_started", "daemon_died", "daemon_started"]);
        assert!(log.after(last_id).iter().any(|event| event.kind == "daemon_died"));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_told_of() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("events.jsonl")).expect("a directory in the way");
        assert_eq!(kinds(&EventLog::open(dir.path())), ["events_not_kept"]);
    }
}
