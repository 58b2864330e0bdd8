//! The sockets on which clients are awaited.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use export_kit::{SocketPlan, UnixSocket};
use rustix::net::SocketType;

use crate::error::ServerError;
use crate::transport::Socket;

/// Every process may connect: what it may use is asked for each export.
const UNIX_SOCKET: SocketPlan = SocketPlan { kind: SocketType::STREAM, mode: 0o666, backlog: 128 };

/// A socket that gives out connections and never waits for them.
pub(crate) enum Listener {
    Unix(UnixSocket),
    Tcp(TcpListener),
}

impl Listener {
    pub(crate) fn unix(path: &Path) -> Result<Self, ServerError> {
        Ok(Self::Unix(UnixSocket::bind(path, UNIX_SOCKET)?))
    }

    /// Returns the address that clients connect to as well, with the port that the kernel chose.
    pub(crate) fn tcp(address: SocketAddr) -> Result<(Self, SocketAddr), ServerError> {
        let failed = |source| ServerError::ListenTcp { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok((Self::Tcp(listener), address))
    }

    /// The next client, or `None` when there is none.
    pub(crate) fn accept(&self) -> io::Result<Option<Socket>> {
        let listener = match self {
            Self::Unix(socket) => return Ok(socket.accept()?.map(Socket::unix)),
            Self::Tcp(listener) => listener,
        };
        loop {
            return match listener.accept() {
                Ok((stream, _)) => Ok(Some(Socket::tcp(OwnedFd::from(stream)))),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(None),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => continue,
                    _ => Err(error),
                },
            };
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}
