//! Listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use export_kit::{SocketPlan, UnixSocket};
use rustix::net::SocketType;

use crate::error::ServerError;
use crate::transport::Socket;

/// Any process may connect. Access is checked for each export.
const UNIX_SOCKET: SocketPlan = SocketPlan { kind: SocketType::STREAM, mode: 0o666, backlog: 128 };

/// A non-blocking listening socket.
pub(crate) enum Listener {
    Unix(UnixSocket),
    Tcp(TcpListener),
}

impl Listener {
    pub(crate) fn unix(path: &Path) -> Result<Self, ServerError> {
        Ok(Self::Unix(UnixSocket::bind(path, UNIX_SOCKET)?))
    }

    /// Returns the listener and its address, which includes the port if the kernel chose it.
    pub(crate) fn tcp(address: SocketAddr) -> Result<(Self, SocketAddr), ServerError> {
        let failed = |source| ServerError::ListenTcp { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok((Self::Tcp(listener), address))
    }

    /// Accepts the next client. Returns `None` if there is none.
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
