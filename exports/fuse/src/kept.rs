//! Connection and request memory: taken over from an earlier process, or new.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use export_kit::{AttachError, AttachErrorKind};

use crate::config::{Config, Resume};
use crate::connection::Connection;
use crate::fd_store::{FdStore, Kept};
use crate::in_flight::InFlight;
use crate::mount;

/// Connection of one export, with its request memory.
pub(crate) struct Channel {
    pub(crate) connection: Connection,
    /// Memory file of `in_flight`.
    pub(crate) requests: OwnedFd,
    pub(crate) in_flight: InFlight,
}

/// Copies of descriptors in the fd store, for the next process.
pub(crate) struct KeptDescriptors {
    connection: FdStore,
    requests: FdStore,
}

impl KeptDescriptors {
    pub(crate) fn new(config: &Config) -> Self {
        let label = config.mount_point.as_os_str().as_bytes();
        let requests_label = [b"requests:", label].concat();
        Self {
            connection: FdStore::new(&config.fd_store_socket, label),
            requests: FdStore::new(&config.fd_store_socket, &requests_label),
        }
    }

    /// Starts an fd store unless one is running, and passes copies of both descriptors to it. The
    /// connection is passed last, so a process that finds it finds both.
    pub(crate) fn keep(
        &self,
        connection: &Connection,
        requests: &OwnedFd,
        config: &Config,
    ) -> Result<(), AttachError> {
        self.requests.keep(requests.as_fd(), &config.helpers)?;
        self.connection.keep(connection.as_fd(), &config.helpers)
    }

    pub(crate) fn are_kept(&self) -> bool {
        self.connection.is_keeping() && self.requests.is_keeping()
    }

    /// Makes the fd store close its copies.
    pub(crate) fn release(&self) -> Result<(), AttachError> {
        self.requests.release()?;
        self.connection.release()
    }
}

/// Takes over the connection in the fd store. Requests in flight are resent by the kernel, or found
/// in the request memory.
pub(crate) fn take_over(
    config: &Config,
    kept: &KeptDescriptors,
) -> Result<Option<Channel>, AttachError> {
    let Some(Kept { fd, generation }) = kept.connection.take() else {
        return Ok(None);
    };
    let connection = Connection::from_kept(fd);
    let examined = |error| AttachError::of_call("examine the connection that was kept", error);
    let place = config.mount_point.display();
    if !connection.is_alive().map_err(examined)? {
        tracing::warn!(%place, "the FUSE connection has ended; loop devices are lost");
        return Ok(None);
    }
    let is_mounted = mount::is_mounted(&config.mount_point)
        .map_err(|error| AttachError::of_call("read the table of mounts", error))?;
    if !is_mounted {
        tracing::warn!(%place, "the volumes were unmounted; their loop devices are lost");
        return Ok(None);
    }
    let resumed = resume(config, &connection, kept.requests.take())
        .map_err(|error| AttachError::of_call("resume the FUSE connection", error))?;
    let (requests, in_flight) = match resumed {
        Resumed::Here(requests, in_flight) => (requests, in_flight),
        Resumed::ByKernel => {
            let made = new_memory(config)?;
            kept.keep(&connection, &made.0, config)?;
            made
        }
        Resumed::Lost(why) => {
            tracing::warn!(%place, why, "cannot resume the connection; loop devices are lost");
            return Ok(None);
        }
    };
    tracing::info!(%place, generation, "took over the FUSE connection of the previous daemon");
    Ok(Some(Channel { connection, requests, in_flight }))
}

/// Result of recovering the requests in flight.
enum Resumed {
    /// They are in this memory. Or the kernel resends them, and the memory can be reused.
    Here(OwnedFd, InFlight),
    /// The kernel resends them, and there is no usable memory.
    ByKernel,
    /// They are lost, for this reason.
    Lost(&'static str),
}

/// Recovers the requests in flight. An error may be temporary, so the next start may succeed.
fn resume(config: &Config, connection: &Connection, kept: Option<Kept>) -> io::Result<Resumed> {
    let opened = match kept {
        None => None,
        Some(Kept { fd, .. }) => match InFlight::open(fd.as_fd(), config.worker_count) {
            Ok(in_flight) => Some((fd, in_flight)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
            Err(error) => return Err(error),
        },
    };
    let resent = match config.resume {
        Resume::Automatic => connection.ask_to_resend(),
        Resume::MemoryOnly => Err(io::ErrorKind::InvalidInput.into()),
    };
    match (resent, opened) {
        (Ok(()), Some((requests, in_flight))) => Ok(Resumed::Here(requests, in_flight)),
        (Ok(()), None) => Ok(Resumed::ByKernel),
        (Err(error), _) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
        (Err(_), None) => Ok(Resumed::Lost("the previous daemon left no in-flight request buffer")),
        (Err(_), Some((requests, mut in_flight))) => {
            if mount::identity(&config.mount_point)? != Some(in_flight.identity) {
                return Ok(Resumed::Lost(
                    "the in-flight request buffer belongs to another connection",
                ));
            }
            let count = in_flight.find_unanswered(|unique| connection.awaits(unique))?;
            tracing::info!(count, "repeating FUSE requests of the previous daemon");
            Ok(Resumed::Here(requests, in_flight))
        }
    }
}

/// Mounts a new connection. The fd store gets its copies before the mount, so a kill at any moment
/// leaves no mount without a kept connection.
pub(crate) fn mount_new(config: &Config, kept: &KeptDescriptors) -> Result<Channel, AttachError> {
    let connection = Connection::open().map_err(|error| {
        AttachError::new(AttachErrorKind::Unavailable, "open /dev/fuse")
            .with_hint("load the fuse module (modprobe fuse) and run as root")
            .with_source(error)
    })?;
    let (requests, in_flight) = new_memory(config)?;
    kept.keep(&connection, &requests, config)?;
    mount::mount(connection.as_fd(), in_flight.identity, &config.mount_point)
        .map_err(|error| AttachError::at_path("mount volumes at", &config.mount_point, error))?;
    Ok(Channel { connection, requests, in_flight })
}

fn new_memory(config: &Config) -> Result<(OwnedFd, InFlight), AttachError> {
    InFlight::create(config.worker_count)
        .map_err(|error| AttachError::of_call("allocate memory for FUSE requests", error))
}
