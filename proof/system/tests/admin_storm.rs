//! The daemon is killed with -9 while volumes are created, renamed, resized and deleted: each
//! operation has happened or not, never half.
//!
//! `MEMLANE_KILLS` and `MEMLANE_SEED` as for the kill storm.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use system::{Daemon, DaemonOptions, NbdClient, Random, Request, seed};

const KILLS_DEFAULT: u64 = 60;
const VOLUMES_MAX: usize = 6;
const SIZE_UNIT: u64 = 4 << 20;
const SIZE_UNITS_MAX: u64 = 8;

/// The command line alone needs some of it to start and connect.
const DELAY_MICROSECONDS_MAX: u64 = 12_000;

/// What is known of each volume: its name, and its size in bytes.
type Volumes = BTreeMap<String, u64>;

#[test]
fn administrative_operations_happen_whole_or_not_at_all() -> Result<()> {
    let seed = seed()?;
    eprintln!("replay: MEMLANE_SEED={seed} cargo test -p system --test admin_storm");
    let kill_count = match std::env::var("MEMLANE_KILLS") {
        Ok(text) => text.parse()?,
        Err(_) => KILLS_DEFAULT,
    };
    storm(&mut Random::new(seed), kill_count)
}

fn storm(random: &mut Random, kill_count: u64) -> Result<()> {
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "64MiB", flags: "--no-fuse" })?;
    let empty_bytes = daemon.status()?.pool.used_bytes;
    let mut known = Volumes::new();
    let mut happened_count = 0;
    for number in 0..kill_count {
        let (words, outcome) = draw(random, &known, number);
        let delay = Duration::from_micros(random.below(DELAY_MICROSECONDS_MAX));
        let was_acknowledged = kill_during(&mut daemon, &words, delay)?;
        daemon.start_again()?;
        let found = volumes(&daemon)?;
        let has_happened = found == outcome;
        ensure!(has_happened || found == known, "{words}: {found:?} is neither old nor new");
        ensure!(has_happened || !was_acknowledged, "{words}: acknowledged, and undone");
        happened_count += u64::from(has_happened);
        known = found;
        write_somewhere(random, &daemon, &known)?;
    }
    eprintln!("measured: {kill_count} kills, {happened_count} operations happened before theirs");
    for name in known.keys() {
        daemon.memlane(&format!("volume delete {name}"))?;
    }
    system::wait_for("the memory of deleted volumes", Duration::from_secs(60), || {
        Ok(daemon.status()?.pool.used_bytes <= empty_bytes + SIZE_UNIT / 2)
    })?;
    daemon.finish()
}

/// An operation as words for the command line, and the volumes as they are once it has happened.
fn draw(random: &mut Random, known: &Volumes, number: u64) -> (String, Volumes) {
    let mut outcome = known.clone();
    let name = format!("v{number}");
    let units = 1 + random.below(SIZE_UNITS_MAX);
    let is_creation = known.is_empty() || (known.len() < VOLUMES_MAX && random.below(3) == 0);
    if is_creation {
        let size = units * SIZE_UNIT;
        outcome.insert(name.clone(), size);
        return (format!("volume create {name} --size {size}"), outcome);
    }
    let victim = known.keys().nth(random.index_below(known.len())).expect("it is below").clone();
    match random.below(3) {
        0 => {
            outcome.remove(&victim);
            (format!("volume delete {victim}"), outcome)
        }
        1 => {
            let size = outcome.remove(&victim).expect("the name was drawn from them");
            outcome.insert(name.clone(), size);
            (format!("volume rename {victim} {name}"), outcome)
        }
        _ => {
            let size = units * SIZE_UNIT;
            outcome.insert(victim.clone(), size);
            (format!("volume resize {victim} --size {size} --force"), outcome)
        }
    }
}

/// Kills the daemon `delay` after the command line was started. Returns whether that succeeded.
fn kill_during(daemon: &mut Daemon, words: &str, delay: Duration) -> Result<bool> {
    let asking = daemon.command_line(words);
    let start = Instant::now();
    let asker = thread::spawn(move || asking.run());
    while start.elapsed() < delay {
        std::hint::spin_loop();
    }
    daemon.kill()?;
    let output = asker.join().expect("a tool returns its errors")?;
    Ok(output.exit_code == Some(0))
}

fn volumes(daemon: &Daemon) -> Result<Volumes> {
    let volumes = daemon.volumes()?.into_iter();
    Ok(volumes.map(|volume| (volume.name, volume.size_bytes)).collect())
}

/// So that deleting and shrinking have something to give back.
fn write_somewhere(random: &mut Random, daemon: &Daemon, known: &Volumes) -> Result<()> {
    let Some((name, size)) = known.iter().nth(random.index_below(known.len().max(1))) else {
        return Ok(());
    };
    let mut data = vec![0; 256 << 10];
    random.fill(&mut data);
    let offset = random.below(size - (256 << 10)) / 4096 * 4096;
    NbdClient::connect(&daemon.nbd_socket(), name)?.ask(&Request::Write { offset, data })?;
    Ok(())
}
