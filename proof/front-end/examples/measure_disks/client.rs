//! One disk, as a driver sees it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use region::{Region, RegionSpec};
use rustix::event::{PollFd, PollFlags, poll};
use virtio_driver::{
    VhostUser, VirtioBlkConfig, VirtioBlkFeatureFlags, VirtioBlkQueue, VirtioBlkReqBuf,
    VirtioBlkTransport, VirtioFeatureFlags, VirtioTransport,
};

const BLOCK: usize = 4096;
const SLOTS: usize = 32;
const MEMORY_BYTES: u64 = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

pub(crate) struct Client {
    // The order is that of dropping.
    queue: VirtioBlkQueue<'static, usize>,
    transport: Box<VhostUser<VirtioBlkConfig, VirtioBlkReqBuf>>,
    memory: Region,
    block_count: u64,
    random: u64,
    _folder: tempfile::TempDir,
}

impl Client {
    pub(crate) fn connect(socket: &str) -> Result<Self> {
        let features = VirtioFeatureFlags::VERSION_1
            | VirtioFeatureFlags::RING_EVENT_IDX
            | VirtioFeatureFlags::RING_INDIRECT_DESC;
        let features = features.bits() | VirtioBlkFeatureFlags::FLUSH.bits();
        let mut transport = Box::new(VhostUser::new(socket, features).context("cannot connect")?);
        let folder = tempfile::tempdir_in("/dev/shm")?;
        let path = folder.path().join("memory");
        let spec = RegionSpec { path: path.clone(), size_bytes: MEMORY_BYTES };
        let mut memory = Region::open(&spec)?;
        let file = File::options().read(true).write(true).open(path)?;
        let bytes = memory.bytes_mut();
        transport.map_mem_region(bytes.as_ptr().addr(), bytes.len(), file.as_raw_fd(), 0)?;
        let generic: &mut VirtioBlkTransport = &mut *transport;
        let config = generic.get_config()?;
        let mut queues = VirtioBlkQueue::setup_queues(generic, 1, 128)?;
        let mut queue = queues.pop().context("one queue was asked for")?;
        queue.set_used_notif_enabled(true);
        let block_count = u64::from(config.capacity) / 8;
        Ok(Self { queue, transport, memory, block_count, random: 1, _folder: folder })
    }

    /// Writes every block once.
    pub(crate) fn fill(&mut self) -> Result<()> {
        for block in 0..self.block_count {
            self.submit(Kind::Write, block, 0)?;
            self.kick()?;
            self.wait()?;
        }
        Ok(())
    }

    /// Requests in a second, with `depth` in flight at blocks drawn at random.
    pub(crate) fn run(&mut self, kind: Kind, depth: usize, time: Duration) -> Result<f64> {
        ensure!(depth <= SLOTS, "there are {SLOTS} buffers");
        let begun = Instant::now();
        let mut count = 0_u64;
        for slot in 0..depth {
            self.submit_random(kind, slot)?;
        }
        self.kick()?;
        while begun.elapsed() < time {
            let mut slot = Some(self.wait()?);
            while let Some(done) = slot {
                count += 1;
                self.submit_random(kind, done)?;
                slot = self.poll()?;
            }
            self.kick()?;
        }
        let elapsed = begun.elapsed();
        for _ in 0..depth {
            self.wait()?;
        }
        Ok(count as f64 / elapsed.as_secs_f64())
    }

    fn submit_random(&mut self, kind: Kind, slot: usize) -> Result<()> {
        let block = self.next_random() % self.block_count;
        self.submit(kind, block, slot)
    }

    fn submit(&mut self, kind: Kind, block: u64, slot: usize) -> Result<()> {
        let stamp = self.next_random();
        let buffer = &mut self.memory.bytes_mut()[slot * BLOCK..(slot + 1) * BLOCK];
        let offset = block * BLOCK as u64;
        match kind {
            Kind::Read => self.queue.read(offset, buffer, slot)?,
            Kind::Write => {
                // Every block differs from every other, and is not all zeros.
                buffer[..8].copy_from_slice(&stamp.to_le_bytes());
                buffer[8..16].copy_from_slice(&block.to_le_bytes());
                self.queue.write(offset, buffer, slot)?;
            }
        }
        Ok(())
    }

    fn next_random(&mut self) -> u64 {
        self.random =
            self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.random >> 24
    }

    fn kick(&mut self) -> Result<()> {
        if self.queue.avail_notif_needed() {
            self.transport.get_submission_notifier(0).notify()?;
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<usize>> {
        let Some(done) = self.queue.completions().next() else { return Ok(None) };
        ensure!(done.ret == 0, "a request failed with {}", done.ret);
        Ok(Some(done.context))
    }

    fn wait(&mut self) -> Result<usize> {
        loop {
            if let Some(slot) = self.poll()? {
                return Ok(slot);
            }
            let told = self.transport.get_completion_fd(0);
            // A disk may have made it return at once, for both of us: QEMU's does.
            let mut events = [PollFd::new(&told, PollFlags::IN)];
            poll(&mut events, None)?;
            told.read()?;
        }
    }
}
