//! QEMU's role for a disk: it shares memory, sets up rings, and reconnects.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{MemfdFlags, memfd_create};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight};
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserVirtioFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

use crate::driver::Driver;
use crate::layout::Layout;

/// User address of the guest's first byte in this front end.
const FRONT_START: u64 = 0x10_0000_0000;

const RETRY_INTERVAL: Duration = Duration::from_millis(1);

const EVENT_INDEX: u64 = 1 << 29;
const FLUSH: u64 = 1 << 9;

/// Options of the simulated machine.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub queue_count: usize,
    pub ring_size: u16,
    pub data_bytes_max: u32,
    pub has_event_index: bool,
    /// Keeps the in-flight region, like QEMU.
    pub keeps_in_flight: bool,
    /// True if the driver supports flushes.
    pub can_flush: bool,
    /// True if the guest's memory can be sealed against shrinking.
    pub can_seal: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            queue_count: 1,
            ring_size: 256,
            data_bytes_max: 64 << 10,
            has_event_index: true,
            keeps_in_flight: true,
            can_flush: true,
            can_seal: true,
        }
    }
}

/// A front end and its drivers.
pub struct FrontEnd {
    options: Options,
    memory: File,
    bytes: u64,
    drivers: Vec<Driver>,
    in_flight: Option<(VhostUserInflight, File)>,
    line: Option<Line>,
    features: u64,
}

/// A connection to an export.
struct Line {
    frontend: Frontend,
    changes: UnixStream,
}

impl FrontEnd {
    pub fn new(options: Options) -> Result<Self> {
        let layout = |queue| Layout::new(queue, options.ring_size, options.data_bytes_max);
        let bytes = layout(0).bytes() * options.queue_count as u64;
        let mut flags = MemfdFlags::CLOEXEC;
        flags.set(MemfdFlags::ALLOW_SEALING, options.can_seal);
        let memory = File::from(memfd_create("guest", flags).context("cannot make memory")?);
        memory.set_len(bytes).context("cannot size memory")?;
        let file = FileOffset::new(memory.try_clone().context("cannot share memory")?, 0);
        let range = (GuestAddress(0), usize::try_from(bytes)?, Some(file));
        let ram = GuestMemoryMmap::from_ranges_with_files([range]).context("cannot map memory")?;
        let drivers = (0..options.queue_count)
            .map(|queue| Driver::new(ram.clone(), layout(queue), options.has_event_index));
        let drivers = drivers.collect::<Result<_>>()?;
        Ok(Self { options, memory, bytes, drivers, in_flight: None, line: None, features: 0 })
    }

    /// Creates a machine that is connected to the export at `socket`.
    pub fn connected(options: Options, socket: &Path) -> Result<Self> {
        let mut front_end = Self::new(options)?;
        front_end.connect(socket, Duration::from_secs(30))?;
        Ok(front_end)
    }

    /// Connects or reconnects as soon as a server listens.
    pub fn connect(&mut self, socket: &Path, time_limit: Duration) -> Result<()> {
        let deadline = Instant::now() + time_limit;
        loop {
            let error = match self.try_connect(socket) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            ensure!(
                Instant::now() < deadline,
                "{error:#}, also after {time_limit:?}, at {}",
                socket.display()
            );
            std::thread::sleep(RETRY_INTERVAL);
        }
    }

    /// Closes the connection, like a killed front end.
    pub fn disconnect(&mut self) {
        self.line = None;
    }

    pub fn drivers(&mut self) -> &mut [Driver] {
        &mut self.drivers
    }

    pub fn driver(&mut self) -> &mut Driver {
        &mut self.drivers[0]
    }

    /// Takes the drivers, for their own threads.
    pub fn take_drivers(&mut self) -> Vec<Driver> {
        std::mem::take(&mut self.drivers)
    }

    /// Features offered by the disk.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Resets the rings of the disk.
    pub fn reset_device(&mut self) -> Result<()> {
        self.frontend()?.reset_device().context("cannot reset the device")
    }

    /// Shares the same memory again, while requests may be in flight.
    pub fn share_memory_again(&mut self) -> Result<()> {
        let region = self.region();
        let shared = self.frontend()?.set_mem_table(&[region]);
        shared.map(|_| ()).context("cannot share memory again")
    }

    /// Reads bytes of the configuration space.
    pub fn configuration(&mut self, offset: u32, count: u32) -> Result<Vec<u8>> {
        let room = vec![0; usize::try_from(count)?];
        let flags = VhostUserConfigFlags::empty();
        let read = self.frontend()?.get_config(offset, count, flags, &room);
        Ok(read.context("cannot read the configuration")?.1)
    }

    /// Returns the current size of the disk, as reported by the export.
    pub fn size_bytes(&mut self) -> Result<u64> {
        let raw = self.configuration(0, 8)?;
        let raw = raw.try_into().ok().context("a size has eight bytes")?;
        Ok(u64::from_le_bytes(raw) * 512)
    }

    /// Waits until the export reports a change of the configuration.
    pub fn wait_for_change(&mut self, time_limit: Duration) -> Result<()> {
        let changes = &mut self.line.as_mut().context("not connected")?.changes;
        changes.set_read_timeout(Some(time_limit)).context("cannot set a timeout")?;
        let mut message = [0; 12];
        changes.read_exact(&mut message).context("the export does not tell of a change")?;
        ensure!(message[0] == 2, "the export sent something else: {message:?}");
        Ok(())
    }

    /// Truncates the guest's memory at byte `start`. Drivers must not use the rest any more.
    pub fn cut_memory(&self, start: u64) -> Result<()> {
        self.memory.set_len(start).context("the memory cannot be cut")
    }

    /// Makes the export signal another eventfd after its answers.
    pub fn set_call(&mut self, queue: usize, call: &EventFd) -> Result<()> {
        self.frontend()?.set_vring_call(queue, call).context("the call is refused")
    }

    /// Stops a queue. Returns the index of the next request.
    pub fn stop_queue(&mut self, queue: usize) -> Result<u32> {
        self.frontend()?.get_vring_base(queue).context("cannot stop a queue")
    }

    /// Sets up a queue that begins with request `base`.
    pub fn start_queue(&mut self, queue: usize, base: u16) -> Result<()> {
        let line = self.line.as_mut().context("not connected")?;
        let driver = &self.drivers[queue];
        let layout = driver.layout();
        let frontend = &mut line.frontend;
        let place = VringConfigData {
            queue_max_size: layout.ring_size,
            queue_size: layout.ring_size,
            flags: 0,
            desc_table_addr: FRONT_START + layout.descriptors(),
            used_ring_addr: FRONT_START + layout.used(),
            avail_ring_addr: FRONT_START + layout.available(),
            log_addr: None,
        };
        frontend.set_vring_num(queue, layout.ring_size).context("the size is refused")?;
        frontend.set_vring_base(queue, base).context("the base is refused")?;
        frontend.set_vring_addr(queue, &place).context("the place is refused")?;
        frontend.set_vring_kick(queue, &driver.kick).context("the kick is refused")?;
        frontend.set_vring_call(queue, &driver.call).context("the call is refused")?;
        frontend.set_vring_enable(queue, true).context("the queue cannot be enabled")
    }

    fn try_connect(&mut self, socket: &Path) -> Result<()> {
        self.line = None;
        let stream = UnixStream::connect(socket).context("cannot connect")?;
        // A hung export causes an error, not a hung test.
        stream.set_read_timeout(Some(Duration::from_secs(60))).context("cannot set a timeout")?;
        let mut frontend = Frontend::from_stream(stream, self.options.queue_count as u64);
        frontend.set_owner().context("cannot own the disk")?;
        let offered = frontend.get_features().context("there are no features")?;
        self.features = offered;
        let mut features = offered;
        if !self.options.has_event_index {
            features &= !EVENT_INDEX;
        }
        if !self.options.can_flush {
            features &= !FLUSH;
        }
        let needed = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        ensure!(offered & needed != 0, "the export offers no features of the protocol");
        frontend.set_features(features).context("the features are refused")?;
        let protocol = frontend.get_protocol_features().context("there are no features")?;
        frontend.set_protocol_features(protocol).context("the features are refused")?;
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        let queue_count = frontend.get_queue_num().context("there is no number of queues")?;
        ensure!(queue_count >= self.options.queue_count as u64, "the disk has few queues");
        let (changes, theirs) = UnixStream::pair().context("there are no sockets")?;
        frontend.set_backend_request_fd(&theirs).context("changes are not told")?;
        frontend.set_mem_table(&[self.region()]).context("the memory is refused")?;
        self.line = Some(Line { frontend, changes });
        if self.options.keeps_in_flight {
            self.share_in_flight()?;
        }
        for queue in 0..self.drivers.len() {
            let base = self.drivers[queue].used_index()?;
            self.start_queue(queue, base)?;
        }
        Ok(())
    }

    fn share_in_flight(&mut self) -> Result<()> {
        let line = self.line.as_mut().context("not connected")?;
        if self.in_flight.is_none() {
            let num_queues = u16::try_from(self.options.queue_count)?;
            let queue_size = self.options.ring_size;
            let wanted = VhostUserInflight { mmap_size: 0, mmap_offset: 0, num_queues, queue_size };
            let got = line.frontend.get_inflight_fd(&wanted);
            self.in_flight = Some(got.context("there is no memory for what is in flight")?);
        }
        let (shape, file) = self.in_flight.as_ref().context("it was just made")?;
        let shared = line.frontend.set_inflight_fd(shape, file.as_raw_fd());
        shared.context("the memory for what is in flight is refused")
    }

    fn region(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: self.bytes,
            userspace_addr: FRONT_START,
            mmap_offset: 0,
            mmap_handle: self.memory.as_raw_fd(),
        }
    }

    fn frontend(&mut self) -> Result<&mut Frontend> {
        Ok(&mut self.line.as_mut().context("not connected")?.frontend)
    }

    /// Returns whether the export has closed the connection.
    pub fn is_left(&mut self) -> bool {
        let Some(line) = &mut self.line else { return true };
        // The channel for changes closes together with the connection.
        let nonblocking = line.changes.set_nonblocking(true);
        let read = line.changes.read(&mut [0]);
        let restored = line.changes.set_nonblocking(false);
        let is_open = matches!(&read, Err(error) if error.kind() == ErrorKind::WouldBlock);
        !(is_open && nonblocking.is_ok() && restored.is_ok())
    }
}
