//! A job on a target: results of the application, of the device, and processor time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use results::{Cpu, DeviceIo, StoreUse, Time, generator_share};
use system::Tool;

use crate::targets::cpu::CpuMeter;
use crate::targets::device;
use crate::targets::fio::{self, Amount, Contents, FileEngine, Job, Outcome, Pattern, Starts};
use crate::targets::target::{Access, Target};

/// Queue depth of fills, if the access permits.
const FILL_DEPTH: u32 = 32;

const CHECKED_BYTES: u64 = 16 << 20;
const CALIBRATION_BYTES: u64 = 64 << 20;
const SECTOR_BYTES: u64 = 512;

/// Time limit, because a server may count a request just after responding.
const COUNT_TIME_LIMIT: Duration = Duration::from_secs(1);
const COUNT_LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Results of one run of one job.
#[derive(Clone, Debug)]
pub struct Measured {
    pub time: Time,
    pub outcome: Outcome,
    pub device: Option<DeviceIo>,
    pub store: Option<StoreUse>,
    pub cpu: Cpu,
    /// Duration of processor accounting: the run including start and end of the generator.
    pub watched_s: f64,
    pub generator_share: f64,
    pub command: String,
    /// Raw report of fio.
    pub raw: String,
}

/// Runs the job on the target. The target must have been filled before, because reads of unwritten
/// data are meaningless.
pub fn measure(job: &Job, target: &Target) -> Result<Measured> {
    let is_filled = matches!(target.access(), Access::Nothing) || target.is_filled_at_all();
    ensure!(is_filled || job.pattern.is_write(), "{} was never filled", target.name());
    let is_concurrent = job.jobs * job.queue_depth > 1;
    ensure!(
        !(target.loses_concurrent_writes() && is_concurrent && job.pattern.is_write()),
        "{} was seen to lose data when several writes are under way",
        target.name()
    );
    if let Some(sector_bytes) = target.device().and_then(device::sector_bytes) {
        let is_whole = job.block_bytes.is_multiple_of(sector_bytes);
        ensure!(is_whole, "{} has sectors of {sector_bytes} bytes", target.name());
    }
    let started_unix_ms = unix_ms()?;
    let before = target.device().map(device::counts).transpose()?;
    let meter = CpuMeter::start(&target.server_ids())?;
    let (outcome, raw) = fio::run(job, target)?;
    let (cpu, watched) = meter.finish()?;
    let after = target.device().map(device::counts).transpose()?;
    let used_bytes = target.used_bytes()?;
    Ok(Measured {
        time: Time { started_unix_ms, ramp_s: 0.0, duration_s: outcome.duration_s },
        generator_share: generator_share(
            outcome.io.iops,
            outcome.latency.mean,
            u64::from(job.jobs) * u64::from(job.queue_depth),
        ),
        device: after.zip(before).map(|(after, before)| device::since(after, before)),
        store: used_bytes
            .map(|used_bytes| StoreUse { written_bytes: target.size_bytes(), used_bytes }),
        cpu,
        watched_s: watched.as_secs_f64(),
        command: fio::command_line(job, target),
        outcome,
        raw,
    })
}

/// Writes the whole target with requests of `block_bytes`, unless the last fill was the same.
pub fn fill(target: &Target, block_bytes: u32) -> Result<()> {
    if matches!(target.access(), Access::Nothing) || target.is_filled_with(block_bytes) {
        return Ok(());
    }
    let queue_depth = if target.loses_concurrent_writes() { 1 } else { FILL_DEPTH };
    fio::run(&Job { queue_depth, ..once(Pattern::SequentialWrite, block_bytes) }, target)
        .with_context(|| format!("cannot fill {}", target.name()))?;
    target.note_fill(block_bytes);
    Ok(())
}

/// Writes data with checksums, reads it back and verifies it, because a target that loses data is
/// not worth measuring. If data is lost only with concurrent writes, the target is marked
/// accordingly.
pub fn check_contents(target: &Target) -> Result<()> {
    if matches!(target.access(), Access::Nothing) {
        return Ok(());
    }
    let bytes = CHECKED_BYTES.min(target.size_bytes());
    let job = once(Pattern::SequentialWrite, 4096);
    if fio::verify(&job, target, bytes).is_err() {
        fio::verify(&Job { queue_depth: 1, ..job }, target, bytes)?;
        target.note_lost_writes();
    }
    Ok(())
}

/// Returns whether requests are counted exactly, at the target's device or by the daemon, by
/// writing and reading 64 MiB. Returns `None` without counters. Done once per target.
pub fn calibrate(target: &Target) -> Result<Option<bool>> {
    if let Some(is_exact) = target.counts_exactly() {
        return Ok(Some(is_exact));
    }
    let bytes = CALIBRATION_BYTES.min(target.size_bytes()) >> 20 << 20;
    let Some(moved) = counted_copy(target, bytes)? else { return Ok(None) };
    let sectors = bytes / SECTOR_BYTES;
    let is_exact = moved.read_sectors == sectors && moved.write_sectors == sectors;
    target.note_calibration(is_exact);
    Ok(Some(is_exact))
}

/// Returns the counts of writing and reading the first `bytes` of the target with direct I/O.
/// Returns `None` without counters or direct I/O.
pub fn counted_copy(target: &Target, bytes: u64) -> Result<Option<DeviceIo>> {
    let Some(before) = target.counts()? else { return Ok(None) };
    match target.access() {
        Access::File { path, direct: true } => {
            let path = path.display();
            copy(target, bytes, ["if=/dev/urandom", &format!("of={path}"), "oflag=direct"])?;
            copy(target, bytes, [&format!("if={path}"), "of=/dev/null", "iflag=direct"])?;
        }
        Access::Nbd { .. } => {
            let job = Job { queue_depth: 1, ..once(Pattern::SequentialWrite, 1 << 20) };
            fio::verify(&job, target, bytes)?;
        }
        _ => return Ok(None),
    }
    let deadline = Instant::now() + COUNT_TIME_LIMIT;
    loop {
        let after = target.counts()?.context("the target no longer has a counter of requests")?;
        let moved = device::since(after, before);
        let is_whole = moved.read_sectors.min(moved.write_sectors) >= bytes / SECTOR_BYTES;
        if is_whole || Instant::now() >= deadline {
            return Ok(Some(moved));
        }
        std::thread::sleep(COUNT_LOOK_INTERVAL);
    }
}

fn copy(target: &Target, bytes: u64, words: [&str; 3]) -> Result<()> {
    let tool = Tool::new("env").args(target.starter());
    let tool = tool.args("dd status=none conv=notrunc bs=1M".split(' ')).args(words);
    tool.arg(format!("count={}", bytes >> 20)).check()?;
    Ok(())
}

fn once(pattern: Pattern, block_bytes: u32) -> Job {
    Job {
        pattern,
        block_bytes,
        queue_depth: FILL_DEPTH,
        jobs: 1,
        engine: FileEngine::Libaio,
        contents: Contents::Refilled,
        starts: Starts::Together,
        niceness: None,
        amount: Amount::Once,
    }
}

fn unix_ms() -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    u64::try_from(now.as_millis()).context("the clock is far in the future")
}
