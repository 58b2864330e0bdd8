//! The daemon is killed with -9 again and again at random moments, under writers that know what
//! they may find afterwards.
//!
//! `MEMLANE_KILLS` is the number of kills, `MEMLANE_SEED` replays what a seed did as far as the
//! machine's timing allows.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use system::{Daemon, DaemonOptions, Random, Round, Stripe, StripeSpec, seed, wait_for};

const KILLS_DEFAULT: u64 = 200;
const STRIPES_PER_VOLUME: usize = 2;
const RUNS_PER_STRIPE: usize = 96;
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

#[test]
fn acknowledged_writes_survive_every_kill() -> Result<()> {
    let seed = seed()?;
    eprintln!("replay: MEMLANE_SEED={seed} cargo test -p system --test kill_storm");
    storm(seed, kill_count()?)
}

fn kill_count() -> Result<u64> {
    match std::env::var("MEMLANE_KILLS") {
        Ok(text) => Ok(text.parse()?),
        Err(_) => Ok(KILLS_DEFAULT),
    }
}

fn storm(seed: u64, kill_count: u64) -> Result<()> {
    let mut random = Random::new(seed);
    let options = DaemonOptions { pool_size: "256MiB", flags: "--no-fuse" };
    let mut daemon = Daemon::start(options)?;
    let mut stripes = stripes(&mut random);
    create_volumes(&daemon, &stripes)?;
    let mut restarts = Vec::new();
    let mut request_count = 0;
    for _ in 0..kill_count {
        let round = Round::default();
        let requests_before_kill = random.below(REQUESTS_MAX);
        let delay = Duration::from_micros(random.below(DELAY_MICROSECONDS_MAX));
        round.run(&daemon.nbd_socket(), &mut stripes, || {
            wait_for("the stripes to verify and write", ROUND_TIME_LIMIT, || {
                let is_far_enough = round.verified_count() == VOLUMES.len() * STRIPES_PER_VOLUME
                    && round.acknowledged_count() >= requests_before_kill;
                Ok(is_far_enough || round.has_failed())
            })?;
            spin_for(delay);
            daemon.kill()
        })?;
        request_count += round.acknowledged_count();
        if random.below(START_KILL_ONE_IN) == 0 {
            daemon.launch()?;
            spin_for(Duration::from_micros(random.below(START_DELAY_MICROSECONDS_MAX)));
            daemon.kill()?;
        }
        restarts.push(daemon.start_again()?);
    }
    let last = Round::default();
    last.run(&daemon.nbd_socket(), &mut stripes, || Ok(()))?;
    ensure!(last.verified_count() == stripes.len(), "not all stripes were verified at the end");
    report(kill_count, request_count, restarts);
    daemon.finish()
}

fn stripes(random: &mut Random) -> Vec<Stripe> {
    let mut stripes = Vec::new();
    for (number, (volume, sector_bytes, _)) in (0..).zip(VOLUMES) {
        for stripe in 0..STRIPES_PER_VOLUME {
            stripes.push(Stripe::new(StripeSpec {
                volume: volume.to_owned(),
                volume_number: number,
                sector_bytes,
                stripe,
                stripe_count: STRIPES_PER_VOLUME,
                run_count: RUNS_PER_STRIPE,
                seed: random.next_u64(),
            }));
        }
    }
    stripes
}

fn create_volumes(daemon: &Daemon, stripes: &[Stripe]) -> Result<()> {
    let size = stripes[0].spec().volume_bytes();
    for (volume, _, flags) in VOLUMES {
        daemon.memlane(&format!("volume create {volume} --size {size} {flags}"))?;
    }
    Ok(())
}

/// Not a wait for anything: the moment itself is what is random.
fn spin_for(delay: Duration) {
    let end = Instant::now() + delay;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

fn report(kill_count: u64, request_count: u64, mut restarts: Vec<Duration>) {
    restarts.sort();
    let [Some(median), Some(longest)] = [restarts.get(restarts.len() / 2), restarts.last()] else {
        return;
    };
    eprintln!(
        "measured: {kill_count} kills, {request_count} requests acknowledged; restart until \
         serving: median {median:.1?}, longest {longest:.1?}"
    );
}
