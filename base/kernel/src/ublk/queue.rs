//! Requests of one queue of a device.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rustix::event::{EventfdFlags, eventfd};

use crate::ublk::abi::{QueueCommand, UblkDevice, UblkFeatures, io_command};
use crate::ublk::data::{DataPath, UblkRequest};
use crate::ublk::sys::{Buffers, Entry, Table, push};

/// User data of completions that belong to no request.
const WAKE_MARK: u64 = u64::MAX;

/// Number of ring entries in addition to those of requests: the poll of the waker.
const OTHER_ENTRIES: u32 = 1;

/// Channel to the driver through which a device is served. The device has a server while any
/// reference to it is open.
#[derive(Debug)]
pub struct UblkChannel {
    file: File,
    device: UblkDevice,
}

impl UblkChannel {
    /// Opens the channel. Fails with `ResourceBusy` if the device has a server.
    pub fn open(device: UblkDevice) -> io::Result<Self> {
        let path = format!("/dev/ublkc{}", device.id);
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self { file, device })
    }
}

/// Wakes the thread of a queue, from any thread.
#[derive(Clone, Debug)]
pub struct UblkWaker {
    event: Arc<OwnedFd>,
}

impl UblkWaker {
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { event: Arc::new(event) })
    }

    pub fn wake(&self) {
        // A full counter also wakes the thread.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    fn calm(&self) {
        let mut count = [0; 8];
        // The counter may already be zero.
        let _ = rustix::io::read(&self.event, &mut count);
    }
}

/// Event at a queue.
#[derive(Debug)]
pub enum UblkEvent {
    Request(UblkRequest),
    /// The waker was used since the last event of this kind.
    Woken,
    /// The driver withdraws one of the queue's requests permanently. When it has withdrawn all, the
    /// device is stopped.
    Withdrawn,
}

/// A queue of a device, served by the thread that created it.
///
/// Dropping it leaves the queue without a server.
pub struct UblkQueue {
    // The ring must be dropped first, because it refers to the memory of the other fields.
    ring: IoUring,
    table: Table,
    data: Arc<DataPath>,
    channel: File,
    waker: UblkWaker,
    features: UblkFeatures,
    queue: u16,
    depth: u16,
}

impl UblkQueue {
    /// Prepares the queue. All operations that can fail are done here; the driver is notified by
    /// [`UblkQueue::fetch`].
    pub fn prepare(channel: &UblkChannel, queue: u16, waker: UblkWaker) -> io::Result<Self> {
        let UblkDevice { queue_depth: depth, features, .. } = channel.device;
        let ring = IoUring::builder()
            // The thread polls for requests anyway, so it need not be interrupted.
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(u32::from(depth) + OTHER_ENTRIES)?;
        let table = Table::map(channel.file.as_fd(), queue, depth)?;
        let file = channel.file.try_clone()?;
        let data = match features.has(UblkFeatures::USER_COPY) {
            true => DataPath::Channel(channel.file.try_clone()?),
            false => {
                let bytes = channel.device.request_bytes_max;
                let bytes = usize::try_from(bytes).expect("requests fit into memory");
                DataPath::Buffers(Buffers::new(bytes, usize::from(depth))?)
            }
        };
        let data = Arc::new(data);
        let mut prepared = Self { ring, table, data, channel: file, waker, features, queue, depth };
        prepared.watch_waker()?;
        for tag in 0..depth {
            prepared.push_command(QueueCommand::Fetch, tag, 0)?;
        }
        Ok(prepared)
    }

    /// Becomes the server of the queue. This is one system call, so a killed process has done it
    /// completely or not at all.
    pub fn fetch(&mut self) -> io::Result<()> {
        self.ring.submit().map(|_| ())
    }

    /// Returns the next event, if there is one. Does not block. Queued results are submitted if the
    /// kernel requests it, or by [`UblkQueue::wait`].
    pub fn look(&mut self) -> io::Result<Option<UblkEvent>> {
        if let Some(event) = self.take()? {
            return Ok(Some(event));
        }
        if self.ring.submission().taskrun() {
            self.ring.submit()?;
            return self.take();
        }
        Ok(None)
    }

    /// Completes a request with the number of transferred bytes, or a negative error number.
    pub fn complete(&mut self, request: UblkRequest, result: i32) -> io::Result<()> {
        assert_eq!(request.queue, self.queue, "a request goes back to where it came from");
        let tag = request.tag;
        // From now on the driver may use the buffer.
        drop(request);
        self.push_command(QueueCommand::CommitAndFetch, tag, result)
    }

    /// Submits all queued results.
    pub fn send(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        self.ring.submit().map(|_| ())
    }

    /// Submits all queued results and waits for an event.
    pub fn wait(&mut self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            result => result.map(|_| ()),
        }
    }

    pub fn depth(&self) -> u16 {
        self.depth
    }

    fn take(&mut self) -> io::Result<Option<UblkEvent>> {
        let Some(completion) = self.ring.completion().next() else { return Ok(None) };
        if completion.user_data() == WAKE_MARK {
            self.waker.calm();
            self.watch_waker()?;
            return Ok(Some(UblkEvent::Woken));
        }
        let tag = u16::try_from(completion.user_data()).expect("tags are what was sent");
        match completion.result() {
            0 => {
                let descriptor = self.table.read(tag);
                let request = UblkRequest::new(self.queue, tag, descriptor, &self.data);
                Ok(Some(UblkEvent::Request(request)))
            }
            error if error == -libc::ENODEV => Ok(Some(UblkEvent::Withdrawn)),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    fn watch_waker(&mut self) -> io::Result<()> {
        let flags = u32::from(libc::POLLIN.cast_unsigned());
        let entry = opcode::PollAdd::new(Fd(self.waker.event.as_raw_fd()), flags)
            .build()
            .user_data(WAKE_MARK);
        push(&mut self.ring, &Entry::without_memory(entry))
    }

    fn push_command(&mut self, command: QueueCommand, tag: u16, result: i32) -> io::Result<()> {
        let code = command.code(self.features);
        let address = match &*self.data {
            DataPath::Channel(_) => 0,
            DataPath::Buffers(buffers) => buffers.address(tag),
        };
        let bytes = io_command(self.queue, tag, result, address);
        let entry = opcode::UringCmd16::new(Fd(self.channel.as_raw_fd()), code)
            .cmd(bytes)
            .build()
            .user_data(u64::from(tag));
        push(&mut self.ring, &Entry::without_memory(entry))
    }
}
