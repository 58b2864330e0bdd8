//! Time that a front end may keep others out before it says that the disk is its own.
//!
//! One front end is served at a time. Most say at once what they want; one that says nothing, or
//! never takes what it is told, would keep the machine out for which the disk is.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use vhost::vhost_user::message::FrontendReq;

use crate::channel::Header;

/// What a front end has from the coming of the next one on, and for a message that has begun.
const PATIENCE: Duration = Duration::from_secs(1);

/// The time of a front end that has not yet said that the disk is its own.
#[derive(Debug)]
pub(crate) struct Probation {
    is_over: bool,
    /// Once another front end waits.
    deadline: Option<Instant>,
}

impl Probation {
    pub(crate) fn begin(socket: &UnixStream) -> io::Result<Self> {
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { is_over: false, deadline: None })
    }

    /// The disk is that of a front end which says so, or shares its memory.
    pub(crate) fn note(&mut self, served: Header, socket: &UnixStream) -> io::Result<()> {
        const TAKING: [FrontendReq; 3] =
            [FrontendReq::SET_OWNER, FrontendReq::SET_MEM_TABLE, FrontendReq::ADD_MEM_REG];
        if !self.is_over && TAKING.into_iter().any(|request| served.is(request)) {
            socket.set_read_timeout(None)?;
            self.is_over = true;
        }
        Ok(())
    }

    /// Waits for the beginning of a message and for room for its answer, or the end of the
    /// connection; fails when another front end has waited at `listener` for long enough. The
    /// library that answers would wait for room without end, and takes no timeout for one.
    pub(crate) fn wait(&mut self, socket: &UnixStream, listener: BorrowedFd<'_>) -> io::Result<()> {
        let mut awaited = PollFlags::IN;
        while !self.is_over {
            let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                let why = "it did not claim the disk (SET_OWNER), and another front end connected";
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            let mut events = vec![PollFd::from_borrowed_fd(socket.as_fd(), awaited)];
            if left.is_none() {
                events.push(PollFd::from_borrowed_fd(listener, PollFlags::IN));
            }
            let left = left.map(|left| Timespec::try_from(left).expect("it is short"));
            match poll(&mut events, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let has_come =
                |event: Option<&PollFd<'_>>| event.is_some_and(|it| !it.revents().is_empty());
            if has_come(events.get(1)) {
                self.deadline = Some(Instant::now() + PATIENCE);
            }
            match (has_come(events.first()), awaited) {
                (true, PollFlags::IN) => awaited = PollFlags::OUT,
                (true, _) => return Ok(()),
                (false, _) => {}
            }
        }
        Ok(())
    }
}
