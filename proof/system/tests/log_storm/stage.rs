//! State shared by all clients of a storm: the broker's address, the books, and the phase.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use kafka_client::{Client, ClientError, ErrorKind, ResponseError, Settings};

use crate::books::Books;

/// Topic of producers of plain and of idempotent batches.
pub(crate) const PLAIN: &str = "plain";
pub(crate) const INPUT: &str = "input";
/// Topics of transactions.
pub(crate) const TRANSACTIONS: [&str; 2] = ["transactions-a", "transactions-b"];
/// Topic with the output for `INPUT`.
pub(crate) const OUTPUT: &str = "output";
/// A compacted topic, and one whose retention is `BRIEF_BYTES` in each partition.
pub(crate) const KEYED: &str = "keyed";
pub(crate) const BRIEF: &str = "brief";
pub(crate) const BRIEF_BYTES: u64 = 32 << 10;
pub(crate) const TOPICS: [&str; 7] =
    [PLAIN, INPUT, TRANSACTIONS[0], TRANSACTIONS[1], OUTPUT, KEYED, BRIEF];
pub(crate) const PARTITION_COUNT: i32 = 3;

/// Groups: one reads the transactions, the other transforms `INPUT` to `OUTPUT`.
pub(crate) const READERS: &str = "readers";
pub(crate) const WORKERS: &str = "workers";

/// Number of consecutive attempts after which a client counts as hung.
const ATTEMPTS_MAX: u32 = 300;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(50);

/// Time for which the client retries within one call.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// Pause between two steps of a client, which yields the processor to others.
const STEP_PAUSE: Duration = Duration::from_millis(4);

/// Phase of a storm, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    Producing,
    /// Producers have ended. Groups read the rest.
    Draining,
    /// Groups have ended too. Verifiers read the rest.
    Verifying,
}

const ACTS: [Act; 3] = [Act::Producing, Act::Draining, Act::Verifying];

#[derive(Debug)]
pub(crate) struct Stage {
    address: String,
    pub(crate) books: Books,
    act: AtomicUsize,
    /// Number of steps of each client, by name.
    steps: BTreeMap<String, AtomicU64>,
    pub(crate) counts: Counts,
}

/// Totals of all work.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) idempotent: AtomicU64,
    pub(crate) plain: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) aborts: AtomicU64,
    pub(crate) takeovers: AtomicU64,
    pub(crate) processed: AtomicU64,
    pub(crate) rollbacks: AtomicU64,
    pub(crate) joins: AtomicU64,
    pub(crate) offset_checks: AtomicU64,
    pub(crate) removed: AtomicU64,
    pub(crate) topics_made: AtomicU64,
    pub(crate) topics_deleted: AtomicU64,
}

impl Stage {
    pub(crate) fn new(address: &str, names: impl IntoIterator<Item = String>) -> Self {
        Self {
            address: address.to_owned(),
            books: Books::default(),
            act: AtomicUsize::new(0),
            steps: names.into_iter().map(|name| (name, AtomicU64::new(0))).collect(),
            counts: Counts::default(),
        }
    }

    /// Creates a client with its own connections.
    pub(crate) fn client(&self, name: &str) -> Arc<Client> {
        let settings = Settings {
            client_id: name.to_owned(),
            request_time_max: REQUEST_TIME_MAX,
            ..Settings::default()
        };
        Arc::new(Client::new(self.address.clone(), settings))
    }

    pub(crate) fn act(&self) -> Act {
        ACTS[self.act.load(Ordering::SeqCst)]
    }

    pub(crate) fn set_act(&self, act: Act) {
        let index = ACTS.iter().position(|it| *it == act).unwrap_or(ACTS.len() - 1);
        self.act.store(index, Ordering::SeqCst);
    }

    /// Records an answered step of the client, and pauses.
    pub(crate) async fn step(&self, name: &str) {
        self.steps[name].fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(STEP_PAUSE).await;
    }

    /// Returns the steps of all clients.
    pub(crate) fn steps(&self) -> BTreeMap<String, u64> {
        let count =
            |(name, count): (&String, &AtomicU64)| (name.clone(), count.load(Ordering::SeqCst));
        self.steps.iter().map(count).collect()
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

pub(crate) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::SeqCst);
}

/// Retry policy: repeats attempts that may succeed later, up to a limit.
pub(crate) struct Patience {
    what: &'static str,
    attempt_count: u32,
}

impl Patience {
    /// Creates a policy. `what` is the error message after the last attempt.
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, attempt_count: 0 }
    }

    /// Waits before another attempt, if one is useful.
    pub(crate) async fn after(&mut self, error: ClientError) -> Result<()> {
        self.attempt_count += 1;
        let is_worth_it = error.is_retriable() || error.kind() == ErrorKind::Unreachable;
        if !is_worth_it || self.attempt_count >= ATTEMPTS_MAX {
            let what = format!("{}, attempt {}", self.what, self.attempt_count);
            return Err(error).context(what);
        }
        tokio::time::sleep(ATTEMPT_PAUSE).await;
        Ok(())
    }
}

/// Returns whether a member was rejected because the group's generation has changed.
pub(crate) fn is_of_a_generation_before(error: &ClientError) -> bool {
    matches!(
        error.refusal(),
        Some(
            ResponseError::IllegalGeneration
                | ResponseError::UnknownMemberId
                | ResponseError::RebalanceInProgress
        )
    )
}
