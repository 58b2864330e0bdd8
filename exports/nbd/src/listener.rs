//! The sockets on which clients are awaited.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::error::ServerError;
use crate::socket::Socket;

/// Everybody may connect: who may use what is asked for each export.
const UNIX_SOCKET_MODE: u32 = 0o666;

/// Clients that wait to be accepted, at most; others wait to wait.
const UNIX_BACKLOG: i32 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    Unix,
    Tcp,
}

/// A socket that gives out connections and never waits for them.
pub(crate) enum Listener {
    Unix(UnixSocket),
    Tcp(TcpListener),
}

/// A listening Unix socket, whose file is removed with it.
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    identity: FileIdentity,
}

/// Tells a file from others that had its name before, or have it afterwards.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

impl Listener {
    /// Takes the place of a socket file that a dead process left behind.
    pub(crate) fn unix(path: &Path) -> Result<Self, ServerError> {
        remove_stale_socket(path)?;
        let failed = |source| ServerError::ListenUnix { path: path.to_owned(), source };
        let listener = bind_unix(path).map_err(failed)?;
        let identity = FileIdentity::of(path).map_err(failed)?;
        let socket = UnixSocket { listener, path: path.to_owned(), identity };
        // Whatever the umask of this process has taken from the mode is given back.
        let mode = fs::Permissions::from_mode(UNIX_SOCKET_MODE);
        fs::set_permissions(path, mode).map_err(failed)?;
        Ok(Self::Unix(socket))
    }

    pub(crate) fn tcp(address: SocketAddr) -> Result<Self, ServerError> {
        let failed = |source| ServerError::ListenTcp { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self::Tcp(listener))
    }

    pub(crate) fn kind(&self) -> ListenerKind {
        match self {
            Self::Unix(_) => ListenerKind::Unix,
            Self::Tcp(_) => ListenerKind::Tcp,
        }
    }

    /// The address that TCP clients connect to, with the port that the kernel chose.
    pub(crate) fn tcp_address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Self::Unix(_) => Ok(None),
            Self::Tcp(listener) => listener.local_addr().map(Some),
        }
    }

    /// The next client, or `WouldBlock` when there is none.
    pub(crate) fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Unix(socket) => {
                let (stream, _) = socket.listener.accept()?;
                Ok(Socket::unix(OwnedFd::from(stream)))
            }
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                Ok(Socket::tcp(OwnedFd::from(stream)))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if FileIdentity::of(&self.path).ok() != Some(self.identity) {
            // Somebody else has taken the name.
            return;
        }
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the NBD socket");
        }
    }
}

impl FileIdentity {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// The file has its mode, or a stricter one, from its first moment on.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::STREAM;
    let descriptor = net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    rustix::fs::fchmod(&descriptor, Mode::from_raw_mode(UNIX_SOCKET_MODE))?;
    net::bind(&descriptor, &SocketAddrUnix::new(path)?)?;
    net::listen(&descriptor, UNIX_BACKLOG)?;
    Ok(UnixListener::from(descriptor))
}

/// Removes the socket of a process that is gone. Anything else is left alone and reported.
fn remove_stale_socket(path: &Path) -> Result<(), ServerError> {
    let failed = |source| ServerError::ListenUnix { path: path.to_owned(), source };
    let file_type = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !file_type.is_socket() {
        return Err(ServerError::NotASocket { path: path.to_owned() });
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(ServerError::SocketInUse { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}
