//! File that stores events across restarts: one JSON object per line, the oldest first.
//!
//! A dedicated thread writes the file, so a slow disk does not delay threads that report events. An
//! incomplete line, left by a killed daemon, is skipped.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::time::Duration;

use anyhow::Context;
use api::Event;
use state_file::replace_file;

/// Maximum number of events that wait to be written.
const WAITING_COUNT_MAX: usize = 1000;

/// The file is truncated to the newest events when it has this many times the number to keep.
const SURPLUS: usize = 2;

/// Maximum time for writing the last events at the end.
const LAST_WRITE_TIME_MAX: Duration = Duration::from_secs(5);

/// Writer of the event file.
#[derive(Debug)]
pub(crate) struct EventFile {
    sender: SyncSender<Event>,
    /// Disconnected when everything is written; nothing is sent.
    written: Receiver<()>,
}

impl EventFile {
    /// Opens the file and reads its newest events, `kept_count` at most. Later events are appended.
    pub(crate) fn open(path: PathBuf, kept_count: usize) -> anyhow::Result<(Self, Vec<Event>)> {
        let doing = |what| format!("cannot {what} the event file {}", path.display());
        let events = shorten(&path, kept_count).with_context(|| doing("read"))?;
        let file = open_to_append(&path).with_context(|| doing("open"))?;
        let (sender, received) = mpsc::sync_channel(WAITING_COUNT_MAX);
        let (alive, written) = mpsc::channel();
        let mut writer = Writer { path, file, count: events.len(), kept_count };
        let work = move || {
            writer.write_all(&received);
            drop(alive);
        };
        std::thread::Builder::new()
            .name("events".to_owned())
            .spawn(work)
            .context("cannot start the event-file thread")?;
        Ok((Self { sender, written }, events))
    }

    /// Queues an event to be written. Does not block.
    pub(crate) fn append(&self, event: Event) {
        if let Err(TrySendError::Full(event)) = self.sender.try_send(event) {
            let (id, kind) = (event.id, event.kind);
            tracing::warn!(id, kind, "cannot write the event file fast enough; dropping an event");
        }
    }

    /// Waits until all events are written, for a bounded time.
    pub(crate) fn close(self) {
        let Self { sender, written } = self;
        drop(sender);
        if written.recv_timeout(LAST_WRITE_TIME_MAX) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("event file: timed out writing the last events; they are lost");
        }
    }
}

/// State of the writing thread.
struct Writer {
    path: PathBuf,
    file: File,
    /// Number of lines in the file.
    count: usize,
    kept_count: usize,
}

impl Writer {
    fn write_all(&mut self, received: &Receiver<Event>) {
        while let Ok(first) = received.recv() {
            let mut lines = Vec::new();
            for event in std::iter::once(first).chain(received.try_iter()) {
                serde_json::to_writer(&mut lines, &event).expect("an event is plain data");
                lines.push(b'\n');
                self.count += 1;
            }
            if let Err(error) = self.write(&lines) {
                let path = self.path.display();
                tracing::warn!(%error, %path, "cannot write the event file");
            }
        }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file.write_all(lines)?;
        self.file.sync_data()?;
        if self.count > self.kept_count * SURPLUS {
            self.count = shorten(&self.path, self.kept_count)?.len();
            self.file = open_to_append(&self.path)?;
        }
        Ok(())
    }
}

fn open_to_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Removes old events and invalid lines from the file. Returns the remaining events.
fn shorten(path: &Path, kept_count: usize) -> io::Result<Vec<Event>> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        result => result?,
    };
    let is_whole = text.is_empty() || text.ends_with(b"\n");
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(|it| !it.is_empty()).collect();
    let parse = |line: &&[u8]| serde_json::from_slice::<Event>(line).ok();
    let mut events: Vec<Event> = lines.iter().filter_map(parse).collect();
    let has_other = events.len() < lines.len();
    events.drain(..events.len().saturating_sub(kept_count));
    if has_other || !is_whole || events.len() < lines.len() {
        let mut kept = Vec::new();
        for event in &events {
            serde_json::to_writer(&mut kept, event)?;
            kept.push(b'\n');
        }
        replace_file(path, &kept)?;
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use api::EventLevel;

    use super::*;

    fn event(id: u64) -> Event {
        let (kind, message) = ("tested".to_owned(), "a line\nand another".to_owned());
        Event { id, unix_seconds: 7, level: EventLevel::Info, kind, message, volume: None }
    }

    fn ids(events: &[Event]) -> Vec<u64> {
        events.iter().map(|event| event.id).collect()
    }

    #[test]
    fn events_come_back_and_the_file_stays_short() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("events.jsonl");
        let (file, before) = EventFile::open(path.clone(), 10).expect("an empty file");
        assert!(before.is_empty());
        (1..=100).for_each(|id| file.append(event(id)));
        file.close();
        let line_count = std::fs::read_to_string(&path).expect("text").lines().count();
        assert!(line_count <= 10 * SURPLUS + WAITING_COUNT_MAX, "{line_count} lines");
        let (file, before) = EventFile::open(path.clone(), 10).expect("the file");
        assert_eq!(ids(&before), (91..=100).collect::<Vec<_>>());
        assert_eq!(before[0], event(91));
        file.close();
        assert_eq!(std::fs::read_to_string(&path).expect("text").lines().count(), 10);
    }

    #[test]
    fn what_is_no_event_is_passed_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("events.jsonl");
        let (file, _) = EventFile::open(path.clone(), 10).expect("an empty file");
        file.append(event(1));
        file.close();
        let whole = std::fs::read_to_string(&path).expect("text");
        let cut = format!("no event\n{whole}{}", &whole[..whole.len() / 2]);
        std::fs::write(&path, cut).expect("it is written");
        let (file, before) = EventFile::open(path.clone(), 10).expect("the file");
        assert_eq!(ids(&before), [1]);
        file.append(event(2));
        file.close();
        let (_file, before) = EventFile::open(path, 10).expect("the file");
        assert_eq!(ids(&before), [1, 2]);
    }
}
