//! One virtqueue, from the side of the guest's driver.

use std::os::fd::AsRawFd;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::layout::{DESCRIPTORS_PER_SLOT, Descriptor, Layout};

const SECTOR_BYTES: u64 = 512;

/// Flag: the driver needs no notification of used buffers.
const NO_INTERRUPT: u16 = 1;

/// Flag: the export needs no notification of available buffers.
const NO_NOTIFY: u16 = 1;

/// Operation of a request. Offsets and lengths are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    Read {
        offset: u64,
        length: u32,
    },
    Write {
        offset: u64,
        data: Vec<u8>,
    },
    Flush,
    Identify,
    Discard {
        offset: u64,
        length: u64,
    },
    WriteZeroes {
        offset: u64,
        length: u64,
        may_unmap: bool,
    },
    /// A request of any type without data.
    Other {
        kind: u32,
    },
}

/// A request and its layout in the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub ask: Ask,
    /// Uses an indirect descriptor table.
    pub is_indirect: bool,
}

impl From<Ask> for Request {
    fn from(ask: Ask) -> Self {
        Self { ask, is_indirect: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Done,
    Failed,
    Unsupported,
    /// None of those. 255 is the value before the request.
    Unknown(u8),
}

/// An answer found in the used ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub slot: u16,
    pub status: Status,
    /// Number of bytes written for the driver, as reported by the export.
    pub bytes: u32,
    /// Data of a read or an identification.
    pub data: Vec<u8>,
}

/// One queue. Requests are identified by their slot.
pub struct Driver {
    pub(crate) ram: GuestMemoryMmap,
    pub(crate) layout: Layout,
    pub(crate) kick: EventFd,
    pub(crate) call: EventFd,
    calls: Epoll,
    pub(crate) has_event_index: bool,
    next_available: u16,
    next_used: u16,
    /// Number of bytes expected in each slot in use.
    waiting: Vec<Option<u32>>,
    free: Vec<u16>,
}

impl Driver {
    pub(crate) fn new(ram: GuestMemoryMmap, layout: Layout, has_event_index: bool) -> Result<Self> {
        let slot_count = layout.slot_count();
        let event = || EventFd::new(EFD_NONBLOCK).context("cannot make an event");
        let (kick, call) = (event()?, event()?);
        let calls = Epoll::new().context("cannot wait for events")?;
        let wanted = EpollEvent::new(EventSet::IN, 0);
        calls
            .ctl(ControlOperation::Add, call.as_raw_fd(), wanted)
            .context("cannot wait for an event")?;
        Ok(Self {
            ram,
            layout,
            kick,
            call,
            calls,
            has_event_index,
            next_available: 0,
            next_used: 0,
            waiting: vec![None; slot_count.into()],
            free: (0..slot_count).rev().collect(),
        })
    }

    /// Number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.waiting.iter().flatten().count()
    }

    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) fn used_index(&self) -> Result<u16> {
        self.load(self.layout.used() + 2)
    }

    /// Puts a request into the ring and notifies the export. Returns its slot.
    pub fn submit(&mut self, request: impl Into<Request>) -> Result<u16> {
        let Request { ask, is_indirect } = request.into();
        let slot = self.free.pop().context("the queue is full")?;
        let (kind, sector, data, reads) = self.parts(&ask)?;
        let mut header = [0; 16];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&sector.to_le_bytes());
        self.write(self.layout.header(slot), &header)?;
        self.write(self.layout.status(slot), &[255])?;
        self.write(self.layout.data(slot), &data)?;
        let written = u32::try_from(data.len())?;
        ensure!(written.max(reads) <= self.layout.data_bytes_max, "the request is too long");
        let mut descriptors = vec![Descriptor {
            address: self.layout.header(slot),
            bytes: 16,
            ..Descriptor::default()
        }];
        let address = self.layout.data(slot);
        if written > 0 {
            descriptors.push(Descriptor { address, bytes: written, ..Descriptor::default() });
        }
        if reads > 0 {
            let flags = Descriptor::WRITE;
            descriptors.push(Descriptor { address, bytes: reads, flags, next: 0 });
        }
        let address = self.layout.status(slot);
        descriptors.push(Descriptor { address, bytes: 1, flags: Descriptor::WRITE, next: 0 });
        let head = slot * DESCRIPTORS_PER_SLOT;
        self.put_chain(slot, head, &descriptors, is_indirect)?;
        self.waiting[usize::from(slot)] = Some(reads);
        self.offer(head)?;
        Ok(slot)
    }

    fn put_chain(
        &self,
        slot: u16,
        head: u16,
        descriptors: &[Descriptor],
        is_indirect: bool,
    ) -> Result<()> {
        let (table, first) = match is_indirect {
            true => (self.layout.table(slot), 0),
            false => (self.layout.descriptors(), head),
        };
        let last = descriptors.len() - 1;
        for (place, descriptor) in descriptors.iter().enumerate() {
            let index = first + u16::try_from(place)?;
            let mut descriptor = *descriptor;
            if place < last {
                descriptor.flags |= Descriptor::NEXT;
                descriptor.next = index + 1;
            }
            self.write(table + u64::from(index) * 16, &descriptor.raw())?;
        }
        if is_indirect {
            let bytes = u32::try_from(descriptors.len() * 16)?;
            let flags = Descriptor::INDIRECT;
            self.put_descriptor(head, Descriptor { address: table, bytes, flags, next: 0 })?;
        }
        Ok(())
    }

    /// Returns type, sector, bytes after the header, and number of bytes to read.
    fn parts(&self, ask: &Ask) -> Result<(u32, u64, Vec<u8>, u32)> {
        let span = |offset: u64, length: u64, flags: u32| -> Result<Vec<u8>> {
            let mut raw = (offset / SECTOR_BYTES).to_le_bytes().to_vec();
            raw.extend(u32::try_from(length / SECTOR_BYTES)?.to_le_bytes());
            raw.extend(flags.to_le_bytes());
            Ok(raw)
        };
        Ok(match ask {
            Ask::Read { offset, length } => (0, offset / SECTOR_BYTES, Vec::new(), *length),
            Ask::Write { offset, data } => (1, offset / SECTOR_BYTES, data.clone(), 0),
            Ask::Flush => (4, 0, Vec::new(), 0),
            Ask::Identify => (8, 0, Vec::new(), 20),
            Ask::Discard { offset, length } => (11, 0, span(*offset, *length, 0)?, 0),
            Ask::WriteZeroes { offset, length, may_unmap } => {
                (13, 0, span(*offset, *length, u32::from(*may_unmap))?, 0)
            }
            Ask::Other { kind } => (*kind, 0, Vec::new(), 0),
        })
    }

    /// Writes any descriptor into the descriptor table.
    pub fn put_descriptor(&self, index: u16, descriptor: Descriptor) -> Result<()> {
        self.write(self.layout.descriptors() + u64::from(index) * 16, &descriptor.raw())
    }

    /// Offers any chain, and kicks if the export needs it.
    pub fn offer(&mut self, head: u16) -> Result<()> {
        let place = u64::from(self.next_available % self.layout.ring_size);
        self.write(self.layout.available() + 4 + place * 2, &head.to_le_bytes())?;
        let old = self.next_available;
        self.next_available = old.wrapping_add(1);
        self.set_available_index(self.next_available)?;
        fence(Ordering::SeqCst);
        let is_wanted = if self.has_event_index {
            let event = self.load(self.layout.used() + 4 + u64::from(self.layout.ring_size) * 8)?;
            let (new, old) = (self.next_available, old);
            new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
        } else {
            self.load(self.layout.used())? & NO_NOTIFY == 0
        };
        if is_wanted { self.kick() } else { Ok(()) }
    }

    /// Sets the available index, whether or not the entries before it are available.
    pub fn set_available_index(&self, index: u16) -> Result<()> {
        let address = GuestAddress(self.layout.available() + 2);
        self.ram.store(index.to_le(), address, Ordering::Release).context("outside the memory")
    }

    pub fn kick(&self) -> Result<()> {
        self.kick.write(1).context("cannot kick")
    }

    /// Takes the next answer, if there is one.
    pub fn poll(&mut self) -> Result<Option<Answer>> {
        let found = self.used_index()?;
        if found == self.next_used {
            return Ok(None);
        }
        let place = u64::from(self.next_used % self.layout.ring_size);
        let mut raw = [0; 8];
        self.read(self.layout.used() + 4 + place * 8, &mut raw)?;
        let [h0, h1, h2, h3, b0, b1, b2, b3] = raw;
        let head = u16::try_from(u32::from_le_bytes([h0, h1, h2, h3]))?;
        let bytes = u32::from_le_bytes([b0, b1, b2, b3]);
        self.next_used = self.next_used.wrapping_add(1);
        let slot = head / DESCRIPTORS_PER_SLOT;
        let waiting = self.waiting.get_mut(usize::from(slot)).and_then(Option::take);
        let Some(reads) = waiting.filter(|_| head.is_multiple_of(DESCRIPTORS_PER_SLOT)) else {
            bail!("an answer came for descriptor {head}, which waits for none");
        };
        self.free.push(slot);
        let mut status = [0];
        self.read(self.layout.status(slot), &mut status)?;
        let mut data = vec![0; usize::try_from(reads)?];
        self.read(self.layout.data(slot), &mut data)?;
        let status = match status {
            [0] => Status::Done,
            [1] => Status::Failed,
            [2] => Status::Unsupported,
            [other] => Status::Unknown(other),
        };
        Ok(Some(Answer { slot, status, bytes, data }))
    }

    /// Sleeps until the export signals an answer, then takes it.
    pub fn wait(&mut self, time_limit: Duration) -> Result<Answer> {
        self.wait_until(Instant::now() + time_limit)?
            .with_context(|| format!("no answer within {time_limit:?}"))
    }

    /// Same, but returns `None` if there is no answer before `deadline`.
    pub fn wait_until(&mut self, deadline: Instant) -> Result<Option<Answer>> {
        loop {
            self.want_answers()?;
            if let Some(answer) = self.poll()? {
                return Ok(Some(answer));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.sleep(left)?;
        }
    }

    /// Requests a notification of the next answer.
    fn want_answers(&self) -> Result<()> {
        if self.has_event_index {
            let event = self.layout.available() + 4 + u64::from(self.layout.ring_size) * 2;
            self.write(event, &self.next_used.to_le_bytes())?;
        } else {
            self.write(self.layout.available(), &0_u16.to_le_bytes())?;
        }
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Disables notifications of answers, for a driver that polls for them.
    pub fn want_no_calls(&self) -> Result<()> {
        ensure!(!self.has_event_index, "event indices have no way to say so");
        self.write(self.layout.available(), &NO_INTERRUPT.to_le_bytes())
    }

    fn sleep(&self, time_max: Duration) -> Result<()> {
        let milliseconds = i32::try_from(time_max.as_millis())?.max(1);
        match self.calls.wait(milliseconds, &mut [EpollEvent::default()]) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot wait for an answer"),
        }
        // Nonblocking, because there may be nothing to read.
        let _count = self.call.read();
        Ok(())
    }

    fn load(&self, address: u64) -> Result<u16> {
        let loaded = self.ram.load::<u16>(GuestAddress(address), Ordering::Acquire);
        loaded.map(u16::from_le).context("outside the memory")
    }

    /// Writes any bytes to any address of the shared memory.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.ram.write_slice(bytes, GuestAddress(address)).context("outside the memory")
    }

    /// Reads any bytes of the shared memory.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<()> {
        self.ram.read_slice(into, GuestAddress(address)).context("outside the memory")
    }
}
