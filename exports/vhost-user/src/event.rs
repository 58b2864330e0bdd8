//! Event descriptors: those of this crate, and those that a front end hands over.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// What the kernel calls an event descriptor in `/proc`.
const EVENT_LINK: &[u8] = b"anon_inode:[eventfd]";

/// A count that others can wait for.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// An event that a front end signals and this process takes back.
    pub(crate) fn to_wait_for(file: File) -> io::Result<Self> {
        let event = Self::to_signal(file)?;
        // Nobody else reads it, so that nobody else is surprised by this.
        let flags = fcntl_getfl(&event.0)?;
        fcntl_setfl(&event.0, flags | OFlags::NONBLOCK)?;
        Ok(event)
    }

    /// An event that this process signals. Any other kind of file is refused: writing to it could
    /// mean something, or wait for somebody.
    pub(crate) fn to_signal(file: File) -> io::Result<Self> {
        let link = rustix::fs::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new())?;
        if link.as_bytes() != EVENT_LINK {
            let message = "the front end handed over something that is no event descriptor";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(Self(file.into()))
    }

    /// Waits only for a front end that lets its count run full, and then for its own harm.
    pub(crate) fn signal(&self) {
        if let Err(error) = rustix::io::write(&self.0, &1_u64.to_ne_bytes())
            && error != rustix::io::Errno::AGAIN
        {
            tracing::debug!(%error, "an event could not be signalled");
        }
    }

    /// Takes back what was signalled, if anything was.
    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        if self.is_signalled() {
            // Whoever was quicker to take it is as good.
            let _taken = rustix::io::read(&self.0, &mut count);
        }
    }

    fn is_signalled(&self) -> bool {
        let mut events = [PollFd::new(&self.0, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut events, Some(&now)), Ok(1..))
            && events[0].revents().contains(PollFlags::IN)
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signalled_is_seen_until_it_is_taken() {
        let event = Event::new().expect("an event");
        assert!(!event.is_signalled());
        event.signal();
        event.signal();
        assert!(event.is_signalled());
        event.clear();
        assert!(!event.is_signalled());
        event.clear();
    }

    #[test]
    fn other_files_are_no_events() {
        let file = File::open("/dev/null").expect("the system has one");
        assert!(Event::to_signal(file).is_err());
        let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert!(Event::to_wait_for(File::from(OwnedFd::from(socket))).is_err());
    }
}
