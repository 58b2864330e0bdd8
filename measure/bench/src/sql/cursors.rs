//! Clients of many live queries: connections that fetch from cursors.
//!
//! While records are produced, a connection fetches from all of its cursors in one message per
//! [`ROUND_INTERVAL`], with different phases for different connections. Afterwards it fetches
//! without pause from those whose rows are incomplete.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use futures::future::try_join_all;
use system::Interruption;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use super::filters::Rows;

const ROUND_INTERVAL: Duration = Duration::from_secs(2);

/// Polling interval for the end of producing, and for rows.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Timeout for fetching available rows without waiting.
const NOW: &str = "0 s";

/// Timeout that lets the broker read data that it does not read by itself.
const SOON: &str = "2 ms";
const SOON_AFTER: Duration = Duration::from_secs(2);

/// Time without rows, after the last record was produced, at which missing rows count as lost.
const STALL_MAX: Duration = Duration::from_secs(60);

/// Column of a row with the record's offset, after time and difference.
const OFFSET_COLUMN: usize = 2;

const NO_PANIC: &str = "no thread panics with this lock";

/// All connections.
pub(super) struct Crowd {
    pub(super) cursors: Vec<Cursors>,
    pub(super) is_producing: AtomicBool,
}

impl Crowd {
    /// Fetches until every query has returned its expected rows.
    pub(super) async fn keep_up(&self) -> Result<()> {
        let count = u32::try_from(self.cursors.len()).context("too many connections")?;
        let keeping = (0..count).zip(&self.cursors).map(|(index, cursors)| {
            // Spreads the connections over the interval.
            let first = Instant::now() + ROUND_INTERVAL * index / count;
            cursors.keep_up(first, &self.is_producing)
        });
        try_join_all(keeping).await.map(|_| ())
    }

    /// Fetches once more, and fails if a row arrives.
    pub(super) async fn check_nothing_comes(&self) -> Result<()> {
        let fetching = self.cursors.iter().map(|cursors| cursors.fetch(cursors.all(), NOW));
        let came: u64 = try_join_all(fetching).await?.iter().sum();
        ensure!(came == 0, "received {came} more rows than expected");
        Ok(())
    }

    /// Returns the number of rows received.
    pub(super) fn rows(&self) -> u64 {
        let count = |cursors: &Cursors| {
            let seen = cursors.seen.lock().expect(NO_PANIC);
            seen.iter().map(|rows| rows.count).sum::<u64>()
        };
        self.cursors.iter().map(count).sum()
    }
}

/// A connection.
pub(super) struct Cursors {
    client: Client,
    /// Received rows of each cursor.
    seen: Mutex<Vec<Rows>>,
    expected: Vec<Rows>,
}

impl Cursors {
    /// Starts a live query for each text, which must return the rows with the same index.
    pub(super) async fn open(
        config: &Config,
        texts: &[String],
        expected: Vec<Rows>,
    ) -> Result<Self> {
        ensure!(!Interruption::is_asked_for(), "interrupted while live queries were made");
        let (client, connection) = config.connect(NoTls).await.context("cannot connect")?;
        tokio::spawn(async {
            // Errors are reported by the requests that wait.
            let _ = connection.await;
        });
        let declared = (0..).zip(texts).map(|(number, text)| declare(number, text));
        let declared = format!("BEGIN; {}", declared.collect::<String>());
        client.batch_execute(&declared).await.context("cannot open cursors of live queries")?;
        let seen = Mutex::new(vec![Rows::default(); texts.len()]);
        let own = Self { client, seen, expected };
        // A live query reads existing records, of which there are none, and then follows.
        let came = own.fetch(own.all(), SOON).await?;
        ensure!(came == 0, "received {came} rows before any record was produced");
        Ok(own)
    }

    async fn keep_up(&self, first: Instant, is_producing: &AtomicBool) -> Result<()> {
        rest(first, is_producing).await;
        let mut last_row = Instant::now();
        loop {
            ensure!(!Interruption::is_asked_for(), "interrupted while rows were fetched");
            let begun = Instant::now();
            // PAIRS-WITH: run, "whether records still come".
            let may_more_come = is_producing.load(Ordering::Acquire);
            let cursors = if may_more_come { self.all() } else { self.incomplete()? };
            if cursors.is_empty() {
                return Ok(());
            }
            let time = if last_row.elapsed() < SOON_AFTER { NOW } else { SOON };
            let came = self.fetch(cursors, time).await?;
            if came > 0 || may_more_come {
                last_row = Instant::now();
            } else {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
            ensure!(last_row.elapsed() < STALL_MAX, "{}", self.lack());
            rest(begun + ROUND_INTERVAL, is_producing).await;
        }
    }

    fn all(&self) -> Vec<usize> {
        (0..self.expected.len()).collect()
    }

    /// Fetches from cursors. Returns the number of rows.
    async fn fetch(&self, cursors: Vec<usize>, time: &str) -> Result<u64> {
        let failed = || "cannot fetch from live queries";
        let fetch = |it: &usize| format!("FETCH ALL FROM c{it} WITH (TIMEOUT = '{time}'); ");
        let statements: String = cursors.iter().map(fetch).collect();
        let messages = self.client.simple_query_raw(&statements).await.with_context(failed)?;
        let mut messages = Box::pin(messages);
        let (mut answers, mut count) = (cursors.into_iter(), 0);
        let mut cursor = answers.next();
        while let Some(message) = messages.next().await {
            match message.with_context(failed)? {
                SimpleQueryMessage::Row(row) => {
                    let cursor = cursor.context("too many results")?;
                    let text = row.try_get(OFFSET_COLUMN)?.context("an offset is NULL")?;
                    let offset =
                        text.parse().with_context(|| format!("{text} is not an offset"))?;
                    self.seen.lock().expect(NO_PANIC)[cursor].take(offset)?;
                    count += 1;
                }
                SimpleQueryMessage::CommandComplete(_) => cursor = answers.next(),
                _ => {}
            }
        }
        Ok(count)
    }

    /// Returns the cursors with missing rows. Fails on unexpected rows.
    fn incomplete(&self) -> Result<Vec<usize>> {
        let seen = self.seen.lock().expect(NO_PANIC);
        let mut cursors = Vec::new();
        for (cursor, (seen, expected)) in seen.iter().zip(&self.expected).enumerate() {
            if seen.count < expected.count {
                cursors.push(cursor);
                continue;
            }
            ensure!(
                seen == expected,
                "a live query returned wrong rows: {seen:?} instead of {expected:?}"
            );
        }
        Ok(cursors)
    }

    fn lack(&self) -> String {
        let count = |rows: &[Rows]| rows.iter().map(|rows| rows.count).sum::<u64>();
        let seen = count(&self.seen.lock().expect(NO_PANIC));
        let expected = count(&self.expected);
        format!("received {seen} rows instead of {expected}, and none for {STALL_MAX:?}")
    }
}

fn declare(number: usize, text: &str) -> String {
    format!("DECLARE c{number} CURSOR FOR SUBSCRIBE TO ({text}); ")
}

/// Waits until a time, or until producing has ended.
async fn rest(until: Instant, is_producing: &AtomicBool) {
    // PAIRS-WITH: run, "whether records still come".
    while Instant::now() < until && is_producing.load(Ordering::Acquire) {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
