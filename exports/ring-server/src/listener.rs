//! The socket on which clients are awaited.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};

use crate::error::ServerError;

/// Everybody may connect: who may open what is asked for each volume.
const SOCKET_MODE: u32 = 0o666;

/// Clients that wait to be accepted, at most; others wait to wait.
const BACKLOG: i32 = 128;

/// A listening socket, whose file is removed with it.
pub(crate) struct Listener {
    socket: OwnedFd,
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
    pub(crate) fn bind(path: &Path) -> Result<Self, ServerError> {
        remove_stale_socket(path)?;
        let failed = |source| ServerError::Listen { path: path.to_owned(), source };
        let socket = listening_socket(path).map_err(failed)?;
        let identity = FileIdentity::of(path).map_err(failed)?;
        let listener = Self { socket, path: path.to_owned(), identity };
        let mode = fs::Permissions::from_mode(SOCKET_MODE);
        fs::set_permissions(path, mode).map_err(failed)?;
        Ok(listener)
    }

    /// The next client, or `None` when there is none.
    pub(crate) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        loop {
            match accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => return Ok(Some(socket)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if FileIdentity::of(&self.path).ok() != Some(self.identity) {
            // Somebody else has taken the name.
            return;
        }
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the ring's socket");
        }
    }
}

impl FileIdentity {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

fn listening_socket(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Removes the socket of a process that is gone. Anything else is left alone and reported.
fn remove_stale_socket(path: &Path) -> Result<(), ServerError> {
    let failed = |source| ServerError::Listen { path: path.to_owned(), source };
    let file_type = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !file_type.is_socket() {
        return Err(ServerError::NotASocket { path: path.to_owned() });
    }
    match try_to_connect(path) {
        Ok(()) | Err(Errno::AGAIN) => Err(ServerError::SocketInUse { path: path.to_owned() }),
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(failed),
        Err(error) => Err(failed(error.into())),
    }
}

fn try_to_connect(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)
}
