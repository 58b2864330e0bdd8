//! The half of the demonstration that needs neither root nor block devices: NBD writers that verify
//! their data after the daemon was killed.

use std::time::Duration;

use anyhow::{Result, ensure};
use system::{Daemon, DaemonOptions, Round, Stripe, StripeSpec, wait_for};

use crate::demo::progress::Progress;
use crate::demo::table::{Table, thousands};

const STEPS: usize = 5;
const STRIPES: usize = 4;
const RUNS_PER_STRIPE: usize = 512;
const REQUESTS_BEFORE_KILL: u64 = 60_000;
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Reports the reason for the reduced demonstration, and runs it.
pub(crate) fn run(reason: &str) -> Result<()> {
    eprintln!("Only the NBD half of the demonstration: {reason}.");
    let progress = Progress::new(STEPS);
    progress.step("start a daemon, create a volume");
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "512MiB", flags: "--no-fuse" })?;
    let mut stripes: Vec<_> = (0..STRIPES).map(|stripe| Stripe::new(spec(stripe))).collect();
    let size = stripes[0].spec().volume_bytes();
    daemon.memlane(&format!("volume create v --size {size}"))?;
    progress.step("write over NBD, kill -9 the daemon in the middle");
    let first = Round::default();
    first.run(&daemon.nbd_socket(), &mut stripes, || {
        wait_for("the writers", TIME_LIMIT, || {
            Ok(first.has_failed() || first.answered_count() >= REQUESTS_BEFORE_KILL)
        })?;
        daemon.kill()
    })?;
    progress.step("start the daemon again");
    let restart = daemon.start_again()?;
    progress.step("compare every block with what was acknowledged");
    let last = Round::default();
    last.run(&daemon.nbd_socket(), &mut stripes, || {
        wait_for("the comparison", TIME_LIMIT, || {
            Ok(last.has_failed() || last.verified_count() == STRIPES)
        })
    })?;
    ensure!(last.verified_count() == STRIPES, "not everything was compared");
    let pool = daemon.status()?.pool;
    progress.step("stop, look for leftovers");
    daemon.finish()?;
    drop(progress);
    let size = |bytes: u64| Some(format!("{} MiB", thousands(bytes >> 20)));
    let mut table = Table::default();
    ensure!(first.refused_count() == 0, "the pool was full");
    let requests = thousands(first.answered_count());
    table.row("requests acknowledged, all found", &[Some(requests)]);
    table.row("daemon serving after the restart", &[Some(format!("{restart:.1?}"))]);
    table.row("RAM used", &[size(pool.used_bytes)]);
    table.row("bytes readable on the volume", &[size(pool.written_bytes)]);
    table.row("ratio", &[pool.ratio.map(|ratio| format!("{ratio:.2}"))]);
    table.print()
}

fn spec(stripe: usize) -> StripeSpec {
    StripeSpec {
        volume: "v".to_owned(),
        volume_number: 0,
        sector_bytes: 4096,
        stripe,
        stripe_count: STRIPES,
        run_count: RUNS_PER_STRIPE,
        seed: u64::try_from(stripe).unwrap_or_default(),
    }
}
