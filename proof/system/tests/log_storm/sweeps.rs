//! Readers of topics from which the broker removes records: each pass reads from the first
//! remaining record to the last.
//!
//! Such a topic has a single producer, so a record's offset is its number, and the records that may
//! be removed follow from the numbers alone.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kafka_client::{Client, FetchedPartition, Isolation, OffsetAt, Position, ResponseError};

use crate::entry::{Entry, check};
use crate::producers::Cast;
use crate::stage::{Act, BRIEF_BYTES, KEYED, PARTITION_COUNT, Patience, Stage, add};
use crate::verifiers::fetcher;

/// Upper bound of the bytes per record in an uncompressed batch, besides keys, values and headers.
const RECORD_OVERHEAD_BYTES: u64 = 100;

pub(crate) struct Sweeper {
    stage: Arc<Stage>,
    cast: Cast,
    topic: &'static str,
    /// Identification of the topic's producer in its records.
    producer: u32,
    /// First offsets of the last pass.
    starts: Vec<i64>,
}

/// Result of a pass over one partition.
struct Found {
    start: i64,
    next: i64,
    numbers: BTreeSet<u64>,
}

impl Sweeper {
    pub(crate) fn new(stage: Arc<Stage>, cast: Cast, topic: &'static str, producer: u32) -> Self {
        let starts = (0..PARTITION_COUNT).map(|_| 0).collect();
        Self { stage, cast, topic, producer, starts }
    }

    /// Reads until everything is produced and read, and some records were removed from each
    /// partition.
    pub(crate) async fn run(mut self) -> Result<()> {
        let client = self.stage.client(&self.cast.name);
        loop {
            let is_last = self.stage.act() == Act::Verifying;
            if let Some(removed) = self.pass(&client).await?
                && is_last
                && removed.iter().all(|it| *it > 0)
            {
                add(&self.stage.counts.removed, removed.into_iter().sum());
                return Ok(());
            }
            self.stage.step(&self.cast.name).await;
        }
    }

    /// Reads all existing records. Returns the number of removed records by partition, or `None` if
    /// some were removed before they were read.
    async fn pass(&mut self, client: &Arc<Client>) -> Result<Option<Vec<usize>>> {
        let acknowledged: Vec<_> = (0..PARTITION_COUNT).map(|it| self.counts(it).0).collect();
        let starts = offsets(client, self.topic, OffsetAt::Earliest).await?;
        let ends = offsets(client, self.topic, OffsetAt::Latest).await?;
        let mut found = Vec::new();
        for (partition, start) in (0..).zip(&starts) {
            let before = std::mem::replace(&mut self.starts[found.len()], *start);
            ensure!(before <= *start, "{}/{partition} began at {before}, now {start}", self.topic);
            found.push(Found { start: *start, next: *start, numbers: BTreeSet::new() });
        }
        let mut fetcher = fetcher(client);
        let mut patience = Patience::new("cannot sweep");
        while found.iter().zip(&ends).any(|(it, end)| it.next < *end) {
            let at = (0..).zip(&found).map(|(partition, it)| Position {
                topic: self.topic.to_owned(),
                partition,
                offset: it.next,
            });
            let fetched = fetcher.fetch(&at.collect::<Vec<_>>()).await.and_then(|fetched| {
                fetched.iter().try_for_each(FetchedPartition::check)?;
                Ok(fetched)
            });
            match fetched {
                Ok(fetched) => {
                    fetched.iter().try_for_each(|it| self.take(it, &mut found))?;
                    self.stage.step(&self.cast.name).await;
                }
                Err(error) if error.refusal() == Some(ResponseError::OffsetOutOfRange) => {
                    ensure!(
                        self.topic != KEYED,
                        "{error:#} of a topic that keeps its first offset"
                    );
                    return Ok(None);
                }
                Err(error) => patience.after(error).await?,
            }
        }
        let mut removed = Vec::new();
        for ((partition, found), acknowledged) in (0..).zip(&found).zip(acknowledged) {
            let judged = self.judge(partition, found, acknowledged);
            removed.push(judged.with_context(|| format!("{}/{partition}", self.topic))?);
        }
        Ok(Some(removed))
    }

    fn counts(&self, partition: i32) -> (u64, u64) {
        self.stage.books.counts(&(self.topic.to_owned(), partition), self.producer)
    }

    fn entry(&self, number: u64) -> Entry {
        Entry { producer: self.producer, transaction: 0, number }
    }

    fn take(&self, fetched: &FetchedPartition, found: &mut [Found]) -> Result<()> {
        let place = || format!("{}/{}", fetched.topic, fetched.partition);
        let found = &mut found[usize::try_from(fetched.partition)?];
        for record in &fetched.records {
            ensure!(record.offset >= found.next, "{}: {} goes back", place(), record.offset);
            let number = u64::try_from(record.offset)?;
            let entry = self.entry(number);
            let sent = match self.topic {
                KEYED => entry.record_or_tombstone(),
                _ => entry.record(),
            };
            check(record, &sent).with_context(|| format!("{}: offset {number}", place()))?;
            ensure!(found.numbers.insert(number), "{}: {number} is there twice", place());
            found.next = record.offset + 1;
        }
        found.next = found.next.max(fetched.next_offset);
        Ok(())
    }

    /// Checks that only records that may be removed are missing.
    fn judge(&self, partition: i32, found: &Found, acknowledged: u64) -> Result<usize> {
        let (_, attempted) = self.counts(partition);
        let next = u64::try_from(found.next)?;
        let told = format!("{acknowledged} were acknowledged and {attempted} sent");
        ensure!((acknowledged..=attempted).contains(&next), "{next} are there, {told}");
        let start = u64::try_from(found.start)?;
        let is_there = |number: &u64| found.numbers.contains(number);
        if self.topic == KEYED {
            ensure!(start == 0, "it begins at {start}");
            let key = |number| self.entry(number).key();
            let last: HashMap<_, _> = (0..attempted).map(|it| (key(it), it)).collect();
            let lost = (0..next).filter(|it| !is_there(it)).find(|it| last[&key(*it)] == *it);
            ensure!(lost.is_none(), "the last record of a key is gone: {lost:?}");
        } else {
            let lost = (start..next).find(|it| !is_there(it));
            ensure!(lost.is_none(), "a record in the middle is gone: {lost:?}");
            let left: u64 = (start..next).map(|it| bytes_at_most(self.entry(it))).sum();
            ensure!(start == 0 || left >= BRIEF_BYTES, "of {start}.. {left} bytes are left");
        }
        Ok(usize::try_from(next)? - found.numbers.len())
    }
}

/// Returns an upper bound of a record's size in an uncompressed batch.
fn bytes_at_most(entry: Entry) -> u64 {
    let record = entry.record();
    let length = |bytes: Option<usize>| bytes.unwrap_or_default() as u64;
    let headers = record.headers.iter();
    let headers: u64 =
        headers.map(|it| it.name.len() as u64 + length(it.value.as_ref().map(|it| it.len()))).sum();
    let key = length(record.key.map(|it| it.len()));
    RECORD_OVERHEAD_BYTES + key + length(record.value.map(|it| it.len())) + headers
}

async fn offsets(client: &Client, topic: &str, at: OffsetAt) -> Result<Vec<i64>> {
    let found = client.topic_offsets(topic, at, Isolation::ReadUncommitted).await?;
    found.iter().map(|it| it.offset.context("a partition has no offset")).collect()
}
