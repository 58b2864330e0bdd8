//! Producing lines of standard input to a topic.
//!
//! A thread reads, so that lines are sent while it waits for more. Each batch contains the lines
//! that arrived until the previous one was acknowledged.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};
use std::sync::Arc;
use std::time::SystemTime;

use api::counted;
use bytes::Bytes;
use kafka_client::{Acks, Client, NewRecord, Producer, ProducerSettings, partition_of_key};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::json::JsonRecord;
use crate::arguments::streams::{Input, Produce};
use crate::failure::Failure;
use crate::output::{Form, Report};

/// Maximum length of a line. Brokers refuse much shorter records.
const LINE_BYTES_MAX: usize = 64 << 20;

/// Limits of lines that are read ahead. A longer line is read ahead alone.
const LINES_AHEAD_MAX: usize = 4096;
const BYTES_AHEAD_MAX: usize = 8 << 20;

/// Limits of the lines in a batch. A longer line is a batch of its own.
const BATCH_RECORDS_MAX: usize = 4096;
const BATCH_BYTES_MAX: usize = 512 << 10;

pub(super) async fn run(
    client: Arc<Client>,
    produce: Produce,
    form: Form,
) -> Result<Report, Failure> {
    let settings = ProducerSettings {
        acks: produce.acks,
        compression: produce.compression,
        is_idempotent: produce.acks == Acks::All,
    };
    let producer = Producer::new(client, &produce.topic, settings).await?;
    let input = produce.input.unwrap_or(match form {
        Form::Text => Input::Text,
        Form::Json => Input::Json,
    });
    let mut sender = Sender {
        topic: produce.topic,
        form: LineForm { input, key_separator: produce.key_separator },
        partition: produce.partition,
        producer,
        next_partition: 0,
        sent: BTreeMap::new(),
        line_number: 0,
    };
    let (ahead, mut incoming) = Ahead::begin();
    // The thread ends with standard input or with this process.
    std::thread::spawn(move || read_lines(std::io::stdin().lock(), |line| ahead.put(line)));
    let mut rest = None;
    loop {
        let line = match rest.take() {
            Some(line) => line,
            None => match incoming.recv().await {
                Some(line) => line,
                None => return Ok(sender.report()),
            },
        };
        match sender.send_from(line, &mut incoming).await {
            Ok(left) => rest = left,
            Err(failure) => return Err(sender.interrupted(failure)),
        }
    }
}

/// A line that was read ahead, or the reason why no more lines are read.
type Incoming = Result<Line, String>;

struct Line {
    text: Vec<u8>,
    /// Its share of the bytes that are read ahead.
    _room: OwnedSemaphorePermit,
}

/// Queue of lines that are read ahead, for the thread that reads them.
struct Ahead {
    lines: mpsc::Sender<Incoming>,
    room: Arc<Semaphore>,
    runtime: Handle,
}

impl Ahead {
    /// Creates a queue within a runtime.
    fn begin() -> (Self, mpsc::Receiver<Incoming>) {
        let (lines, incoming) = mpsc::channel(LINES_AHEAD_MAX);
        let room = Arc::new(Semaphore::new(BYTES_AHEAD_MAX));
        (Self { lines, room, runtime: Handle::current() }, incoming)
    }

    /// Queues a line once there is room for it. Blocks. Returns `false` if no more are wanted.
    fn put(&self, line: Result<Vec<u8>, String>) -> bool {
        let line = line.map(|text| {
            let bytes = u32::try_from(text.len().min(BYTES_AHEAD_MAX)).expect("the limit is small");
            let room = Arc::clone(&self.room).acquire_many_owned(bytes);
            let room = self.runtime.block_on(room).expect("nobody closes the semaphore");
            Line { text, _room: room }
        });
        self.lines.blocking_send(line).is_ok()
    }
}

/// Passes each line without its terminator to `take`, until that returns false or after an error.
fn read_lines(mut input: impl BufRead, take: impl Fn(Result<Vec<u8>, String>) -> bool) {
    loop {
        let mut line = Vec::new();
        let bytes_max = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX) + 1;
        let read = input.by_ref().take(bytes_max).read_until(b'\n', &mut line);
        let taken = match read {
            Ok(0) => return,
            Ok(_) if line.len() > LINE_BYTES_MAX => {
                take(Err(format!("a line is longer than {LINE_BYTES_MAX} bytes")));
                return;
            }
            Ok(_) => {
                if line.last() == Some(&b'\n') {
                    line.pop();
                }
                take(Ok(line))
            }
            Err(error) => {
                take(Err(format!("cannot read standard input: {error}")));
                return;
            }
        };
        if !taken {
            return;
        }
    }
}

/// Format of a record in a line.
struct LineForm {
    input: Input,
    key_separator: Option<String>,
}

impl LineForm {
    /// Parses the record, and its partition if the line contains one.
    fn read(&self, line: Vec<u8>, now_ms: i64) -> Result<(NewRecord, Option<i32>), String> {
        if self.input == Input::Json {
            let record = JsonRecord::read(&line)?;
            let partition = record.partition;
            return Ok((record.into_new(now_ms)?, partition));
        }
        let mut value = Bytes::from(line);
        let mut key = None;
        if let Some(separator) = self.key_separator.as_deref().map(str::as_bytes) {
            let at = value.windows(separator.len()).position(|it| it == separator);
            let at = at.ok_or("the line does not contain the key separator")?;
            key = Some(value.split_to(at));
            value = value.slice(separator.len()..);
        }
        let record =
            NewRecord { key, value: Some(value), headers: Vec::new(), timestamp_ms: now_ms };
        Ok((record, None))
    }
}

/// Acknowledged records of a partition.
struct Sent {
    first_offset: i64,
    last_offset: i64,
    record_count: u64,
}

struct Sender {
    topic: String,
    form: LineForm,
    partition: Option<i32>,
    producer: Producer,
    /// Next partition for records without a key (round robin).
    next_partition: usize,
    sent: BTreeMap<i32, Sent>,
    line_number: u64,
}

impl Sender {
    /// Sends `line` and the lines that have arrived meanwhile, up to one batch. Returns the line
    /// that did not fit.
    async fn send_from(
        &mut self,
        line: Incoming,
        incoming: &mut mpsc::Receiver<Incoming>,
    ) -> Result<Option<Incoming>, Failure> {
        let mut batches = BTreeMap::<i32, Vec<NewRecord>>::new();
        let (mut record_count, mut byte_count) = (0, 0);
        let (mut next, mut rest, mut bad_line) = (Some(line), None, None);
        while let Some(line) = next {
            let bytes = line.as_ref().map_or(0, |it| it.text.len());
            if record_count > 0 && byte_count + bytes > BATCH_BYTES_MAX {
                rest = Some(line);
                break;
            }
            match self.record(line) {
                Ok((partition, record)) => {
                    byte_count += bytes;
                    record_count += 1;
                    batches.entry(partition).or_default().push(record);
                }
                // Records before an invalid line are still sent.
                Err(failure) => {
                    bad_line = Some(failure);
                    break;
                }
            }
            let is_full = record_count >= BATCH_RECORDS_MAX;
            next = if is_full { None } else { incoming.try_recv().ok() };
        }
        self.next_partition = self.next_partition.wrapping_add(1);
        if !batches.is_empty() {
            self.send(batches).await?;
        }
        bad_line.map_or(Ok(rest), Err)
    }

    fn record(&mut self, line: Incoming) -> Result<(i32, NewRecord), Failure> {
        let line = line.map_err(Failure::other)?.text;
        self.line_number += 1;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now_ms = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let (record, named) = self.form.read(line, now_ms).map_err(|why| {
            Failure::other(format!("line {} is not a valid record: {why}", self.line_number))
        })?;
        let count = self.producer.partition_count();
        let by_turns = || i32::try_from(self.next_partition % count.max(1)).unwrap_or(0);
        let by_key = |key: &Bytes| partition_of_key(key, count);
        let chosen = || record.key.as_ref().map_or_else(by_turns, by_key);
        Ok((self.partition.or(named).unwrap_or_else(chosen), record))
    }

    async fn send(&mut self, batches: BTreeMap<i32, Vec<NewRecord>>) -> Result<(), Failure> {
        let counts: BTreeMap<i32, usize> =
            batches.iter().map(|(&partition, records)| (partition, records.len())).collect();
        for (partition, offset) in self.producer.send(batches.into_iter().collect()).await? {
            let record_count = counts.get(&partition).copied().unwrap_or(0) as u64;
            let last = i64::try_from(record_count).unwrap_or(1) - 1;
            let last_offset = if offset < 0 { offset } else { offset.saturating_add(last) };
            let new = Sent { first_offset: offset, last_offset, record_count: 0 };
            let sent = self.sent.entry(partition).or_insert(new);
            sent.last_offset = last_offset;
            sent.record_count += record_count;
        }
        Ok(())
    }

    fn record_count(&self) -> u64 {
        self.sent.values().map(|sent| sent.record_count).sum()
    }

    /// Adds the number of records sent before to a failure.
    fn interrupted(&self, failure: Failure) -> Failure {
        match self.record_count() {
            0 => failure,
            count => {
                let before = counted(count, "record");
                let message = format!("{}; appended {before} before it", failure.message);
                Failure { message, ..failure }
            }
        }
    }

    fn report(&self) -> Report {
        let known = |offset: i64| Some(offset).filter(|&offset| offset >= 0);
        let partitions = self.sent.iter().map(|(partition, sent)| {
            json!({
                "partition": partition,
                "records": sent.record_count,
                "first_offset": known(sent.first_offset),
                "last_offset": known(sent.last_offset),
            })
        });
        let count = self.record_count();
        let json = json!({
            "topic": self.topic,
            "records": count,
            "partitions": partitions.collect::<Value>(),
        });
        Report::silent(&json)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn lines_lose_their_ends_and_the_last_needs_none() {
        let lines = RefCell::new(Vec::new());
        read_lines(&b"a\n\nb\r\nc"[..], |line| {
            lines.borrow_mut().push(line.expect("it can be read"));
            true
        });
        assert_eq!(lines.into_inner(), [&b"a"[..], b"", b"b\r", b"c"]);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let lines = RefCell::new(Vec::new());
        read_lines(std::io::BufReader::new(std::io::repeat(b'x')), |line| {
            lines.borrow_mut().push(line.is_ok());
            true
        });
        assert_eq!(lines.into_inner(), [false]);
    }

    #[tokio::test]
    async fn long_lines_are_not_read_ahead_beyond_a_number_of_bytes() {
        const LINE_BYTES: usize = BYTES_AHEAD_MAX / 4;
        let (ahead, mut incoming) = Ahead::begin();
        let room = Arc::clone(&ahead.room);
        let reading = std::thread::spawn(move || {
            (0..12).for_each(|_| assert!(ahead.put(Ok(vec![b'x'; LINE_BYTES]))));
        });
        while room.available_permits() > 0 && !reading.is_finished() {
            std::thread::yield_now();
        }
        assert!(!reading.is_finished() && incoming.len() <= 4, "{} lines", incoming.len());
        let mut count = 0;
        while let Some(line) = incoming.recv().await {
            assert_eq!(line.expect("a line").text.len(), LINE_BYTES);
            count += 1;
        }
        assert_eq!(count, 12);
        reading.join().expect("it only reads");
    }

    #[track_caller]
    fn check(separator: Option<&str>, line: &str, expected: Option<(Option<&str>, &str)>) {
        let key_separator = separator.map(str::to_owned);
        let form = LineForm { input: Input::Text, key_separator };
        let read = form.read(line.as_bytes().to_vec(), 0).ok().map(|(record, _)| record);
        let expected = expected.map(|(key, value)| NewRecord {
            key: key.map(|key| Bytes::copy_from_slice(key.as_bytes())),
            value: Some(Bytes::copy_from_slice(value.as_bytes())),
            ..NewRecord::default()
        });
        assert_eq!(read, expected);
    }

    #[test]
    fn a_line_is_a_value_or_a_key_and_a_value() {
        check(None, "a:b", Some((None, "a:b")));
        check(Some(":"), "a:b:c", Some((Some("a"), "b:c")));
        check(Some("::"), "a::", Some((Some("a"), "")));
        check(Some(":"), "a", None);
        check(None, "", Some((None, "")));
    }
}
