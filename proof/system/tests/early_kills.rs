//! The daemon is killed in the first moments of its pool, and serves again before the pool has all
//! of its memory: first while the host does not have it, so that nothing can wait for it, then
//! while it is being taken.
//!
//! `MEMLANE_EARLY_KILLS` is the number of pools, each with two kills. `MEMLANE_SEED` replays a run,
//! as far as the machine's timing permits. With the former, as in the long runs, kills occur up to
//! 20 s after memory is available, and pools have up to 16 GiB.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use system::{Daemon, Mounted, NbdClient, Random, Request, Tool, seed, wait_for};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const POOLS_DEFAULT: u64 = 4;

/// Memory left on a host that is short of it: less than a piece of any pool.
const ROOM_BYTES: u64 = 128 * MIB;

/// Memory that file systems need besides the pool.
const SLACK_BYTES: u64 = 16 * MIB;

/// Number of pools created until one lacks memory when its daemon is killed.
const TRIES_MAX: usize = 10;

/// Time limit for a start.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Size of one write.
const RUN_BYTES: u32 = 64 << 10;

/// Size of a storm.
struct Plan {
    pool_count: u64,
    pool_bytes_max: u64,
    delay_max: Duration,
}

fn plan() -> Result<Plan> {
    Ok(match std::env::var("MEMLANE_EARLY_KILLS") {
        Ok(text) => Plan {
            pool_count: text.parse()?,
            pool_bytes_max: 16 * GIB,
            delay_max: Duration::from_secs(20),
        },
        Err(_) => Plan {
            pool_count: POOLS_DEFAULT,
            pool_bytes_max: 2 * GIB,
            delay_max: Duration::from_millis(500),
        },
    })
}

/// Returns half of the available memory.
fn affordable_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|it| it.trim().strip_suffix("kB")).context("no such line")?;
    Ok(kib.trim().parse::<u64>()? * 512)
}

/// Memory of a host, simulated by a separate tmpfs that is small or large.
struct Memory {
    mounted: Mounted,
    _folder: tempfile::TempDir,
}

impl Memory {
    fn mount(size_bytes: u64, has_huge_pages: bool) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let plain = format!("size={size_bytes},mode=0700");
        let mount = |options: &str| {
            let mount = Tool::new("mount -t tmpfs -o").args([options, "memlane-test"]);
            mount.arg(folder.path()).run()
        };
        let huge = format!("{plain},huge=always");
        // A kernel may not support huge pages.
        if !has_huge_pages || mount(&huge)?.exit_code != Some(0) {
            let mounted = mount(&plain)?;
            ensure!(mounted.exit_code == Some(0), "{mounted:?}");
        }
        Ok(Self { mounted: Mounted::existing(folder.path()), _folder: folder })
    }

    fn region(&self) -> PathBuf {
        self.mounted.folder().join("region")
    }

    /// Memory that the pool occupies.
    fn held_bytes(&self) -> Result<u64> {
        Ok(std::fs::metadata(self.region())?.blocks() * 512)
    }

    /// Resizes the file system. Returns `false` if its contents exceed the size.
    fn resize(&self, size_bytes: u64) -> Result<bool> {
        let remount = Tool::new("mount -o").arg(format!("remount,size={size_bytes}"));
        Ok(remount.arg(self.mounted.folder()).run()?.exit_code == Some(0))
    }

    /// Limits the memory below the size of the pool. Returns `false` if the pool has almost all of
    /// it.
    fn become_short(&self, pool_bytes: u64) -> Result<bool> {
        loop {
            let size_bytes = self.held_bytes()? + ROOM_BYTES;
            if size_bytes + ROOM_BYTES > pool_bytes {
                return Ok(false);
            }
            if self.resize(size_bytes)? {
                return Ok(true);
            }
        }
    }
}

/// A pool whose host currently has too little memory for it, and its volume.
struct Fixture {
    daemon: Daemon,
    memory: Memory,
    pool_bytes: u64,
    /// Number of written runs.
    written: u64,
    random: Random,
}

impl Fixture {
    fn new(pool_bytes: u64, has_huge_pages: bool, seed: u64) -> Result<Self> {
        for _ in 0..TRIES_MAX {
            let memory = Memory::mount(pool_bytes + SLACK_BYTES, has_huge_pages)?;
            let flags = format!("--no-fuse --pool-path {}", memory.region().display());
            let daemon = Daemon::start_flagged(pool_bytes.to_string(), flags)?;
            if memory.become_short(pool_bytes)? {
                daemon.memlane("volume create v --size 64MiB --reduction none")?;
                let random = Random::new(seed);
                return Ok(Self { daemon, memory, pool_bytes, written: 0, random });
            }
            daemon.finish()?;
        }
        bail!("{TRIES_MAX} pools of {pool_bytes} bytes had their memory before they served");
    }

    /// Writes the next run of the volume, cyclically.
    fn write(&mut self, client: &mut NbdClient) -> Result<()> {
        let run = self.written % 1024;
        client.ask(&Request::Write { offset: run * u64::from(RUN_BYTES), data: noise(run) })?;
        self.written += 1;
        Ok(())
    }

    /// Writes for this time, kills the daemon, and reads once from the next one. Returns the
    /// duration of the latter, and the pool's memory at that time.
    fn kill_and_read(&mut self, delay: Duration) -> Result<(Duration, u64)> {
        let begun = Instant::now();
        let mut client = NbdClient::connect(&self.daemon.nbd_socket(), "v")?;
        for _ in 0..4 {
            self.write(&mut client)?;
        }
        while begun.elapsed() < delay {
            self.write(&mut client)?;
        }
        self.daemon.kill()?;
        drop(client);
        let run = self.random.below(self.written.min(1024));
        let read = Request::Read { offset: run * u64::from(RUN_BYTES), length: RUN_BYTES };
        let begun = Instant::now();
        self.daemon.launch()?;
        let mut found = Vec::new();
        wait_for("the first read", TIME_LIMIT, || {
            let Ok(mut client) = NbdClient::connect(&self.daemon.nbd_socket(), "v") else {
                return Ok(false);
            };
            found = client.ask(&read)?;
            Ok(true)
        })?;
        let (took, held_bytes) = (begun.elapsed(), self.memory.held_bytes()?);
        ensure!(found == noise(run), "what was written is not there");
        eprintln!(
            "a pool of {} MiB: {took:.1?} until the first read, with {} % of its memory",
            self.pool_bytes / MIB,
            held_bytes * 100 / self.pool_bytes
        );
        self.daemon.wait_until_ready()?;
        Ok((took, held_bytes))
    }

    fn lacks_memory(&self) -> Result<bool> {
        let warnings = self.daemon.status()?.warnings;
        Ok(warnings.iter().any(|warning| warning.kind == "pool_memory_missing"))
    }
}

/// Returns incompressible bytes.
fn noise(run: u64) -> Vec<u8> {
    let mut bytes = vec![0; RUN_BYTES as usize];
    Random::new(run).fill(&mut bytes);
    bytes
}

#[test]
fn the_first_read_after_an_early_kill_waits_for_no_memory() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: a small file system takes root");
        return Ok(());
    }
    let (seed, plan) = (seed()?, plan()?);
    eprintln!("replay: MEMLANE_SEED={seed} cargo test -p system --test early_kills");
    let mut random = Random::new(seed);
    let affordable = affordable_bytes()?;
    let mut times = Vec::new();
    for pool in 0..plan.pool_count {
        let pool_bytes = [1, 2, 4, 8, 16].map(|gib| gib * GIB)[random.index(5)];
        let pool_bytes = pool_bytes.min(plan.pool_bytes_max).min(affordable) >> 21 << 21;
        let mut fixture = Fixture::new(pool_bytes, pool % 2 == 0, random.number())?;
        let (took, held_bytes) = fixture.kill_and_read(Duration::ZERO)?;
        times.push(took);
        ensure!(held_bytes < pool_bytes, "the first read came with {held_bytes} of {pool_bytes}");
        wait_for("the lack of memory to be told of", TIME_LIMIT, || fixture.lacks_memory())?;
        ensure!(fixture.memory.resize(pool_bytes + SLACK_BYTES)?, "it can become larger");
        wait_for("the pool to take more", TIME_LIMIT, || {
            Ok(fixture.memory.held_bytes()? > held_bytes)
        })?;
        let delay = random.below(u64::try_from(plan.delay_max.as_micros())?);
        let (took, again_bytes) = fixture.kill_and_read(Duration::from_micros(delay))?;
        times.push(took);
        ensure!(again_bytes > held_bytes, "memory that was taken is gone");
        wait_for("nothing to lack", TIME_LIMIT, || Ok(!fixture.lacks_memory()?))?;
        let Fixture { daemon, memory, .. } = fixture;
        daemon.finish()?;
        drop(memory);
    }
    times.sort();
    let longest = times.last().copied().unwrap_or_default();
    eprintln!("measured: first read after {} early kills: longest {longest:.1?}", times.len());
    Ok(())
}
