//! The daemon is repeatedly killed with SIGKILL under the requests of a virtual machine, which
//! notices nothing: every request is answered once, and acknowledged writes are present.
//!
//! `MEMLANE_KILLS` is the number of kills. `MEMLANE_SEED` replays a run, as far as the machine's
//! timing permits.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use front_end::{Answer, Ask, FrontEnd, Options, Request, Status};
use system::{Daemon, DaemonOptions, Random, seed};

const KILLS_DEFAULT: u64 = 30;
const TIME_LIMIT: Duration = Duration::from_secs(120);

const QUEUES: usize = 2;
const IN_FLIGHT_MAX: usize = 24;
const BLOCKS: usize = 2048;
const BLOCK_BYTES: u32 = 4096;

/// Maximum number of answers before a kill.
const ANSWERS_MAX: u64 = 1500;

/// Effect of a request in flight on its block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Read,
    /// The version being written.
    Write(u64),
    Zero,
    Flush,
}

/// A machine that records the expected contents of its disk.
struct Machine {
    front_end: FrontEnd,
    /// Version in each block, or 0 for zeros.
    versions: Vec<u64>,
    is_busy: Vec<bool>,
    /// Requests by queue and slot.
    doing: Vec<Vec<Option<(usize, Doing)>>>,
    last_version: u64,
    answer_count: u64,
}

fn contents(block: usize, version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; BLOCK_BYTES as usize];
    }
    let word = version << 16 | block as u64;
    word.to_le_bytes().repeat(BLOCK_BYTES as usize / 8)
}

impl Machine {
    fn connect(socket: &Path) -> Result<Self> {
        let options =
            Options { queue_count: QUEUES, data_bytes_max: BLOCK_BYTES, ..Options::default() };
        Ok(Self {
            front_end: FrontEnd::connected(options, socket)?,
            versions: vec![0; BLOCKS],
            is_busy: vec![false; BLOCKS],
            doing: vec![vec![None; options.ring_size.into()]; QUEUES],
            last_version: 0,
            answer_count: 0,
        })
    }

    fn in_flight(&mut self) -> usize {
        self.front_end.drivers().iter().map(|driver| driver.in_flight()).sum()
    }

    /// Keeps every queue busy.
    fn submit(&mut self, random: &mut Random) -> Result<()> {
        for queue in 0..QUEUES {
            while self.front_end.drivers()[queue].in_flight() < IN_FLIGHT_MAX {
                self.submit_one(queue, random)?;
            }
        }
        Ok(())
    }

    fn submit_one(&mut self, queue: usize, random: &mut Random) -> Result<()> {
        let block = loop {
            let block = usize::try_from(random.below(BLOCKS as u64))?;
            if !self.is_busy[block] {
                break block;
            }
        };
        let (offset, length) = (block as u64 * u64::from(BLOCK_BYTES), BLOCK_BYTES);
        let (ask, doing) = match random.below(16) {
            0 => (Ask::Flush, Doing::Flush),
            1 => (Ask::Discard { offset, length: length.into() }, Doing::Zero),
            2 => {
                let ask = Ask::WriteZeroes { offset, length: length.into(), may_unmap: true };
                (ask, Doing::Zero)
            }
            3..=8 => (Ask::Read { offset, length }, Doing::Read),
            _ => {
                self.last_version += 1;
                let data = contents(block, self.last_version);
                (Ask::Write { offset, data }, Doing::Write(self.last_version))
            }
        };
        let is_indirect = random.below(2) == 0;
        let slot = self.front_end.drivers()[queue].submit(Request { ask, is_indirect })?;
        self.is_busy[block] = true;
        self.doing[queue][usize::from(slot)] = Some((block, doing));
        Ok(())
    }

    /// Takes and checks the available answers. Returns their number.
    fn take_answers(&mut self) -> Result<u64> {
        let mut count = 0;
        for queue in 0..QUEUES {
            while let Some(answer) = self.front_end.drivers()[queue].poll()? {
                self.check(queue, &answer)?;
                count += 1;
            }
        }
        self.answer_count += count;
        Ok(count)
    }

    fn check(&mut self, queue: usize, answer: &Answer) -> Result<()> {
        let doing = self.doing[queue][usize::from(answer.slot)].take();
        let (block, doing) = doing.context("an answer for a slot that is free")?;
        ensure!(answer.status == Status::Done, "block {block}: {:?}", answer.status);
        self.is_busy[block] = false;
        match doing {
            Doing::Flush => {}
            Doing::Zero => self.versions[block] = 0,
            Doing::Write(version) => self.versions[block] = version,
            Doing::Read => {
                let version = self.versions[block];
                let is_right = answer.data == contents(block, version);
                ensure!(is_right, "block {block} does not hold version {version}");
            }
        }
        Ok(())
    }

    /// Runs until this many answers have arrived.
    fn work(&mut self, answer_count: u64, random: &mut Random) -> Result<()> {
        let (target, deadline) = (self.answer_count + answer_count, Instant::now() + TIME_LIMIT);
        while self.answer_count < target {
            self.submit(random)?;
            if self.take_answers()? == 0 {
                std::thread::yield_now();
            }
            ensure!(Instant::now() < deadline, "answers do not come any more");
        }
        Ok(())
    }

    /// Waits until nothing is in flight.
    fn finish(&mut self) -> Result<()> {
        let deadline = Instant::now() + TIME_LIMIT;
        while self.in_flight() > 0 {
            self.take_answers()?;
            let left = self.in_flight();
            ensure!(Instant::now() < deadline, "{left} requests are never answered");
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Reads the whole disk.
    fn verify(&mut self) -> Result<()> {
        for block in 0..BLOCKS {
            let offset = block as u64 * u64::from(BLOCK_BYTES);
            let driver = self.front_end.driver();
            driver.submit(Ask::Read { offset, length: BLOCK_BYTES })?;
            let answer = driver.wait(TIME_LIMIT)?;
            ensure!(answer.status == Status::Done, "block {block}: {:?}", answer.status);
            let version = self.versions[block];
            let is_right = answer.data == contents(block, version);
            ensure!(is_right, "in the end, block {block} does not hold version {version}");
        }
        Ok(())
    }
}

fn exported(daemon: &Daemon, flags: &str) -> Result<PathBuf> {
    daemon.memlane(&format!("volume create v --size 8MiB {flags}"))?;
    let text = daemon.memlane("--json export vhost-user v --queues 2")?;
    let export: api::Export = serde_json::from_str(&text)?;
    Ok(export.socket.context("the export has a socket")?.into())
}

fn storm(flags: &str) -> Result<()> {
    let kill_count = match std::env::var("MEMLANE_KILLS") {
        Ok(text) => text.parse()?,
        Err(_) => KILLS_DEFAULT,
    };
    let seed = seed()?;
    eprintln!("replay: MEMLANE_SEED={seed} cargo test -p system --test disk_kills");
    let mut random = Random::new(seed);
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "64MiB", flags: "--no-fuse" })?;
    let socket = exported(&daemon, flags)?;
    let mut machine = Machine::connect(&socket)?;
    let mut busy_kill_count = 0;
    for _ in 0..kill_count {
        machine.work(1 + random.below(ANSWERS_MAX), &mut random)?;
        daemon.kill()?;
        // Requests answered before the kill are in the ring. The rest is in flight now.
        machine.take_answers()?;
        busy_kill_count += u64::from(machine.in_flight() > 0);
        // A machine does not notice that the daemon is gone.
        machine.submit(&mut random)?;
        daemon.launch()?;
        machine.front_end.connect(&socket, TIME_LIMIT)?;
        daemon.wait_until_ready()?;
    }
    machine.finish()?;
    machine.verify()?;
    ensure!(busy_kill_count >= kill_count / 4, "only {busy_kill_count} kills hit a busy disk");
    let answer_count = machine.answer_count;
    eprintln!(
        "measured: {kill_count} kills, {busy_kill_count} of them with requests in flight, \
         {answer_count} answers"
    );
    let refused = daemon.try_memlane("export delete v")?;
    ensure!(refused.exit_code == Some(1), "the disk of a machine is not taken away: {refused:?}");
    machine.front_end.disconnect();
    system::wait_for("the machine to be gone", TIME_LIMIT, || {
        Ok(daemon.status()?.exports.vhost_user.connected == 0)
    })?;
    daemon.memlane("export delete v")?;
    daemon.finish()
}

#[test]
fn a_machine_sees_nothing_of_kills() -> Result<()> {
    storm("")
}

#[test]
fn a_machine_on_a_journal_volume_sees_nothing_of_kills() -> Result<()> {
    storm("--durability journal")
}

#[test]
fn a_machine_waits_for_a_daemon_that_is_restarted_in_order() -> Result<()> {
    let mut random = Random::new(1);
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "64MiB", flags: "--no-fuse" })?;
    let socket = exported(&daemon, "")?;
    let mut machine = Machine::connect(&socket)?;
    machine.work(1000, &mut random)?;
    daemon.stop()?;
    machine.submit(&mut random)?;
    daemon.start_again()?;
    machine.front_end.connect(&socket, TIME_LIMIT)?;
    machine.work(1000, &mut random)?;
    daemon.memlane("volume resize v --size 16MiB")?;
    machine.front_end.wait_for_change(TIME_LIMIT)?;
    ensure!(machine.front_end.size_bytes()? == 16 << 20, "the machine sees the new size");
    machine.finish()?;
    machine.verify()?;
    machine.front_end.disconnect();
    daemon.finish()
}
