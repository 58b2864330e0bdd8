//! The public API: a client opens volumes; a device is an open volume.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use block_device::{ByteRange, Geometry, SectorSize, Zeroes};
use shared_ring::{Access, LANES_MAX, Target};

use crate::buffers::Buffers;
use crate::error::ClientError;
use crate::fork;
use crate::lane::Lane;
use crate::link::{Link, LinkError};
use crate::origin::{ClientOptions, Origin};
use crate::process::Process;
use crate::request::Request;
use crate::transfer::{self, Failure};

/// Client of a daemon on this host.
#[derive(Clone, Debug)]
pub struct Client {
    path: PathBuf,
    options: ClientOptions,
}

impl Client {
    /// Connects to the daemon whose ring socket is `socket`, usually `/run/memlane/ring.sock`.
    /// Fails if no daemon serves there.
    pub fn connect(socket: &Path) -> Result<Self, ClientError> {
        Self::connect_with(socket, ClientOptions::default())
    }

    /// Connects as [`Client::connect`] does, with options.
    pub fn connect_with(socket: &Path, options: ClientOptions) -> Result<Self, ClientError> {
        Link::probe(socket).map_err(|error| error.into_client_error(socket))?;
        Ok(Self { path: socket.to_owned(), options })
    }

    /// Opens a volume. Fails immediately if the daemon is not running or refuses the client. If the
    /// daemon has no room for another client, fails after [`ClientOptions::room_patience`].
    pub fn open(&self, target: &Target) -> Result<Device, ClientError> {
        let link = Link::open_when_there_is_room(&self.path, target, LANES_MAX, &self.options)
            .map_err(|error: LinkError| error.into_client_error(&self.path))?;
        let opened = &link.opened;
        let sector = match opened.sector_bytes {
            512 => SectorSize::Bytes512,
            _ => SectorSize::Bytes4096,
        };
        let origin = Origin {
            path: self.path.clone(),
            volume_id: opened.volume_id,
            name: opened.name.clone(),
            access: if opened.is_read_only { Access::ReadOnly } else { Access::ReadWrite },
            options: self.options,
        };
        let process = Box::new(Process::new(origin.clone(), Some(link)));
        let process = AtomicPtr::new(Box::into_raw(process));
        Ok(Device { shared: Arc::new(Shared { origin, sector, process }) })
    }
}

/// An open volume; thread-safe. Clones share it, and dropping the last one closes it.
///
/// Requests may start at any byte and have any length; whole blocks are fastest. Concurrent
/// requests have no order. Each block is read and written atomically.
#[derive(Clone)]
pub struct Device {
    shared: Arc<Shared>,
}

struct Shared {
    origin: Origin,
    sector: SectorSize,
    /// State of the device in this process, or in the one that it was forked from.
    process: AtomicPtr<Process>,
}

impl Device {
    /// Reads the bytes from `offset` on into `into`.
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ClientError> {
        self.perform(Request::read(offset, into.len()), &mut Buffers::Into(into))
    }

    /// Writes `from` at `offset`.
    #[inline]
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), ClientError> {
        self.perform(Request::write(offset, from.len()), &mut Buffers::From(from))
    }

    /// Reads as [`Device::read`] does, into several slices.
    pub fn read_vectored(
        &self,
        offset: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Result<(), ClientError> {
        let mut buffers = Buffers::IntoMany(into);
        self.perform(Request::read(offset, buffers.length()), &mut buffers)
    }

    /// Writes as [`Device::write`] does, from several slices.
    pub fn write_vectored(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), ClientError> {
        let mut buffers = Buffers::FromMany(from);
        self.perform(Request::write(offset, buffers.length()), &mut buffers)
    }

    /// Writes as [`Device::write`] does, and flushes as [`Device::flush`] does.
    pub fn write_flushed(&self, offset: u64, from: &[u8]) -> Result<(), ClientError> {
        self.write(offset, from)?;
        self.flush()
    }

    /// Makes a range read as zeros.
    pub fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), ClientError> {
        self.perform(Request::zeroes(range, zeroes), &mut Buffers::Nothing)
    }

    /// Discards the whole blocks inside a range: they read as zeros and their memory is freed.
    pub fn discard(&self, range: ByteRange) -> Result<(), ClientError> {
        self.perform(Request::discard(range), &mut Buffers::Nothing)
    }

    /// Flushes: all writes acknowledged so far become as durable as the volume's class guarantees.
    pub fn flush(&self) -> Result<(), ClientError> {
        self.perform(Request::flush(), &mut Buffers::Nothing)
    }

    /// Closes the connection if no request was made since the last call, so that the daemon has
    /// room for another client. The next request connects again. Returns whether the connection is
    /// closed. Does not wait for the daemon. Intended for programs that have more volumes open than
    /// the daemon has room for.
    pub fn rest(&self) -> bool {
        self.process().rest()
    }

    /// Opens a lane for one thread that keeps many requests in flight.
    pub fn lane(&self) -> Result<Lane, ClientError> {
        Lane::open(self.shared.origin.clone())
    }

    /// Geometry of the device, with its current size.
    pub fn geometry(&self) -> Result<Geometry, ClientError> {
        let size_bytes = self.process().link()?.ring.size_bytes();
        Ok(Geometry { size_bytes, sector: self.shared.sector })
    }

    /// Returns whether the device refuses all writes: a snapshot, or a volume that another program
    /// or a device used exclusively when it was opened. This does not change while the device is
    /// open.
    pub fn is_read_only(&self) -> bool {
        self.shared.origin.access == Access::ReadOnly
    }

    /// Id of the volume, unique in the pool and never reused.
    pub fn volume_id(&self) -> u64 {
        self.shared.origin.volume_id
    }

    /// Name of the volume when it was opened.
    pub fn name(&self) -> &str {
        &self.shared.origin.name
    }

    #[inline]
    fn perform(&self, request: Request, buffers: &mut Buffers<'_, '_>) -> Result<(), ClientError> {
        transfer::run(self.process(), request, buffers)
            .map_err(|failure| self.error(request, failure))
    }

    #[cold]
    fn error(&self, request: Request, failure: Failure) -> ClientError {
        let errno = match failure {
            Failure::Answered(errno) => errno,
            Failure::Unanswered(error) => return error,
        };
        let range = ByteRange::new(request.offset, request.length);
        let (action, name) = (request.action(), self.name());
        let cause = io::Error::from_raw_os_error(errno);
        ClientError::new(errno, format!("cannot {action} {range} of volume {name:?}: {cause}"))
    }

    /// State of the device in this process. A forked child creates it.
    #[inline]
    fn process(&self) -> &Process {
        let known = self.shared.process.load(Ordering::Acquire);
        // SAFETY:
        // - alive: processes are freed with the device alone, which `self` keeps.
        let process = unsafe { &*known };
        if process.forks == fork::count() { process } else { self.process_of_child(known) }
    }

    #[cold]
    fn process_of_child(&self, parents: *mut Process) -> &Process {
        let child = Box::new(Process::new(self.shared.origin.clone(), None));
        let child = Box::into_raw(child);
        let place = &self.shared.process;
        let exchanged = place.compare_exchange(parents, child, Ordering::AcqRel, Ordering::Acquire);
        let used = match exchanged {
            // The parent's state is leaked, because threads that do not exist here may hold its
            // locks.
            Ok(_) => child,
            Err(other) => {
                // SAFETY:
                // - one caller: no other thread has seen what this one made in vain.
                drop(unsafe { Box::from_raw(child) });
                other
            }
        };
        // SAFETY:
        // - alive: processes are freed with the device alone, which `self` keeps.
        unsafe { &*used }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let process = *self.process.get_mut();
        // SAFETY:
        // - one caller: the last owner of the device takes it, and `Client::open` or
        //   `process_of_child` made it of a box.
        let process = unsafe { Box::from_raw(process) };
        if process.forks != fork::count() {
            // The parent's state is leaked, because threads that do not exist here may hold its
            // locks.
            std::mem::forget(process);
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Device");
        debug.field("name", &self.shared.origin.name).finish_non_exhaustive()
    }
}
