//! The `/dev/fuse` descriptor: one connection to the kernel, which outlives the processes that
//! serve it for as long as one of them keeps it open.

use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::reply::Reply;
use crate::server::ReplySink;

const DEVICE_PATH: &str = "/dev/fuse";

/// Result of a look for a request.
#[derive(Debug)]
pub(crate) enum Look {
    /// A message of so many bytes.
    Message(usize),
    Nothing,
    /// The kernel has ended the connection: it was unmounted or aborted.
    Ended,
}

#[derive(Debug)]
pub(crate) struct Connection {
    fd: OwnedFd,
}

impl Connection {
    /// A connection that is not mounted yet.
    pub(crate) fn open() -> io::Result<Self> {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(nonblocking)
            .open(DEVICE_PATH)?;
        Ok(Self { fd: file.into() })
    }

    /// A connection that another process began.
    pub(crate) fn from_kept(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Takes the next request if there is one. Never waits.
    pub(crate) fn look(&self, buffer: &mut [u8]) -> io::Result<Look> {
        match rustix::io::read(&self.fd, buffer) {
            Ok(length) => Ok(Look::Message(length)),
            // A request that was withdrawn while it was read is no error.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => Ok(Look::Nothing),
            Err(Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN) => Ok(Look::Ended),
            Err(error) => Err(error.into()),
        }
    }

    /// Sleeps until there may be a request, or one of `wakes` is readable.
    pub(crate) fn sleep(&self, wakes: [BorrowedFd<'_>; 2]) -> io::Result<()> {
        let [stop, relief] = wakes.map(|wake| PollFd::from_borrowed_fd(wake, PollFlags::IN));
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN), stop, relief];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the kernel still holds its side: false once it was unmounted or aborted, and
    /// before it is mounted.
    pub(crate) fn is_alive(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default()))?;
        Ok(!fds[0].revents().contains(PollFlags::ERR))
    }

    /// Has the kernel send again all requests that were taken and not answered. Kernels before 6.9
    /// refuse with "invalid argument".
    pub(crate) fn ask_to_resend(&self) -> io::Result<()> {
        rustix::io::write(&self.fd, Reply::resend_notification().bytes())?;
        Ok(())
    }

    /// Returns whether the kernel waits for the reply to a request that was taken.
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
            // The reply is not waited for any more.
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
