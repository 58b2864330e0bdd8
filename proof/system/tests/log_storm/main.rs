//! The broker and the daemon below it are killed with -9 again and again, under producers and
//! consumers that know what they may find afterwards.
//!
//! - What a producer was told is kept is there: once, where it is idempotent or transactional; in
//!   order for each partition and producer.
//! - Of a transaction all is seen or nothing. What one reads, processes and writes in transactions
//!   comes out once for each input.
//! - Committed offsets of groups never go back, and never pass what was processed.
//! - After each kill every client gets on, with so many attempts and no more.
//!
//! `MEMLANE_LOG_KILLS` is the number of kills, `MEMLANE_SEED` replays what a seed did as far as the
//! machine's timing allows.

mod books;
mod broker;
mod consumers;
mod entry;
mod producers;
mod stage;
mod storm;
mod verifiers;

use anyhow::Result;
use system::{Random, seed};

use crate::storm::{Place, Report, Storm};

const KILLS_DEFAULT: u64 = 200;

/// One storm keeps all that it writes, so that many kills are several storms.
const KILLS_PER_STORM_MAX: u64 = 100;

#[test]
fn topics_survive_every_kill_of_a_broker_with_a_pool_of_its_own() -> Result<()> {
    run(Place::Embedded, "own")
}

#[test]
fn topics_survive_every_kill_of_broker_and_daemon() -> Result<()> {
    run(Place::Daemon, "daemon")
}

/// Half of the kills are for each of the tests.
fn run(place: Place, test: &str) -> Result<()> {
    let mut left = kill_count()? / 2;
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

fn kill_count() -> Result<u64> {
    match std::env::var("MEMLANE_LOG_KILLS") {
        Ok(text) => Ok(text.parse()?),
        Err(_) => Ok(KILLS_DEFAULT),
    }
}
