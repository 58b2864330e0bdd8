//! The broker and the daemon below it are killed with -9 again and again, under producers and
//! consumers that know what they may find afterwards.
//!
//! - What a producer was told is kept is there: once, where it is idempotent or transactional; in
//!   order for each partition and producer.
//! - Of a transaction all is seen or nothing. What one reads, processes and writes in transactions
//!   comes out once for each input.
//! - Committed offsets of groups never go back behind what was acknowledged, and never pass what
//!   was processed.
//! - Compaction keeps the last record of each key, retention as much as a topic is to keep.
//! - A topic that was made is there, and one that was deleted is not.
//! - After each kill every client gets on, with so many attempts and no more.
//!
//! `MEMLANE_LOG_KILLS` is the number of kills, `MEMLANE_SEED` replays what a seed did as far as the
//! machine's timing allows.

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

/// One storm keeps all that it writes, so that many kills are several storms.
const KILLS_PER_STORM_MAX: usize = 100;

#[test]
fn topics_survive_every_kill_of_a_broker_with_a_pool_of_its_own() -> Result<()> {
    run(Place::Embedded, "own")
}

#[test]
fn topics_survive_every_kill_of_broker_and_daemon() -> Result<()> {
    run(Place::Daemon, "daemon")
}

/// With the daemon all memory is lost, as it is with power, but nothing that the kernel was given
/// for the disk.
#[test]
fn journal_topics_survive_every_loss_of_memory() -> Result<()> {
    run(Place::Journal, "journal")
}

/// Each of the tests has its part of the kills.
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
