//! The daemon is killed with -9 again and again at random moments, under writers that know what
//! they may find afterwards.
//!
//! `MEMLANE_KILLS` is the number of kills, `MEMLANE_SEED` replays what a seed did as far as the
//! machine's timing allows.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use system::{Daemon, DaemonOptions, Random, Round, Stripe, StripeSpec, seed, wait_for};

const KILLS_DEFAULT: u64 = 40;
const STRIPES_PER_VOLUME: usize = 2;
const ROUND_TIME_LIMIT: Duration = Duration::from_secs(120);

/// Requests after which the daemon is killed, at most.
const REQUESTS_MAX: u64 = 1500;

/// How long after those the kill comes, at most, so that it hits any instruction.
const DELAY_MICROSECONDS_MAX: u64 = 3000;

/// One kill in so many hits the daemon while it starts.
const START_KILL_ONE_IN: u64 = 8;
const START_DELAY_MICROSECONDS_MAX: u64 = 30_000;

const VOLUMES: [(&str, usize, &str); 3] = [
    ("reduced", 4096, "--reduction full"),
    ("sectors", 512, "--reduction full --sector 512"),
    ("raw", 4096, "--reduction none"),
];

/// One storm.
struct Storm {
    pool_size: &'static str,
    /// Of 64 KiB each.
    runs_per_stripe: usize,
    kill_count: u64,
    moment: Moment,
}

/// When a kill comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// While requests come in.
    Busy,
    /// While requests come in, and at least one was refused for lack of space since the start.
    Full,
    /// While the writers rest and what they wrote is being compressed.
    Compressing,
}

/// What a storm went through.
#[derive(Default)]
struct Report {
    answered_count: u64,
    refused_count: u64,
    /// Kills before which some of what waited had been compressed, but not all.
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

    /// Lets all stripes verify and write, kills the daemon meanwhile and starts it again.
    fn round(
        &self,
        daemon: &mut Daemon,
        stripes: &mut [Stripe],
        random: &mut Random,
        report: &mut Report,
    ) -> Result<()> {
        let round = Round::default();
        let stripe_count = stripes.len();
        // What is compressed in the end should not be done in a moment.
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

/// Kills the daemon a little after it has begun to compress. Returns whether there was more to
/// compress then.
fn kill_in_compression(daemon: &mut Daemon, delay: Duration) -> Result<bool> {
    let pending_bytes = |daemon: &Daemon| anyhow::Ok(daemon.status()?.pool.pending_bytes);
    let at_rest = pending_bytes(daemon)?;
    let begun = Instant::now();
    // Asked again at once: what is left lasts for some hundredths of a second.
    let mut left = at_rest;
    while left > 0 && left == at_rest {
        ensure!(begun.elapsed() < ROUND_TIME_LIMIT, "waited in vain for compression to begin");
        left = pending_bytes(daemon)?;
    }
    spin_for(delay);
    daemon.kill()?;
    Ok(left > 0)
}

/// Not a wait for anything: the moment itself is what is random.
fn spin_for(delay: Duration) {
    let end = Instant::now() + delay;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
