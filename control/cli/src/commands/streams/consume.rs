//! Reading and printing the records of a topic.
//!
//! Without a group, it reads from a position to the last record that existed at the start, or
//! indefinitely. As a member of a group it reads the assigned partitions, and commits offsets after
//! printing (at-least-once): a record may be printed again after a failure, but is never skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use kafka_client::{
    Client, ClientError, CommittedOffset, Extent, FetchLimits, FetchedPartition, Fetcher,
    Isolation, Membership, MembershipSettings, Position, Record, ResponseError,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::connect::{NOTICE_AFTER, tell_wait};
use super::json::JsonRecord;
use super::offsets::at_present;
use crate::arguments::streams::{Consume, OffsetSpec};
use crate::failure::Failure;
use crate::output::{Form, Report, is_still_read, tell};
use crate::visible;

/// Maximum duration of consecutive failures.
const FAILING_TIME_MAX: Duration = Duration::from_secs(30);

/// Pause between attempts after a failure.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn run(
    client: Arc<Client>,
    consume: Consume,
    form: Form,
) -> Result<Report, Failure> {
    let isolation = match consume.committed {
        true => Isolation::ReadCommitted,
        false => Isolation::ReadUncommitted,
    };
    let fetcher = Fetcher::new(Arc::clone(&client), FetchLimits::default(), isolation);
    let printer = Printer {
        out: BufWriter::new(io::stdout().lock()),
        form,
        is_terminal: io::stdout().is_terminal(),
        key_separator: consume.key_separator.clone(),
        left: consume.count.unwrap_or(u64::MAX),
    };
    let mut reading = Reading {
        client: Arc::clone(&client),
        consume,
        isolation,
        fetcher,
        printer,
        positions: BTreeMap::new(),
        failing_since: None,
        is_failure_told: false,
    };
    let mut member = None;
    let read = tokio::select! {
        read = reading.join_and_read(&mut member) => read,
        // Ctrl-C and a stop by a service manager are a normal end.
        () = end_wanted() => Ok(()),
    };
    if let Some(member) = member {
        let ending = async {
            // The first error is reported. Without one, these must succeed.
            let commit = reading.commit(&member).await.map_err(Failure::from);
            let left = member.leave().await.map_err(Failure::from);
            read.and(commit).and(left)
        };
        tokio::select! {
            ended = ending => ended?,
            // A broker that does not answer delays the end for a minute.
            () = end_wanted() => {
                let what = "interrupted before offsets were committed and the group was left";
                return Err(Failure::interrupted(what));
            }
        }
    } else {
        read?;
    }
    Ok(Report::printed())
}

/// Waits for SIGINT or SIGTERM.
async fn end_wanted() {
    let Ok(mut terminated) = signal(SignalKind::terminate()) else {
        // Then SIGTERM ends the process, as without this function.
        let _ = tokio::signal::ctrl_c().await;
        return;
    };
    tokio::select! {
        _ = terminated.recv() => (),
        _ = tokio::signal::ctrl_c() => (),
    }
}

/// Position in a partition, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    next: i64,
    /// `None`: no end.
    end: Option<i64>,
    /// Offset committed by the group.
    noted: Option<i64>,
}

impl Span {
    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }
}

struct Reading {
    client: Arc<Client>,
    consume: Consume,
    isolation: Isolation,
    fetcher: Fetcher,
    printer: Printer,
    positions: BTreeMap<i32, Span>,
    /// Start of the first of consecutive failed attempts.
    failing_since: Option<Instant>,
    is_failure_told: bool,
}

impl Reading {
    /// Reads to the end. `member` is known before it joins its group, so that it can leave if the
    /// call is cancelled.
    async fn join_and_read(&mut self, member: &mut Option<Membership>) -> Result<(), Failure> {
        *member = self.future_member().await?;
        if let Some(member) = member {
            member.rejoin().await?;
        }
        self.begin(member.as_ref()).await?;
        self.read_all(member).await
    }

    async fn future_member(&self) -> Result<Option<Membership>, Failure> {
        let Some(group) = &self.consume.group else { return Ok(None) };
        // A group would wait forever for a missing topic, so this is reported as an error.
        self.client.topic(&self.consume.topic).await?;
        let topics = BTreeSet::from([self.consume.topic.clone()]);
        let settings = MembershipSettings::default();
        let client = Arc::clone(&self.client);
        Ok(Some(Membership::outside(client, group, topics, settings).await?))
    }

    /// Determines the start and end of each partition.
    async fn begin(&mut self, member: Option<&Membership>) -> Result<(), Failure> {
        let topic = &self.consume.topic;
        let mut extents = self.client.extents(topic, self.isolation).await?;
        if let Some(missing) = self.consume.partitions.iter().find(|it| !extents.contains_key(it)) {
            let count = extents.len();
            return Err(Failure::not_found(format!(
                "topic {topic:?} has no partition {missing}; it has {count}"
            )));
        }
        let committed = match member {
            Some(member) => {
                let own = member.assignment().get(topic).cloned().unwrap_or_default();
                extents.retain(|partition, _| own.contains(partition));
                member.committed().await?
            }
            None => {
                let wanted = &self.consume.partitions;
                extents.retain(|partition, _| wanted.is_empty() || wanted.contains(partition));
                BTreeMap::new()
            }
        };
        let from = self.consume.from.unwrap_or(OffsetSpec::Earliest);
        let starts = self.client.offsets_of_spec(topic, at_present(from), &extents).await?;
        let span = |(&partition, extent): (&i32, &Extent)| {
            let noted = committed.get(&(topic.clone(), partition)).copied().flatten();
            // The group's committed offset has priority over the start option.
            let start = noted.or_else(|| starts.get(&partition).copied());
            let end = (!self.consume.follow).then_some(extent.latest);
            (partition, Span { next: start.unwrap_or(extent.earliest), end, noted })
        };
        self.positions = extents.iter().map(span).collect();
        Ok(())
    }

    async fn read_all(&mut self, member: &mut Option<Membership>) -> Result<(), Failure> {
        loop {
            if let Some(joined) = member
                && !joined.keep_up().await?
            {
                self.begin(Some(joined)).await?;
            }
            let is_done = self.printer.left == 0;
            let is_over = self.positions.values().all(Span::is_over);
            if is_done || (is_over && !self.consume.follow) {
                return Ok(());
            }
            if self.positions.is_empty() {
                // Other members own all partitions.
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            self.read_once().await?;
            // Offsets that cannot be committed now are committed with the next records.
            let begun = Instant::now();
            if let Some(member) = member
                && let Err(error) = self.commit(member).await
            {
                self.endure(begun, error).await?;
            }
        }
    }

    async fn read_once(&mut self) -> Result<(), Failure> {
        let position = |(&partition, span): (&i32, &Span)| Position {
            topic: self.consume.topic.clone(),
            partition,
            offset: span.next,
        };
        let open = self.positions.iter().filter(|(_, span)| !span.is_over());
        let positions: Vec<_> = open.map(position).collect();
        let begun = Instant::now();
        let fetched = match self.fetcher.fetch(&positions).await {
            Ok(fetched) => fetched,
            Err(error) => return self.endure(begun, error).await,
        };
        let mut failed = None;
        for partition in fetched {
            if partition.error == Some(ResponseError::OffsetOutOfRange) {
                self.skip_what_is_gone(partition.partition).await?;
            } else if let Err(error) = partition.check() {
                failed = Some(error);
            } else {
                self.print(&partition)?;
            }
        }
        self.printer.flush()?;
        match failed {
            Some(error) => self.endure(begun, error).await,
            None => {
                (self.failing_since, self.is_failure_told) = (None, false);
                Ok(())
            }
        }
    }

    /// Pauses before a retry of an attempt that began at `begun`, if the error is retriable.
    async fn endure(&mut self, begun: Instant, error: ClientError) -> Result<(), Failure> {
        let since = *self.failing_since.get_or_insert(begun);
        if !error.is_retriable() || since.elapsed() >= FAILING_TIME_MAX {
            return Err(error.into());
        }
        if since.elapsed() >= NOTICE_AFTER && !self.is_failure_told {
            self.is_failure_told = true;
            tell_wait(&error);
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }

    /// Continues at the first retained record, if retention has deleted the next one.
    async fn skip_what_is_gone(&mut self, partition: i32) -> Result<(), Failure> {
        let extents = self.client.extents(&self.consume.topic, self.isolation).await?;
        let (Some(extent), Some(span)) =
            (extents.get(&partition), self.positions.get_mut(&partition))
        else {
            return Ok(());
        };
        let (from, to) = (span.next, extent.earliest);
        span.next = to;
        let topic = &self.consume.topic;
        tell(format_args!(
            "offset {from} of topic {topic:?}, partition {partition}, was deleted; continuing at \
             {to}"
        ));
        Ok(())
    }

    fn print(&mut self, fetched: &FetchedPartition) -> Result<(), Failure> {
        let Some(span) = self.positions.get_mut(&fetched.partition) else { return Ok(()) };
        for record in &fetched.records {
            if span.end.is_some_and(|end| record.offset >= end) {
                span.next = record.offset;
                return Ok(());
            }
            if !self.printer.print(&fetched.topic, fetched.partition, record)? {
                return Ok(());
            }
            span.next = record.offset + 1;
        }
        span.next = span.next.max(fetched.next_offset);
        Ok(())
    }

    /// Commits the offsets of printed records.
    async fn commit(&mut self, member: &Membership) -> Result<(), ClientError> {
        let offset = |(&partition, span): (&i32, &Span)| CommittedOffset {
            topic: self.consume.topic.clone(),
            partition,
            offset: span.next,
        };
        let moved = self.positions.iter().filter(|(_, span)| span.noted != Some(span.next));
        let offsets: Vec<_> = moved.map(offset).collect();
        match member.commit(&offsets).await {
            Ok(()) => {
                self.positions.values_mut().for_each(|span| span.noted = Some(span.next));
                Ok(())
            }
            // The next heartbeat rejoins the group. Uncommitted records are read again.
            Err(error) if error.refusal() == Some(ResponseError::RebalanceInProgress) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Printer to standard output, until that is closed.
struct Printer {
    out: BufWriter<io::StdoutLock<'static>>,
    form: Form,
    /// True if the output is a terminal, so control characters are escaped.
    is_terminal: bool,
    key_separator: Option<String>,
    /// Remaining number of records to print.
    left: u64,
}

impl Printer {
    /// Prints a record. Returns whether it was still requested.
    fn print(&mut self, topic: &str, partition: i32, record: &Record) -> Result<bool, Failure> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let written = match self.form {
            Form::Json => {
                let json = JsonRecord::of(topic, partition, record);
                let line = serde_json::to_string(&json).expect("records are plain data");
                self.out.write_all(visible::in_json(&line).as_bytes())
            }
            Form::Text => self.print_text(record),
        };
        let written = written.and_then(|()| self.out.write_all(b"\n"));
        self.judge(written)?;
        Ok(true)
    }

    fn print_text(&mut self, record: &Record) -> io::Result<()> {
        let Self { out, is_terminal, .. } = self;
        // Unchanged; for a terminal, control characters are escaped.
        let mut print = |bytes: &[u8]| match is_terminal {
            false => out.write_all(bytes),
            true => out.write_all(visible::in_lines(&String::from_utf8_lossy(bytes)).as_bytes()),
        };
        if let Some(separator) = &self.key_separator {
            print(record.key.as_deref().unwrap_or_default())?;
            print(separator.as_bytes())?;
        }
        print(record.value.as_deref().unwrap_or_default())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let flushed = self.out.flush();
        self.judge(flushed)
    }

    /// Stops printing if the output was closed.
    fn judge(&mut self, written: io::Result<()>) -> Result<(), Failure> {
        if !is_still_read(written, "records")? {
            self.left = 0;
        }
        Ok(())
    }
}
