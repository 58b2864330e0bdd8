//! The socket on which a front end is awaited.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::error::ExportError;

/// Owner and group may connect.
const SOCKET_MODE: u32 = 0o660;

/// Front ends that wait for the one that is connected to go.
const BACKLOG: i32 = 4;

/// A listening socket, whose file is removed with it.
pub(crate) struct Listener {
    listener: UnixListener,
    path: PathBuf,
    identity: (u64, u64),
}

impl Listener {
    /// Takes the place of a socket file that a dead process left behind.
    pub(crate) fn new(path: &Path) -> Result<Self, ExportError> {
        let failed = |source| ExportError::Listen { path: path.to_owned(), source };
        remove_stale_socket(path)?;
        let listener = bind(path).map_err(failed)?;
        let identity = identity_of(path).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned(), identity })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The next front end, or `WouldBlock` when there is none.
    pub(crate) fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nonblocking(false)?;
        Ok(stream)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if identity_of(&self.path).ok() != Some(self.identity) {
            // Somebody else has taken the name.
            return;
        }
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a disk's socket");
        }
    }
}

fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// The file has its mode, or a stricter one, from its first moment on.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(SOCKET_MODE))?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// Removes the socket of a process that is gone. Anything else is left alone and reported.
fn remove_stale_socket(path: &Path) -> Result<(), ExportError> {
    let failed = |source| ExportError::Listen { path: path.to_owned(), source };
    let file_type = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !file_type.is_socket() {
        return Err(ExportError::NotASocket { path: path.to_owned() });
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(ExportError::SocketInUse { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}
