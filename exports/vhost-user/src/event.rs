//! Event descriptors: those of this crate, and those that a front end hands over.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{ReadWriteFlags, preadv2};

use crate::memory::close_on_exec;

/// What the kernel calls an event descriptor in `/proc`.
const EVENT_LINK: &[u8] = b"anon_inode:[eventfd]";

/// Where to read in what has no places.
const NO_OFFSET: u64 = u64::MAX;

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
        // No other thread reads it, so that none is surprised by this.
        let flags = fcntl_getfl(&event.0)?;
        fcntl_setfl(&event.0, flags | OFlags::NONBLOCK)?;
        Ok(event)
    }

    /// An event that this process signals. Any other kind of file is refused: writing to it could
    /// mean something, or wait for a reader.
    ///
    /// It stays as it is: the mark that calls do not wait would be that of the front end, too,
    /// which may well wait when it reads.
    pub(crate) fn to_signal(file: File) -> io::Result<Self> {
        close_on_exec(&file)?;
        let link = rustix::fs::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new())?;
        if link.as_bytes() != EVENT_LINK {
            let message = "the front end passed a descriptor that is not an eventfd";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(Self(file.into()))
    }

    /// Waits while the count is full, which no front end needs: see [`Event::make_room`].
    pub(crate) fn signal(&self) {
        if let Err(error) = rustix::io::write(&self.0, &1_u64.to_ne_bytes())
            && error != rustix::io::Errno::AGAIN
        {
            tracing::debug!(%error, "cannot signal an eventfd");
        }
    }

    /// Lets threads go on that wait to signal, and the next one not wait. Takes nothing back that
    /// is not full: the front end would miss it.
    pub(crate) fn make_room(&self) {
        if !self.is_ready(PollFlags::OUT) {
            self.take();
        }
    }

    /// Takes back what was signalled, if anything was.
    pub(crate) fn clear(&self) {
        if self.is_ready(PollFlags::IN) {
            self.take();
        }
    }

    /// Never waits, whatever the front end has made of the descriptor.
    fn take(&self) {
        let mut count = [0; 8];
        let into = &mut [IoSliceMut::new(&mut count)];
        // A thread that was quicker to take it is as good.
        let _taken = preadv2(&self.0, into, NO_OFFSET, ReadWriteFlags::NOWAIT);
    }

    fn is_ready(&self, wanted: PollFlags) -> bool {
        let mut events = [PollFd::new(&self.0, wanted)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut events, Some(&now)), Ok(1..)) && events[0].revents().contains(wanted)
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
        assert!(!event.is_ready(PollFlags::IN));
        event.signal();
        event.signal();
        assert!(event.is_ready(PollFlags::IN));
        event.clear();
        assert!(!event.is_ready(PollFlags::IN));
        event.clear();
    }

    #[test]
    fn there_is_room_in_a_full_count_as_soon_as_it_is_made() {
        let descriptor = eventfd(0, EventfdFlags::empty()).expect("an event");
        rustix::io::write(&descriptor, &(u64::MAX - 1).to_ne_bytes()).expect("there is room");
        let event = Event::to_signal(File::from(descriptor)).expect("it is an event");
        assert!(!event.is_ready(PollFlags::OUT));
        event.make_room();
        event.signal();
        event.make_room();
        assert!(event.is_ready(PollFlags::IN), "what is not full is left alone");
        event.take();
        // It would wait here if it could.
        event.take();
    }

    #[test]
    fn other_files_are_no_events() {
        let file = File::open("/dev/null").expect("the system has one");
        assert!(Event::to_signal(file).is_err());
        let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert!(Event::to_wait_for(File::from(OwnedFd::from(socket))).is_err());
    }
}
