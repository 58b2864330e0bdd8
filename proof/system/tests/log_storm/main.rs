//! The broker and its daemon are repeatedly killed with SIGKILL, under producers and consumers that
//! verify their data afterwards.
//!
//! - Acknowledged records of a producer are present: once, if it is idempotent or transactional,
//!   and in order for each partition and producer.
//! - Transactions are read completely or not at all. A transactional read-process-write loop
//!   produces one output for each input.
//! - Committed offsets of groups never go back behind acknowledged ones, and never exceed processed
//!   ones.
//! - Compaction keeps the last record of each key, retention the configured amount.
//! - A created topic exists, and a deleted one does not.
//! - After each kill every client recovers within a limited number of attempts.
//!
//! `MEMLANE_LOG_KILLS` is the number of kills. `MEMLANE_SEED` replays a run, as far as the
//! machine's timing permits.

mod books;
mod consumers;
mod entry;
mod makers;
mod producers;
mod stage;
mod storm;
mod sweeps;
mod verifiers;

use anyhow::Result;
use system::{Random, seed};

use crate::storm::{Place, Report, Storm};

const KILLS_DEFAULT: usize = 60;
const TEST_COUNT: usize = 3;

/// Maximum number of kills in one storm, which stores everything that it writes, so many kills are
/// divided among several storms.
const KILLS_PER_STORM_MAX: usize = 100;

#[test]
fn topics_survive_every_kill_of_a_broker_with_a_pool_of_its_own() -> Result<()> {
    run(Place::Embedded, "own")
}

#[test]
fn topics_survive_every_kill_of_broker_and_daemon() -> Result<()> {
    run(Place::Daemon, "daemon")
}

/// All memory is lost with the daemon, as in a power failure, except data passed to the kernel for
/// the disk.
#[test]
fn journal_topics_survive_every_loss_of_memory() -> Result<()> {
    run(Place::Journal, "journal")
}

/// Runs a test with its share of the kills.
fn run(place: Place, test: &str) -> Result<()> {
    let mut left = kill_count()? / TEST_COUNT;
    let seed = seed()?;
    eprintln!("replay: MEMLANE_SEED={seed} cargo test -p system --test log_storm {test}");
    let mut random = Random::new(seed);
    let mut total = Report::default();
    while left > 0 {
        let kill_count = left.min(KILLS_PER_STORM_MAX);
        left -= kill_count;
        total.add(&Storm { place, kill_count, seed: random.number() }.run()?);
    }
    eprintln!("measured: {total}");
    Ok(())
}

fn kill_count() -> Result<usize> {
    match std::env::var("MEMLANE_LOG_KILLS") {
        Ok(text) => Ok(text.parse()?),
        Err(_) => Ok(KILLS_DEFAULT),
    }
}
