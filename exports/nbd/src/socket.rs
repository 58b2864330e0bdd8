//! A connected stream socket, Unix or TCP, seen as bytes in and out.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::Poll;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SendFlags, Shutdown};

/// Probes of a TCP peer begin after so much silence, so that dead peers do not stay for ever.
const TCP_KEEPALIVE_AFTER: Duration = Duration::from_secs(60);

/// Bytes the kernel is asked to keep for the peer, so that a long reply is handed over in few
/// pieces. The kernel may grant less.
const SEND_BUFFER_BYTES: usize = 1 << 20;

pub(crate) struct Socket {
    descriptor: OwnedFd,
}

/// Which directions of a socket to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing more is received once what has arrived was taken. Replies still go out.
    Receiving,
    /// Calls that wait for the peer return.
    Both,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Socket {
    pub(crate) fn unix(descriptor: OwnedFd) -> Self {
        let socket = Self { descriptor };
        socket.tune("enlarge the send buffer", |socket| {
            sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER_BYTES)
        });
        socket
    }

    pub(crate) fn tcp(descriptor: OwnedFd) -> Self {
        let socket = Self { descriptor };
        socket.tune("send at once", |socket| sockopt::set_tcp_nodelay(socket, true));
        socket.tune("watch for dead peers", |socket| {
            sockopt::set_socket_keepalive(socket, true)?;
            sockopt::set_tcp_keepidle(socket, TCP_KEEPALIVE_AFTER)
        });
        socket
    }

    /// What has arrived, or zero bytes when the peer has ended the connection. Never waits.
    pub(crate) fn receive_now(&self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            match rustix::net::recv(&self.descriptor, &mut *into, RecvFlags::DONTWAIT) {
                Ok((_, count)) => return Poll::Ready(Ok(count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// As [`Socket::receive_now`], but waits until there is something to say.
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.descriptor, &mut *into, RecvFlags::empty()) {
                Ok((_, count)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Hands over at least one byte, waiting for a peer that does not take any.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::net::send(&self.descriptor, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Bounds each wait of [`Socket::receive`] and [`Socket::send`], which then fail with
    /// `WouldBlock`. `None` waits for ever.
    pub(crate) fn set_time_max(&self, time_max: Option<Duration>) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.descriptor, Timeout::Recv, time_max)?;
        sockopt::set_socket_timeout(&self.descriptor, Timeout::Send, time_max)?;
        Ok(())
    }

    pub(crate) fn end(&self, end: End) {
        let how = match end {
            End::Receiving => Shutdown::Read,
            End::Both => Shutdown::Both,
        };
        if let Err(error) = rustix::net::shutdown(&self.descriptor, how) {
            // The peer was faster.
            tracing::trace!(%error, "the connection had ended");
        }
    }

    /// Settings that make a connection better, and without which it works.
    fn tune(&self, what: &str, set: impl Fn(&OwnedFd) -> rustix::io::Result<()>) {
        if let Err(error) = set(&self.descriptor) {
            tracing::debug!(%error, "cannot make an NBD connection {what}");
        }
    }
}
