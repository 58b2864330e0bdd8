//! Readers that compare topics with the books, from the first record to the last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kafka_client::{Client, FetchLimits, FetchedPartition, Fetcher, Isolation, OffsetAt, Position};

use crate::entry::Entry;
use crate::producers::Cast;
use crate::stage::{Act, INPUT, OUTPUT, PARTITION_COUNT, PLAIN, Patience, Stage, TRANSACTIONS};

const WAIT_MAX: Duration = Duration::from_millis(50);
const OPEN_TIME_MAX: Duration = Duration::from_secs(60);

/// Expected records of one producer in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// All numbers in sequence, none twice.
    Once,
    /// All numbers, with repetitions of earlier ones.
    AtLeastOnce,
    /// Those of transactions in the books, in order.
    Transactional,
}

/// A reader of topics.
pub(crate) struct Verifier {
    stage: Arc<Stage>,
    cast: Cast,
    promise: Promise,
    topics: Vec<&'static str>,
    /// Next expected record of each producer in each partition.
    next: BTreeMap<(String, i32, u32), Entry>,
}

impl Verifier {
    pub(crate) fn new(stage: Arc<Stage>, cast: Cast, topic: &str) -> Self {
        let (promise, topics) = match topic {
            PLAIN => (Promise::AtLeastOnce, vec![PLAIN]),
            INPUT => (Promise::Once, vec![INPUT]),
            OUTPUT => (Promise::Once, vec![OUTPUT]),
            _ => (Promise::Transactional, TRANSACTIONS.to_vec()),
        };
        Self { stage, cast, promise, topics, next: BTreeMap::new() }
    }

    /// Reads until everything is produced and read.
    pub(crate) async fn run(mut self) -> Result<()> {
        let client = self.stage.client(&self.cast.name);
        let mut positions = positions(&self.topics);
        let mut fetcher = fetcher(&client);
        loop {
            let is_last = self.stage.act() == Act::Verifying;
            let ends = match is_last {
                true => Some(ends(&client, &self.topics).await?),
                false => None,
            };
            let fetched = fetch(&mut fetcher, &positions).await?;
            let mut has_some = false;
            for partition in fetched {
                has_some |= !partition.records.is_empty();
                self.check(&partition, &mut positions)?;
            }
            if has_some {
                self.stage.step(&self.cast.name).await;
            }
            if ends.is_some_and(|ends| ends == positions) {
                return self.check_end();
            }
        }
    }

    fn check(&mut self, partition: &FetchedPartition, positions: &mut [Position]) -> Result<()> {
        let (topic, index) = (&partition.topic, partition.partition);
        for record in &partition.records {
            let entry = Entry::read(record)?;
            self.check_entry(entry, topic, index).with_context(|| {
                format!("topic {topic:?}, partition {index}, offset {}", record.offset)
            })?;
        }
        let position = positions.iter_mut().find(|it| it.topic == *topic && it.partition == index);
        let position = position.context("a partition came that was not asked for")?;
        ensure!(position.offset <= partition.next_offset, "{position:?} goes back");
        position.offset = partition.next_offset;
        Ok(())
    }

    fn check_entry(&mut self, entry: Entry, topic: &str, partition: i32) -> Result<()> {
        let first = Entry { producer: entry.producer, transaction: 0, number: 0 };
        let next = self.next.entry((topic.to_owned(), partition, entry.producer)).or_insert(first);
        match self.promise {
            Promise::Once => ensure!(entry == *next, "{entry:?} instead of {next:?}"),
            Promise::AtLeastOnce => {
                ensure!(entry.number <= next.number, "{entry:?} instead of {next:?}");
                if entry.number < next.number {
                    return Ok(());
                }
            }
            Promise::Transactional => {
                let order = |it: &Entry| (it.transaction, it.number);
                ensure!(order(&entry) >= order(next), "{entry:?} is before {next:?}");
                self.stage.books.see(entry)?;
            }
        }
        *next = Entry { number: entry.number + 1, ..entry };
        Ok(())
    }

    fn check_end(&self) -> Result<()> {
        if self.promise == Promise::Transactional {
            return self.stage.books.check_all_seen();
        }
        for topic in &self.topics {
            // The output of workers has the numbers of its input.
            let source = if *topic == OUTPUT { INPUT } else { topic };
            for (place, producer, count) in self.stage.books.acknowledged(source) {
                let key = ((*topic).to_owned(), place.1, producer);
                let found = self.next.get(&key).map_or(0, |next| next.number);
                ensure!(
                    found == count,
                    "topic {topic:?}, partition {}: producer {producer} was told of {count} \
                     records, and {found} are there",
                    place.1
                );
            }
        }
        Ok(())
    }
}

/// Fetches until all partitions answer.
pub(crate) async fn fetch(fetcher: &mut Fetcher, at: &[Position]) -> Result<Vec<FetchedPartition>> {
    let mut patience = Patience::new("cannot fetch");
    loop {
        let fetched = fetcher.fetch(at).await.and_then(|fetched| {
            fetched.iter().try_for_each(FetchedPartition::check)?;
            Ok(fetched)
        });
        match fetched {
            Ok(fetched) => return Ok(fetched),
            Err(error) => patience.after(error).await?,
        }
    }
}

pub(crate) fn fetcher(client: &Arc<Client>) -> Fetcher {
    // Workers write the records of one fetch in one batch.
    let limits =
        FetchLimits { wait_max: WAIT_MAX, partition_bytes_max: 64 << 10, ..FetchLimits::default() };
    Fetcher::new(Arc::clone(client), limits, Isolation::ReadCommitted)
}

/// Returns the beginnings of all partitions.
fn positions(topics: &[&str]) -> Vec<Position> {
    let mut positions = Vec::new();
    for topic in topics {
        for partition in 0..PARTITION_COUNT {
            positions.push(Position { topic: (*topic).to_owned(), partition, offset: 0 });
        }
    }
    positions
}

/// Returns the ends of all partitions without an open transaction. The marker of an ended
/// transaction may follow its acknowledgement.
pub(crate) async fn ends(client: &Client, topics: &[&str]) -> Result<Vec<Position>> {
    let mut ends = Vec::new();
    for topic in topics {
        let deadline = Instant::now() + OPEN_TIME_MAX;
        let all = loop {
            let ends = async |it| client.topic_offsets(topic, OffsetAt::Latest, it).await;
            let stable = ends(Isolation::ReadCommitted).await?;
            let all = ends(Isolation::ReadUncommitted).await?;
            if stable == all {
                break all;
            }
            let is_late = Instant::now() > deadline;
            ensure!(!is_late, "{topic:?}: a transaction stays open: {stable:?} of {all:?}");
            tokio::time::sleep(WAIT_MAX).await;
        };
        for it in all {
            let offset = it.offset.context("a partition has no end")?;
            ends.push(Position { topic: (*topic).to_owned(), partition: it.partition, offset });
        }
    }
    Ok(ends)
}
