//! Connection to volumes: a client of the daemon's rings.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use sdk::{Client, ClientError, ClientOptions, Device, Lane};

use crate::settings::Settings;
use crate::sys;
use crate::table::{self, Entry};

/// Lowest number of this library's descriptors. They use high numbers, or the highest available,
/// because some programs rely on low ones.
const SOCKETS_START: u64 = 4000;

/// Number of the highest descriptors used if the limit is low.
const ROOM_AT_THE_END: u64 = 64;

/// Maximum time for which a program's call waits for a free client slot of the daemon. Then the
/// kernel serves it.
const ROOM_PATIENCE: Duration = Duration::from_millis(500);

/// Object on which a descriptor is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    BlockDevice { number: u64 },
    File { file_system: u64, inode: u64 },
}

impl Target {
    /// Encodes the target as two words that identify it.
    pub(crate) fn words(self) -> [u64; 2] {
        match self {
            Self::BlockDevice { number } => [u64::MAX, number],
            Self::File { file_system, inode } => [file_system, inode],
        }
    }

    fn for_daemon(self) -> sdk::Target {
        match self {
            Self::BlockDevice { number } => sdk::Target::DeviceNumber {
                major: rustix::fs::major(number),
                minor: rustix::fs::minor(number),
            },
            Self::File { file_system, inode } => sdk::Target::File { device: file_system, inode },
        }
    }
}

/// Reason why a descriptor has no ring.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The descriptor is not a volume of this daemon.
    NoVolume,
    /// The daemon has exited and is expected to restart.
    Away,
    /// The user may not use this volume, or the daemon has no free client slot.
    Refused(ClientError),
    /// No daemon answers with a protocol version that this library knows.
    NoRing(ClientError),
}

static CLIENT: AtomicPtr<Client> = AtomicPtr::new(ptr::null_mut());

/// Opens the volume of `target`. Must not be called concurrently.
pub(crate) fn open(target: Target) -> Result<Disk, Refusal> {
    let client = match client() {
        Some(client) => client,
        None => connect().map_err(Refusal::NoRing)?,
    };
    let device = client.open(&target.for_daemon()).map_err(refusal_of)?;
    let sector = device.geometry().map_err(Refusal::Refused)?.sector;
    Ok(Disk { device, sector_bytes: u64::from(sector.bytes()) })
}

fn client() -> Option<&'static Client> {
    // PAIRS-WITH: connect, "the client is complete"
    let client = CLIENT.load(Ordering::Acquire);
    // SAFETY:
    // - alive, initialised, aligned: only leaked boxes are stored there.
    // - exclusive: no thread has it mutably.
    unsafe { client.as_ref() }
}

fn connect() -> Result<&'static Client, ClientError> {
    let options = ClientOptions {
        place_socket: keep_out_of_the_way,
        room_patience: ROOM_PATIENCE,
        ..ClientOptions::default()
    };
    let client = Client::connect_with(Settings::get().socket, options)?;
    let client: &'static Client = Box::leak(Box::new(client));
    // PAIRS-WITH: client, "the client is complete"
    CLIENT.store(ptr::from_ref(client).cast_mut(), Ordering::Release);
    Ok(client)
}

fn refusal_of(error: ClientError) -> Refusal {
    match Errno::from_raw_os_error(error.errno()) {
        Errno::NOENT | Errno::NXIO | Errno::NODEV => Refusal::NoVolume,
        Errno::CONNREFUSED | Errno::CONNRESET | Errno::AGAIN => Refusal::Away,
        Errno::PROTO | Errno::PROTONOSUPPORT => Refusal::NoRing(error),
        _ => Refusal::Refused(error),
    }
}

/// Moves a descriptor of this library to a high number, and protects it from being closed by the
/// program.
pub(crate) fn keep_out_of_the_way(socket: OwnedFd) -> OwnedFd {
    let start = sys::descriptor_limit().saturating_sub(ROOM_AT_THE_END).min(SOCKETS_START);
    let start = i32::try_from(start).unwrap_or(0);
    // If no high number is free, the number is kept.
    let socket = rustix::io::fcntl_dupfd_cloexec(socket.as_fd(), start).unwrap_or(socket);
    table::set(socket.as_raw_fd(), Entry::Own);
    socket
}

/// A volume, reached through a ring.
pub(crate) struct Disk {
    device: Device,
    pub(crate) sector_bytes: u64,
}

impl Disk {
    pub(crate) fn name(&self) -> &str {
        self.device.name()
    }

    /// Returns whether both are the same volume, even if it was renamed.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.device.volume_id() == other.device.volume_id()
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    /// Returns whether the whole range is inside the volume.
    pub(crate) fn holds(&self, offset: u64, length: u64) -> bool {
        let geometry = self.device.geometry();
        let end = offset.checked_add(length);
        end.is_some_and(|end| geometry.is_ok_and(|geometry| end <= geometry.size_bytes))
    }

    #[inline]
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ClientError> {
        self.device.read(offset, into)
    }

    #[inline]
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<(), ClientError> {
        self.device.write(offset, from)
    }

    pub(crate) fn flush(&self) -> Result<(), ClientError> {
        self.device.flush()
    }

    /// Opens a lane for many requests in flight.
    pub(crate) fn lane(&self) -> Result<Lane, ClientError> {
        self.device.lane()
    }
}
