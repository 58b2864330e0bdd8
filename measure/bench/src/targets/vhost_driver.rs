//! A vhost-user-blk disk, as seen by a guest's driver: requests go through a ring in shared memory,
//! and the driver sleeps until the disk signals completions.
//!
//! The driver is that of the library `virtio-driver`, which fio's engine libblkio also uses.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use region::{Region, RegionSpec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use system::{Interruption, Random};
use virtio_driver::{
    VhostUser, VirtioBlkConfig, VirtioBlkFeatureFlags, VirtioBlkQueue, VirtioBlkReqBuf,
    VirtioBlkTransport, VirtioFeatureFlags, VirtioTransport,
};

use crate::latency::Latencies;

const QUEUE_SIZE: u16 = 128;
const SLOTS: usize = 32;
const SLOT_BYTES: usize = 128 << 10;
const SECTOR_BYTES: u64 = 512;

/// Maximum time without a response from the disk.
const ANSWER_TIME_LIMIT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// Length of the stamp that makes a block unique.
const STAMP_BYTES: usize = 8;

/// Requests of one kind at random positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VhostJob {
    pub(crate) is_write: bool,
    pub(crate) block_bytes: usize,
    pub(crate) queue_depth: usize,
    pub(crate) time: Duration,
}

/// Results of a job.
pub(crate) struct VhostOutcome {
    pub(crate) ops: u64,
    pub(crate) duration_s: f64,
    /// Latency of requests from when they were put into the ring.
    pub(crate) latencies: Latencies,
}

/// A connection with one queue.
pub(crate) struct VhostDriver {
    // Fields are dropped in order.
    queue: VirtioBlkQueue<'static, usize>,
    transport: Box<VhostUser<VirtioBlkConfig, VirtioBlkReqBuf>>,
    memory: Region,
    size_bytes: u64,
    random: Random,
    sent: [Instant; SLOTS],
    _folder: tempfile::TempDir,
}

impl VhostDriver {
    /// # Errors
    /// Fails if no server is at the socket, or it does not serve a disk.
    pub(crate) fn connect(socket: &Path, seed: u64) -> Result<Self> {
        let features = VirtioFeatureFlags::VERSION_1
            | VirtioFeatureFlags::RING_EVENT_IDX
            | VirtioFeatureFlags::RING_INDIRECT_DESC;
        let features = features.bits() | VirtioBlkFeatureFlags::FLUSH.bits();
        let path = socket.to_str().context("the path of a socket is text")?;
        let transport = VhostUser::new(path, features);
        let mut transport =
            Box::new(transport.with_context(|| format!("cannot connect to {path}"))?);
        let folder =
            tempfile::tempdir_in("/dev/shm").context("cannot create a directory in /dev/shm")?;
        let path = folder.path().join("buffers");
        let size_bytes = (SLOTS * SLOT_BYTES) as u64;
        let mut memory = Region::open(&RegionSpec { path: path.clone(), size_bytes })?;
        let file = File::options().read(true).write(true).open(path)?;
        let mut random = Random::new(seed);
        let bytes = memory.bytes_mut();
        random.fill(bytes);
        transport.map_mem_region(bytes.as_ptr().addr(), bytes.len(), file.as_raw_fd(), 0)?;
        let generic: &mut VirtioBlkTransport = &mut *transport;
        let config = generic.get_config()?;
        let mut queues = VirtioBlkQueue::setup_queues(generic, 1, QUEUE_SIZE)?;
        let mut queue = queues.pop().context("one queue was asked for")?;
        queue.set_used_notif_enabled(true);
        let size_bytes = u64::from(config.capacity) * SECTOR_BYTES;
        let sent = [Instant::now(); SLOTS];
        Ok(Self { queue, transport, memory, size_bytes, random, sent, _folder: folder })
    }

    /// Writes everything once, and verifies some of it.
    ///
    /// # Errors
    /// If a request fails, or different data is read.
    pub(crate) fn fill(&mut self) -> Result<()> {
        let count = usize::try_from(self.size_bytes / SLOT_BYTES as u64)?;
        ensure!(count > SLOTS, "the disk has {} bytes", self.size_bytes);
        for place in 0..count {
            let slot = if place < SLOTS { place } else { self.wait()? };
            self.submit(&FILL, place as u64, slot)?;
            self.kick()?;
        }
        for _ in 0..SLOTS {
            self.wait()?;
        }
        for place in [0, count as u64 / 2, count as u64 - 1] {
            self.check(place)?;
        }
        Ok(())
    }

    fn check(&mut self, place: u64) -> Result<()> {
        self.submit(&FILL, place, 0)?;
        self.kick()?;
        self.wait()?;
        let (one, other) = self.memory.bytes_mut().split_at_mut(SLOT_BYTES);
        other[..SLOT_BYTES].fill(0);
        let written = one.to_vec();
        self.submit(&VhostJob { is_write: false, ..FILL }, place, 1)?;
        self.kick()?;
        self.wait()?;
        let read = &self.memory.bytes_mut()[SLOT_BYTES..2 * SLOT_BYTES];
        ensure!(read == written, "the disk returned other data than was written to it");
        Ok(())
    }

    /// Keeps requests in flight for a time.
    ///
    /// # Errors
    /// If a request fails or does not complete, or Ctrl-C is pressed.
    pub(crate) fn run(&mut self, job: &VhostJob) -> Result<VhostOutcome> {
        let VhostJob { block_bytes, queue_depth, .. } = *job;
        ensure!(queue_depth <= SLOTS && block_bytes <= SLOT_BYTES, "{job:?} has no buffers");
        let mut latencies = Latencies::new();
        let begun = Instant::now();
        for slot in 0..queue_depth {
            self.submit_anywhere(job, slot)?;
        }
        self.kick()?;
        while begun.elapsed() < job.time {
            let mut answered = Some(self.wait()?);
            while let Some(slot) = answered {
                latencies.record_time(self.sent[slot].elapsed());
                self.submit_anywhere(job, slot)?;
                answered = self.next_answer()?;
            }
            self.kick()?;
        }
        let duration_s = begun.elapsed().as_secs_f64();
        for _ in 0..queue_depth {
            self.wait()?;
        }
        Ok(VhostOutcome { ops: latencies.count(), duration_s, latencies })
    }

    fn submit_anywhere(&mut self, job: &VhostJob, slot: usize) -> Result<()> {
        let places = self.size_bytes / job.block_bytes as u64;
        let place = self.random.below(places);
        self.submit(job, place, slot)
    }

    fn submit(&mut self, job: &VhostJob, place: u64, slot: usize) -> Result<()> {
        let stamp = self.random.below(u64::MAX);
        let begin = slot * SLOT_BYTES;
        let buffer = &mut self.memory.bytes_mut()[begin..begin + job.block_bytes];
        let offset = place * job.block_bytes as u64;
        self.sent[slot] = Instant::now();
        if !job.is_write {
            return Ok(self.queue.read(offset, buffer, slot)?);
        }
        // Makes each page unique.
        for page in buffer.chunks_mut(4096) {
            page[..STAMP_BYTES].copy_from_slice(&stamp.to_le_bytes());
        }
        Ok(self.queue.write(offset, buffer, slot)?)
    }

    fn kick(&mut self) -> Result<()> {
        if self.queue.avail_notif_needed() {
            self.transport.get_submission_notifier(0).notify()?;
        }
        Ok(())
    }

    /// Returns the buffer of a completed request, if any.
    fn next_answer(&mut self) -> Result<Option<usize>> {
        let Some(done) = self.queue.completions().next() else { return Ok(None) };
        ensure!(done.ret == 0, "a request failed with {}", done.ret);
        Ok(Some(done.context))
    }

    fn wait(&mut self) -> Result<usize> {
        loop {
            if let Some(slot) = self.next_answer()? {
                return Ok(slot);
            }
            ensure!(!Interruption::is_asked_for(), "interrupted while a disk was measured");
            let told = self.transport.get_completion_fd(0);
            // A disk may have set it to non-blocking for both sides, as QEMU does.
            let mut events = [PollFd::new(&told, PollFlags::IN)];
            let count = poll(&mut events, Some(&ANSWER_TIME_LIMIT))?;
            ensure!(count > 0, "the disk does not answer");
            told.read()?;
        }
    }
}

const FILL: VhostJob =
    VhostJob { is_write: true, block_bytes: SLOT_BYTES, queue_depth: SLOTS, time: Duration::ZERO };
