//! The `/dev/fuse` descriptor: a connection to the kernel. It exists as long as any process keeps
//! the descriptor open, also when no process serves it.

use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};

use crate::reply::Reply;
use crate::server::ReplySink;

const DEVICE_PATH: &str = "/dev/fuse";

/// Result of a non-blocking read.
#[derive(Debug)]
pub(crate) enum Look {
    /// A message of this length.
    Message(usize),
    Nothing,
    /// The kernel closed the connection, because it was unmounted or aborted.
    Ended,
}

#[derive(Debug)]
pub(crate) struct Connection {
    fd: OwnedFd,
}

impl Connection {
    /// Opens a connection that is not mounted yet.
    pub(crate) fn open() -> io::Result<Self> {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(nonblocking)
            .open(DEVICE_PATH)?;
        Ok(Self { fd: file.into() })
    }

    /// Wraps a connection that another process opened.
    pub(crate) fn from_kept(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Reads the next request, if there is one. Does not block.
    pub(crate) fn look(&self, buffer: &mut [u8]) -> io::Result<Look> {
        match rustix::io::read(&self.fd, buffer) {
            Ok(length) => Ok(Look::Message(length)),
            // A request that was interrupted while it was read is not an error.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => Ok(Look::Nothing),
            Err(Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN) => Ok(Look::Ended),
            Err(error) => Err(error.into()),
        }
    }

    /// Blocks until a request may be readable, or one of `wakes` is readable.
    pub(crate) fn sleep(&self, wakes: [BorrowedFd<'_>; 2]) -> io::Result<()> {
        let [stop, relief] = wakes.map(|wake| PollFd::from_borrowed_fd(wake, PollFlags::IN));
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN), stop, relief];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the kernel's side of the connection exists: false after an unmount or abort,
    /// and before the mount.
    pub(crate) fn is_alive(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        retry_on_intr(|| poll(&mut fds, Some(&Timespec::default())))?;
        Ok(!fds[0].revents().contains(PollFlags::ERR))
    }

    /// Asks the kernel to resend all requests that were read and not answered. Kernels before 6.9
    /// refuse with `EINVAL`.
    pub(crate) fn ask_to_resend(&self) -> io::Result<()> {
        rustix::io::write(&self.fd, Reply::resend_notification().bytes())?;
        Ok(())
    }

    /// Returns whether the kernel waits for the reply to a request that was read.
    pub(crate) fn awaits(&self, unique: u64) -> io::Result<bool> {
        match rustix::io::write(&self.fd, Reply::to_interrupt(unique).bytes()) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl ReplySink for Connection {
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let sent = match parts {
            [part] => rustix::io::write(&self.fd, part),
            parts => rustix::io::writev(&self.fd, parts),
        };
        match sent {
            // `ENOENT`: the kernel no longer waits for the reply.
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
