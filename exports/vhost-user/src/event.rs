//! Eventfds, created by this crate or passed by a front end.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{ReadWriteFlags, preadv2};

use crate::memory::close_on_exec;

/// Link target of an eventfd in `/proc/self/fd`.
const EVENT_LINK: &[u8] = b"anon_inode:[eventfd]";

/// Offset for `preadv2` on a file without a position.
const NO_OFFSET: u64 = u64::MAX;

/// An eventfd.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Takes over a kick eventfd, which the front end signals and this process reads.
    pub(crate) fn to_wait_for(file: File) -> io::Result<Self> {
        let event = Self::to_signal(file)?;
        // Only this process reads it, so the flag affects nobody else.
        let flags = fcntl_getfl(&event.0)?;
        fcntl_setfl(&event.0, flags | OFlags::NONBLOCK)?;
        Ok(event)
    }

    /// Takes over a call eventfd, which this process signals. Other kinds of files are rejected:
    /// writing to them could have an effect, or block.
    ///
    /// The descriptor is not made non-blocking. The flag belongs to the open file, so it would also
    /// change the front end's reads, which may rely on blocking.
    pub(crate) fn to_signal(file: File) -> io::Result<Self> {
        close_on_exec(&file)?;
        let link = rustix::fs::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new())?;
        if link.as_bytes() != EVENT_LINK {
            let message = "the front end passed a descriptor that is not an eventfd";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(Self(file.into()))
    }

    /// Signals the eventfd. Blocks while its counter is at its maximum, see [`Event::make_room`].
    pub(crate) fn signal(&self) {
        if let Err(error) = rustix::io::write(&self.0, &1_u64.to_ne_bytes())
            && error != rustix::io::Errno::AGAIN
        {
            tracing::debug!(%error, "cannot signal an eventfd");
        }
    }

    /// Unblocks threads that wait in [`Event::signal`]. Resets the counter only if it is at its
    /// maximum, because otherwise the front end would miss signals.
    pub(crate) fn make_room(&self) {
        if !self.is_ready(PollFlags::OUT) {
            self.take();
        }
    }

    /// Resets the counter, if it is not zero.
    pub(crate) fn clear(&self) {
        if self.is_ready(PollFlags::IN) {
            self.take();
        }
    }

    /// Resets the counter. Never blocks, even if the front end made the descriptor blocking.
    fn take(&self) {
        let mut count = [0; 8];
        let into = &mut [IoSliceMut::new(&mut count)];
        // Another thread may have read the counter first, which has the same effect.
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
        // A blocking read would hang here.
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
