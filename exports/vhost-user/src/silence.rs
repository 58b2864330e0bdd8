//! Time limit for a front end that has not claimed the disk, while another one waits.
//!
//! One front end is served at a time. Most claim the disk at once. One that sends nothing, or never
//! reads its replies, would lock out the machine that the disk belongs to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use vhost::vhost_user::message::FrontendReq;

use crate::channel::Header;

/// Time that a front end has left once another one waits, and the time limit for a partial message.
const PATIENCE: Duration = Duration::from_secs(1);

/// State of a front end that has not yet claimed the disk.
#[derive(Debug)]
pub(crate) struct Probation {
    is_over: bool,
    /// Set once another front end waits.
    deadline: Option<Instant>,
}

impl Probation {
    pub(crate) fn begin(socket: &UnixStream) -> io::Result<Self> {
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { is_over: false, deadline: None })
    }

    /// Ends the probation of a front end that has claimed the disk or shared its memory.
    pub(crate) fn note(&mut self, served: Header, socket: &UnixStream) -> io::Result<()> {
        const TAKING: [FrontendReq; 3] =
            [FrontendReq::SET_OWNER, FrontendReq::SET_MEM_TABLE, FrontendReq::ADD_MEM_REG];
        if !self.is_over && TAKING.into_iter().any(|request| served.is(request)) {
            socket.set_read_timeout(None)?;
            self.is_over = true;
        }
        Ok(())
    }

    /// Waits for the start of a message and for room for its reply, or the end of the connection.
    /// Fails if another front end has waited at `listener` for `PATIENCE`. The library that replies
    /// would block without limit, and offers no timeout.
    pub(crate) fn wait(&mut self, socket: &UnixStream, listener: BorrowedFd<'_>) -> io::Result<()> {
        let mut awaited = PollFlags::IN;
        while !self.is_over {
            let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                let why = "it did not send SET_OWNER, and another front end connected";
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
