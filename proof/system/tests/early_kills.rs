//! The daemon is killed in the first seconds of its pool, while the pool still gets its memory, and
//! serves again at once, however large the pool is.
//!
//! `MEMLANE_EARLY_KILLS` is the number of kills; `MEMLANE_SEED` replays what a seed did as far as
//! the machine's timing allows. With the former, as in the long runs, kills come up to 20 s after
//! the start, pools have up to 16 GiB, and no start may take longer than is promised.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use system::{Daemon, NbdClient, Random, Request, seed, wait_for};

const GIB: u64 = 1 << 30;
const KILLS_DEFAULT: u64 = 6;

/// Until the first read after a kill.
const PROMISED: Duration = Duration::from_millis(300);

/// How long a start may take before a test gives up.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// How far a storm goes.
struct Plan {
    kill_count: u64,
    pool_bytes_max: u64,
    delay_max: Duration,
    /// Whether a start that takes too long is a failure: not beside other tests.
    is_timed: bool,
}

fn plan() -> Result<Plan> {
    Ok(match std::env::var("MEMLANE_EARLY_KILLS") {
        Ok(text) => Plan {
            kill_count: text.parse()?,
            pool_bytes_max: 16 * GIB,
            delay_max: Duration::from_secs(20),
            is_timed: true,
        },
        Err(_) => Plan {
            kill_count: KILLS_DEFAULT,
            pool_bytes_max: 2 * GIB,
            delay_max: Duration::from_millis(500),
            is_timed: false,
        },
    })
}

/// Half of what is free now.
fn affordable_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|it| it.trim().strip_suffix("kB")).context("no such line")?;
    Ok(kib.trim().parse::<u64>()? * 512)
}

/// How long it took to serve, and what the pool's file had of its memory then, in percent.
struct Start {
    took: Duration,
    held_percent: u64,
}

#[test]
fn the_first_read_after_an_early_kill_waits_for_no_memory() -> Result<()> {
    let (seed, plan) = (seed()?, plan()?);
    eprintln!("replay: MEMLANE_SEED={seed} cargo test -p system --test early_kills");
    let mut random = Random::new(seed);
    let affordable = affordable_bytes()?;
    let mut starts = Vec::new();
    for kill in 0..plan.kill_count {
        let pool_bytes = [1, 2, 4, 8, 16].map(|gib| gib * GIB)[random.index(5)];
        let pool_bytes = pool_bytes.min(plan.pool_bytes_max).min(affordable) >> 21 << 21;
        let delay_max = u64::try_from(plan.delay_max.as_micros())?;
        let delay = Duration::from_micros(random.below(delay_max));
        // Half of them on a tmpfs without huge pages.
        let is_root = rustix::process::geteuid().is_root();
        let shared = match kill % 2 {
            1 if is_root => Some(tempfile::tempdir_in("/dev/shm").context("tmpfs takes a folder")?),
            // Without root all of them are.
            _ => None,
        };
        let region = shared.as_ref().map(|folder| folder.path().join("region"));
        let flag = region.as_ref().map(|path| format!(" --pool-path {}", path.display()));
        let flags = format!("--no-fuse{}", flag.unwrap_or_default());
        let mut daemon = Daemon::start_flagged(format!("{pool_bytes}"), flags)?;
        let region = region.unwrap_or_else(|| daemon.pool_file());
        let start = kill_and_read(&mut daemon, delay, || {
            let held_bytes = std::fs::metadata(&region)?.blocks() * 512;
            Ok(held_bytes * 100 / pool_bytes)
        })?;
        eprintln!(
            "a pool of {} MiB, killed after {delay:.1?}: {:.1?} until the first read, with {} % of \
             its memory",
            pool_bytes >> 20,
            start.took,
            start.held_percent
        );
        starts.push(start.took);
        daemon.finish()?;
    }
    starts.sort();
    let longest = starts.last().copied().unwrap_or_default();
    eprintln!("measured: first read after {} kills: longest {longest:.1?}", starts.len());
    ensure!(!plan.is_timed || longest <= PROMISED, "{longest:?} until the first read");
    Ok(())
}

/// Writes from the first moment until the kill, and finds it afterwards.
fn kill_and_read(
    daemon: &mut Daemon,
    delay: Duration,
    held_percent: impl Fn() -> Result<u64>,
) -> Result<Start> {
    let begun = Instant::now();
    daemon.memlane("volume create v --size 64MiB --reduction none")?;
    let mut client = NbdClient::connect(&daemon.nbd_socket(), "v")?;
    let mut random = Random::new(7);
    let mut data = vec![0; 64 << 10];
    random.fill(&mut data);
    let length = u32::try_from(data.len())?;
    let mut run = 0;
    while run == 0 || begun.elapsed() < delay {
        let offset = run % 1024 * u64::from(length);
        client.ask(&Request::Write { offset, data: data.clone() })?;
        run += 1;
    }
    daemon.kill()?;
    drop(client);
    let begun = Instant::now();
    daemon.launch()?;
    let mut found = Vec::new();
    wait_for("the first read", TIME_LIMIT, || {
        let Ok(mut client) = NbdClient::connect(&daemon.nbd_socket(), "v") else {
            return Ok(false);
        };
        found = client.ask(&Request::Read { offset: 0, length })?;
        Ok(true)
    })?;
    let start = Start { took: begun.elapsed(), held_percent: held_percent()? };
    ensure!(found == data, "what was written is not there");
    daemon.wait_until_ready()?;
    Ok(start)
}
