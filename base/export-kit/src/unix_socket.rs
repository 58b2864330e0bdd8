//! Unix socket of an export.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, shutdown, socket_with,
};

use crate::start_error::StartError;

/// Settings of a socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketPlan {
    pub kind: SocketType,
    /// Mode of the socket's file. The credentials of each client are checked in addition.
    pub mode: u32,
    /// Maximum number of clients that wait to be accepted.
    pub backlog: i32,
}

/// A non-blocking listening socket. Dropping it removes its file.
#[derive(Debug)]
pub struct UnixSocket {
    socket: OwnedFd,
    path: PathBuf,
    identity: FileIdentity,
}

/// Identity of a file, to distinguish it from earlier and later files of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

impl UnixSocket {
    /// Binds the socket. A socket file of a dead process is replaced.
    pub fn bind(path: &Path, plan: SocketPlan) -> Result<Self, StartError> {
        remove_stale_socket(path, plan.kind)?;
        let failed = |source| StartError::Listen { path: path.to_owned(), source };
        let socket = listening_socket(path, plan).map_err(failed)?;
        let identity = FileIdentity::of(path).map_err(failed)?;
        let socket = Self { socket, path: path.to_owned(), identity };
        // Restores mode bits that the umask removed.
        fs::set_permissions(path, Permissions::from_mode(plan.mode)).map_err(failed)?;
        Ok(socket)
    }

    /// Accepts the next client. `None` if there is none.
    pub fn accept(&self) -> io::Result<Option<OwnedFd>> {
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

impl AsFd for UnixSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if FileIdentity::of(&self.path).ok() != Some(self.identity) {
            // Another process has replaced the file.
            return;
        }
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a socket");
        }
    }
}

impl FileIdentity {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// Shuts down one direction of a connection, or both. Calls that are blocked on it return.
pub fn end_socket(socket: &impl AsFd, how: Shutdown) {
    if let Err(error) = shutdown(socket, how) {
        // The peer has already closed the connection.
        tracing::trace!(%error, "the connection was closed");
    }
}

/// Creates the listening socket. From the beginning its file has the given mode or a stricter one.
fn listening_socket(path: &Path, plan: SocketPlan) -> io::Result<OwnedFd> {
    let socket = new_socket(plan.kind)?;
    fchmod(&socket, Mode::from_raw_mode(plan.mode))?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, plan.backlog)?;
    Ok(socket)
}

fn new_socket(kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, kind, flags, None)
}

/// Removes the socket of a dead process. Other files are left unchanged and reported.
fn remove_stale_socket(path: &Path, kind: SocketType) -> Result<(), StartError> {
    let failed = |source| StartError::Listen { path: path.to_owned(), source };
    let file_type = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !file_type.is_socket() {
        return Err(StartError::NotASocket { path: path.to_owned() });
    }
    let connected =
        new_socket(kind).and_then(|socket| connect(&socket, &SocketAddrUnix::new(path)?));
    match connected {
        // A full backlog also means that a process is serving.
        Ok(()) | Err(Errno::AGAIN) => Err(StartError::SocketInUse { path: path.to_owned() }),
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(failed),
        Err(error) => Err(failed(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: SocketPlan = SocketPlan { kind: SocketType::STREAM, mode: 0o660, backlog: 4 };

    #[test]
    fn a_socket_takes_the_place_of_a_stale_one_and_of_nothing_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("it is left behind"));
        let socket = UnixSocket::bind(&path, PLAN).expect("it is stale");
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, 0o660);
        let taken = UnixSocket::bind(&path, PLAN).expect_err("it is served");
        assert!(matches!(taken, StartError::SocketInUse { .. }), "{taken}");
        drop(socket);
        assert!(!path.exists());
        fs::write(&path, "").expect("a file");
        let file = UnixSocket::bind(&path, PLAN).expect_err("it is a file");
        assert!(matches!(file, StartError::NotASocket { .. }), "{file}");
    }

    #[test]
    fn a_socket_of_the_same_name_outlives_the_one_before() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        let first = UnixSocket::bind(&path, PLAN).expect("it is free");
        fs::remove_file(&path).expect("it is there");
        let _second = UnixSocket::bind(&path, PLAN).expect("it is free");
        drop(first);
        assert!(path.exists());
    }
}
