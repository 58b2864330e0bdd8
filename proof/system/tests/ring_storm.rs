//! The daemon is repeatedly killed with SIGKILL under clients of the ring, which repeat unanswered
//! requests: no request fails, and every acknowledged one is present.
//!
//! `MEMLANE_KILLS` is the number of kills. `MEMLANE_SEED` replays a run, as far as the machine's
//! timing permits.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sdk::{ByteRange, Client, Device, Lane, Submission, Target, Zeroes};
use system::{
    BLOCK_BYTES, Background, Contents, Daemon, DaemonOptions, Random, Stamp, Tool, seed, wait_for,
};

const KILLS_DEFAULT: u64 = 60;
const THREADS: u64 = 3;
/// Number of blocks in each thread's part of the volume.
const BLOCKS_PER_PART: usize = 2048;
const PART_BYTES: u64 = 2048 * 4096;
/// Maximum number of blocks of one request: several pieces.
const BLOCKS_PER_REQUEST: usize = 40;
const ROUND_TIME_LIMIT: Duration = Duration::from_secs(120);
/// Maximum number of requests before a kill, and of the delay after those.
const REQUESTS_MAX: u64 = 2000;
const DELAY_MICROSECONDS_MAX: u64 = 3000;
const IN_FLIGHT: usize = 32;

#[test]
fn requests_survive_every_kill() -> Result<()> {
    let kill_count = match std::env::var("MEMLANE_KILLS") {
        Ok(text) => text.parse()?,
        Err(_) => KILLS_DEFAULT,
    };
    let seed = seed()?;
    eprintln!("replay: MEMLANE_SEED={seed} cargo test -p system --test ring_storm");
    let mut random = Random::new(seed);
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "256MiB", flags: "--no-fuse" })?;
    let size = (THREADS + 1) * PART_BYTES;
    daemon.memlane(&format!("volume create db --size {size}"))?;
    let device = Client::connect(&daemon.run_dir().join("ring.sock"))?
        .open(&Target::Name("db".to_owned()))?;
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for number in 0..THREADS {
            let part = Part::new(number, random.number(), device.clone());
            let (done, is_over) = (&done, &is_over);
            workers.push(scope.spawn(move || until_over(is_over, || part.run(done, is_over))));
        }
        let part = Part::new(THREADS, random.number(), device.clone());
        let lane = device.lane()?;
        let (done, is_over) = (&done, &is_over);
        let many = || part.run_many(lane, done, is_over);
        workers.push(scope.spawn(move || until_over(is_over, many)));
        let killed = (0..kill_count).try_for_each(|_| {
            let target = done.load(Ordering::SeqCst) + random.below(REQUESTS_MAX);
            wait_for("requests to be answered", ROUND_TIME_LIMIT, || {
                Ok(done.load(Ordering::SeqCst) >= target || is_over.load(Ordering::SeqCst))
            })?;
            spin_for(Duration::from_micros(random.below(DELAY_MICROSECONDS_MAX)));
            daemon.kill()?;
            daemon.start_again()?;
            Ok::<_, anyhow::Error>(())
        });
        is_over.store(true, Ordering::SeqCst);
        for worker in workers {
            worker.join().expect("no worker panics")?;
        }
        killed
    })?;
    eprintln!("measured: {kill_count} kills, {} requests answered", done.load(Ordering::SeqCst));
    drop(device);
    daemon.finish()
}

/// Set for a run of this program as a client to be killed: the socket for opening the volume.
const CLIENT_VARIABLE: &str = "MEMLANE_TEST_RING_CLIENT";

const KILLED_CLIENTS: u64 = 20;

/// Goal: a client that dies leaks nothing in the daemon.
/// Method: processes open a volume, use it, and are killed; the daemon must have as many threads
/// and mappings afterwards as before.
#[test]
fn clients_that_are_killed_leave_nothing_in_the_daemon() -> Result<()> {
    if let Some(socket) = std::env::var_os(CLIENT_VARIABLE) {
        let client = Client::connect(Path::new(&socket))?;
        let device = client.open(&Target::Name("db".to_owned()))?;
        device.write(0, &vec![7; 16 * BLOCK_BYTES])?;
        let parent = rustix::process::getppid();
        while rustix::process::getppid() == parent {
            thread::sleep(Duration::from_millis(50));
        }
        return Ok(());
    }
    let daemon = Daemon::start(DaemonOptions { pool_size: "64MiB", flags: "--no-fuse" })?;
    daemon.memlane("volume create db --size 16MiB")?;
    let id = daemon.id().context("the daemon runs")?;
    let client_count = || anyhow::Ok(daemon.volume("db")?.ring_clients);
    let costs = || -> Result<(usize, usize)> {
        let threads = std::fs::read_dir(format!("/proc/{id}/task"))?.count();
        let maps = std::fs::read_to_string(format!("/proc/{id}/maps"))?;
        Ok((threads, maps.lines().filter(|line| line.contains("memlane-ring")).count()))
    };
    let before = costs()?;
    let test = "clients_that_are_killed_leave_nothing_in_the_daemon";
    let client = || {
        let program = Tool::new("env").arg(std::env::current_exe()?).args(["--exact", test]);
        let socket = daemon.run_dir().join("ring.sock");
        Background::start(program.env(CLIENT_VARIABLE, &socket.to_string_lossy()))
    };
    let clients = (0..KILLED_CLIENTS).map(|_| client()).collect::<Result<Vec<_>>>()?;
    wait_for(
        "all clients to be there",
        ROUND_TIME_LIMIT,
        || Ok(client_count()? == KILLED_CLIENTS),
    )?;
    let during = costs()?;
    ensure!(during.0 > before.0 && during.1 > before.1, "clients cost {before:?}, {during:?}");
    // Dropping kills them.
    drop(clients);
    wait_for("all clients to be gone", ROUND_TIME_LIMIT, || Ok(client_count()? == 0))?;
    wait_for("what they took to be given back", ROUND_TIME_LIMIT, || {
        let after = costs()?;
        Ok(after.0 <= before.0 && after.1 <= before.1)
    })?;
    daemon.finish()
}

/// Ends the storm if a worker fails, so that no other waits for it.
fn until_over(is_over: &AtomicBool, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let result = work();
    if result.is_err() {
        is_over.store(true, Ordering::SeqCst);
    }
    result
}

/// The part of the volume that one thread writes, and its expected contents.
struct Part {
    device: Device,
    number: u64,
    random: Random,
    blocks: Vec<Vec<u8>>,
    sequence: u64,
}

impl Part {
    fn new(number: u64, seed: u64, device: Device) -> Self {
        let blocks = vec![vec![0; BLOCK_BYTES]; BLOCKS_PER_PART];
        Self { device, number, random: Random::new(seed), blocks, sequence: 0 }
    }

    fn run(mut self, done: &AtomicU64, is_over: &AtomicBool) -> Result<()> {
        while !is_over.load(Ordering::SeqCst) {
            self.step()?;
            done.fetch_add(1, Ordering::SeqCst);
        }
        self.check(0, BLOCKS_PER_PART)
    }

    fn step(&mut self) -> Result<()> {
        let (first, count) = self.draw_range();
        let range = ByteRange::new(self.offset(first), (count * BLOCK_BYTES) as u64);
        match self.random.below(10) {
            0..5 => {
                let data = self.draw_data(first, count);
                self.device.write(range.start, &data)?;
            }
            5..8 => self.check(first, count)?,
            8 => {
                match self.random.below(2) {
                    0 => self.device.write_zeroes(range, Zeroes::Unmap)?,
                    _ => self.device.discard(range)?,
                }
                self.blocks[first..first + count].iter_mut().for_each(|block| block.fill(0));
            }
            _ => self.device.flush()?,
        }
        Ok(())
    }

    /// Writes with many requests in flight, and verifies the results.
    fn run_many(mut self, mut lane: Lane, done: &AtomicU64, is_over: &AtomicBool) -> Result<()> {
        let mut ended = Vec::with_capacity(IN_FLIGHT);
        while !is_over.load(Ordering::SeqCst) {
            for index in 0..IN_FLIGHT {
                let count = 1 + self.random.index(6);
                let first = index * (BLOCKS_PER_PART / IN_FLIGHT);
                let from = self.draw_data(first, count);
                lane.submit(Submission::Write { offset: self.offset(first), from })?;
            }
            while lane.pending() > 0 {
                lane.wait(&mut ended, ROUND_TIME_LIMIT);
                ensure!(!ended.is_empty(), "nothing has ended for {ROUND_TIME_LIMIT:?}");
                let failed = ended.iter().find(|completion| completion.errno != 0);
                ensure!(failed.is_none(), "a request in flight failed: {failed:?}");
                done.fetch_add(ended.drain(..).count() as u64, Ordering::SeqCst);
            }
        }
        self.check(0, BLOCKS_PER_PART)
    }

    /// Reads blocks and compares them with the last writes.
    fn check(&self, first: usize, count: usize) -> Result<()> {
        let mut bytes = vec![0; count * BLOCK_BYTES];
        self.device.read(self.offset(first), &mut bytes)?;
        let found = bytes.chunks_exact(BLOCK_BYTES);
        let wrong = (first..).zip(found).find(|(index, block)| *block != self.blocks[*index]);
        match wrong.map(|(index, _)| index) {
            None => Ok(()),
            Some(index) => Err(anyhow::anyhow!("block {index} is not what was written"))
                .with_context(|| format!("part {}", self.number)),
        }
    }

    fn draw_range(&mut self) -> (usize, usize) {
        let first = self.random.index(BLOCKS_PER_PART);
        let room = (BLOCKS_PER_PART - first).min(BLOCKS_PER_REQUEST);
        (first, 1 + self.random.index(room))
    }

    /// Returns new contents for blocks, which are expected from now on.
    fn draw_data(&mut self, first: usize, count: usize) -> Vec<u8> {
        let mut data = Vec::with_capacity(count * BLOCK_BYTES);
        for index in first..first + count {
            self.sequence += 1;
            let block = self.offset(index) / BLOCK_BYTES as u64;
            let stamp = Stamp { volume: 0, block, sequence: self.sequence };
            let block = Contents::draw(&mut self.random, stamp).block();
            self.blocks[index].copy_from_slice(&block[..]);
            data.extend(&block[..]);
        }
        data
    }

    fn offset(&self, block: usize) -> u64 {
        self.number * PART_BYTES + (block * BLOCK_BYTES) as u64
    }
}

/// Busy-waits. This is not a wait for a condition: the duration itself is random.
fn spin_for(delay: Duration) {
    let end = Instant::now() + delay;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
