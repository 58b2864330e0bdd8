//! The daemon is repeatedly killed with SIGKILL at random moments, under writers that verify their
//! data afterwards.
//!
//! `MEMLANE_KILLS` is the number of kills. `MEMLANE_SEED` replays a run, as far as the machine's
//! timing permits.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use system::{Daemon, DaemonOptions, Random, Round, Stripe, StripeSpec, seed, wait_for};

const KILLS_DEFAULT: u64 = 40;
const STRIPES_PER_VOLUME: usize = 2;
const ROUND_TIME_LIMIT: Duration = Duration::from_secs(120);

/// Maximum number of requests before a kill.
const REQUESTS_MAX: u64 = 1500;

/// Maximum delay of the kill after those, so that it hits any instruction.
const DELAY_MICROSECONDS_MAX: u64 = 3000;

/// One in this many kills hits the daemon while it starts.
const START_KILL_ONE_IN: u64 = 8;
const START_DELAY_MICROSECONDS_MAX: u64 = 30_000;

const VOLUMES: [(&str, usize, &str); 3] = [
    ("reduced", 4096, "--reduction full"),
    ("sectors", 512, "--reduction full --sector 512"),
    ("raw", 4096, "--reduction none"),
];

/// Parameters of one storm.
struct Storm {
    pool_size: &'static str,
    /// Number of runs of 64 KiB.
    runs_per_stripe: usize,
    kill_count: u64,
    moment: Moment,
}

/// State in which a kill occurs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// During requests.
    Busy,
    /// During requests, at least one of which has failed for lack of space since the start.
    Full,
    /// While writers pause and their pages are being compressed.
    Compressing,
}

/// Totals of a storm.
#[derive(Default)]
struct Report {
    answered_count: u64,
    refused_count: u64,
    /// Number of kills before which some of the pending pages had been compressed, but not all.
    in_compression_count: u64,
    restarts: Vec<Duration>,
}

#[test]
fn acknowledged_writes_survive_every_kill() -> Result<()> {
    let kill_count = kill_count()?;
    let storm =
        Storm { pool_size: "256MiB", runs_per_stripe: 96, kill_count, moment: Moment::Busy };
    let report = storm.run("acknowledged")?;
    ensure!(report.refused_count == 0, "{} requests were refused", report.refused_count);
    Ok(())
}

#[test]
fn a_full_pool_survives_every_kill() -> Result<()> {
    let kill_count = kill_count()? / 5;
    let moment = Moment::Full;
    let storm = Storm { pool_size: "32MiB", runs_per_stripe: 192, kill_count, moment };
    let report = storm.run("full")?;
    ensure!(report.refused_count >= kill_count, "the pool was not full before each kill");
    Ok(())
}

#[test]
fn compression_in_the_background_survives_every_kill() -> Result<()> {
    let kill_count = kill_count()? / 4;
    let moment = Moment::Compressing;
    let storm = Storm { pool_size: "512MiB", runs_per_stripe: 192, kill_count, moment };
    let report = storm.run("compression")?;
    let hit_count = report.in_compression_count;
    let least = kill_count.div_ceil(10);
    ensure!(hit_count >= least, "only {hit_count} of {kill_count} kills hit compression");
    Ok(())
}

fn kill_count() -> Result<u64> {
    match std::env::var("MEMLANE_KILLS") {
        Ok(text) => Ok(text.parse()?),
        Err(_) => Ok(KILLS_DEFAULT),
    }
}

impl Storm {
    fn run(&self, test: &str) -> Result<Report> {
        let seed = seed()?;
        eprintln!("replay: MEMLANE_SEED={seed} cargo test -p system --test kill_storm {test}");
        let mut random = Random::new(seed);
        let mut daemon =
            Daemon::start(DaemonOptions { pool_size: self.pool_size, flags: "--no-fuse" })?;
        let mut stripes = self.stripes(&mut random);
        create_volumes(&daemon, &stripes)?;
        let mut report = Report::default();
        for _ in 0..self.kill_count {
            self.round(&mut daemon, &mut stripes, &mut random, &mut report)?;
        }
        let last = Round::default();
        last.run(&daemon.nbd_socket(), &mut stripes, || Ok(()))?;
        ensure!(last.verified_count() == stripes.len(), "not all stripes were verified at the end");
        report.print();
        daemon.finish()?;
        Ok(report)
    }

    /// Lets all stripes verify and write, kills the daemon meanwhile and restarts it.
    fn round(
        &self,
        daemon: &mut Daemon,
        stripes: &mut [Stripe],
        random: &mut Random,
        report: &mut Report,
    ) -> Result<()> {
        let round = Round::default();
        let stripe_count = stripes.len();
        // The final compression should take more than a moment.
        let requests_min = if self.moment == Moment::Compressing { REQUESTS_MAX } else { 0 };
        let requests_before_kill = requests_min + random.below(REQUESTS_MAX);
        let delay = Duration::from_micros(random.below(DELAY_MICROSECONDS_MAX));
        round.run(&daemon.nbd_socket(), stripes, || {
            wait_for("the stripes to verify and write", ROUND_TIME_LIMIT, || {
                let is_far_enough = round.verified_count() >= stripe_count
                    && round.answered_count() >= requests_before_kill
                    && (self.moment != Moment::Full || round.refused_count() > 0);
                Ok(is_far_enough || round.has_failed())
            })?;
            if self.moment == Moment::Compressing {
                return Ok(());
            }
            spin_for(delay);
            round.kill(daemon)
        })?;
        if self.moment == Moment::Compressing {
            let was_hit = kill_in_compression(daemon, delay)?;
            report.in_compression_count += u64::from(was_hit);
        }
        if random.below(START_KILL_ONE_IN) == 0 {
            daemon.launch()?;
            spin_for(Duration::from_micros(random.below(START_DELAY_MICROSECONDS_MAX)));
            daemon.kill()?;
        }
        report.answered_count += round.answered_count();
        report.refused_count += round.refused_count();
        report.restarts.push(daemon.start_again()?);
        Ok(())
    }

    fn stripes(&self, random: &mut Random) -> Vec<Stripe> {
        let mut stripes = Vec::new();
        for (number, (volume, sector_bytes, _)) in (0..).zip(VOLUMES) {
            for stripe in 0..STRIPES_PER_VOLUME {
                stripes.push(Stripe::new(StripeSpec {
                    volume: volume.to_owned(),
                    volume_number: number,
                    sector_bytes,
                    stripe,
                    stripe_count: STRIPES_PER_VOLUME,
                    run_count: self.runs_per_stripe,
                    seed: random.number(),
                }));
            }
        }
        stripes
    }
}

impl Report {
    fn print(&mut self) {
        self.restarts.sort();
        let restarts = &self.restarts;
        let [Some(median), Some(longest)] = [restarts.get(restarts.len() / 2), restarts.last()]
        else {
            return;
        };
        eprintln!(
            "measured: {} kills, {} requests answered, {} of them with \"no space\"; restart until \
             serving: median {median:.1?}, longest {longest:.1?}",
            restarts.len(),
            self.answered_count,
            self.refused_count
        );
    }
}

fn create_volumes(daemon: &Daemon, stripes: &[Stripe]) -> Result<()> {
    let size = stripes[0].spec().volume_bytes();
    for (volume, _, flags) in VOLUMES {
        daemon.memlane(&format!("volume create {volume} --size {size} {flags}"))?;
    }
    Ok(())
}

/// Kills the daemon shortly after it has begun to compress. Returns whether pages were still
/// pending.
fn kill_in_compression(daemon: &mut Daemon, delay: Duration) -> Result<bool> {
    let pending_bytes = |daemon: &Daemon| anyhow::Ok(daemon.status()?.pool.pending_bytes);
    let at_rest = pending_bytes(daemon)?;
    let begun = Instant::now();
    // Polled without a pause, because the rest takes only some hundredths of a second.
    let mut left = at_rest;
    while left > 0 && left == at_rest {
        ensure!(begun.elapsed() < ROUND_TIME_LIMIT, "waited in vain for compression to begin");
        left = pending_bytes(daemon)?;
    }
    spin_for(delay);
    daemon.kill()?;
    Ok(left > 0)
}

/// Busy-waits. This is not a wait for a condition: the duration itself is random.
fn spin_for(delay: Duration) {
    let end = Instant::now() + delay;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
