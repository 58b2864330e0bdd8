//! The fd store: a process that keeps connections to the kernel open while no process serves them.
//!
//! A connection ends when its last descriptor is closed, and with it all devices on it. The same
//! applies to the memory file of its requests. Therefore a small process, which the daemon starts,
//! holds copies of both descriptors. It sleeps until a process of the same user or of root asks it
//! to keep, hand out or release a descriptor. It never reads requests itself, and exits when it has
//! released the last descriptor.
//!
//! Messages have fixed sizes and are sent over a Unix socket:
//!
//! ```text
//! request   magic u64 | operation u32 | label length u32 | label, padded to 256 bytes
//! reply     magic u64 | status u32 | zero u32 | generation u64
//! ```
//!
//! Descriptors are passed as ancillary data (`SCM_RIGHTS`). The label identifies the descriptor.
//! The generation counts how often it was kept or handed out.

use std::collections::HashMap;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use export_kit::{AttachError, AttachErrorKind};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with,
};

use crate::helper_runner::HelperRunner;

const MAGIC: u64 = u64::from_ne_bytes(*b"mlnholdr");

const LABEL_BYTES_MAX: usize = 256;
const REQUEST_BYTES: usize = 16 + LABEL_BYTES_MAX;
const REPLY_BYTES: usize = 24;

/// Maximum number of descriptors in one fd store: two for each export.
const KEPT_MAX: usize = 16;

/// Timeout of callers. The fd store answers from memory.
const PATIENCE: Duration = Duration::from_secs(2);

/// Timeout of the fd store for a connected peer that sends nothing, because others may be waiting.
const PATIENCE_WITH_PEERS: Duration = Duration::from_millis(500);

/// Helper command that runs an fd store.
pub(crate) const HOLD: &str = "hold";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Operation {
    Keep = 1,
    Take = 2,
    Release = 3,
}

const OPERATIONS: [Operation; 3] = [Operation::Keep, Operation::Take, Operation::Release];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Status {
    Done = 0,
    UnknownLabel = 1,
    Full = 2,
    Malformed = 3,
}

const STATUSES: [Status; 4] = [Status::Done, Status::UnknownLabel, Status::Full, Status::Malformed];

/// Client of the fd store that listens on a socket.
#[derive(Debug)]
pub(crate) struct FdStore {
    socket: PathBuf,
    label: Vec<u8>,
}

/// A descriptor from the fd store.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) fd: OwnedFd,
    pub(crate) generation: u64,
}

impl FdStore {
    /// Creates a client. `label` is truncated to the maximum length.
    pub(crate) fn new(socket: &Path, label: &[u8]) -> Self {
        let label = label[..label.len().min(LABEL_BYTES_MAX)].to_vec();
        Self { socket: socket.to_owned(), label }
    }

    /// Starts an fd store unless one is running, and passes a copy of `fd` to it.
    pub(crate) fn keep(
        &self,
        fd: BorrowedFd<'_>,
        helpers: &HelperRunner,
    ) -> Result<(), AttachError> {
        let asked = self.ask(Operation::Keep, Some(fd));
        let answer = match asked {
            Ok(answer) => Ok(answer),
            Err(_) => self.start(helpers).and_then(|()| self.ask(Operation::Keep, Some(fd))),
        };
        match answer {
            Ok((Status::Done, ..)) => Ok(()),
            Ok((status, ..)) => Err(io::Error::other(format!("it replied {status:?}"))),
            Err(error) => Err(error),
        }
        .map_err(|error| self.error("store the connection in the fd store", error))
    }

    /// Returns the stored descriptor. `None` if there is none, or no fd store.
    pub(crate) fn take(&self) -> Option<Kept> {
        match self.ask(Operation::Take, None) {
            Ok((Status::Done, generation, Some(fd))) => Some(Kept { fd, generation }),
            Ok(_) => None,
            Err(error) => {
                tracing::debug!(
                    %error, socket = %self.socket.display(), "the fd store does not answer"
                );
                None
            }
        }
    }

    /// Returns whether the fd store is running and keeps the descriptor.
    pub(crate) fn is_keeping(&self) -> bool {
        matches!(self.ask(Operation::Take, None), Ok((Status::Done, ..)))
    }

    /// Makes the fd store close its copy.
    pub(crate) fn release(&self) -> Result<(), AttachError> {
        match self.ask(Operation::Release, None) {
            Ok(_) => Ok(()),
            Err(error) if is_absence(&error) => Ok(()),
            Err(error) => Err(self.error("remove the connection from the fd store", error)),
        }
    }

    fn start(&self, helpers: &HelperRunner) -> io::Result<()> {
        match fs::remove_file(&self.socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if let Some(parent) = self.socket.parent() {
            fs::create_dir_all(parent)?;
        }
        let listener = new_socket()?;
        bind(&listener, &SocketAddrUnix::new(&self.socket)?)?;
        fs::set_permissions(&self.socket, fs::Permissions::from_mode(0o600))?;
        // From here on requests are queued, even before the new process accepts them.
        listen(&listener, 8)?;
        let mut child = Command::new(&helpers.program)
            .args(&helpers.args)
            .arg(HOLD)
            // Identifies the owner in process listings.
            .arg(&self.socket)
            // The process is long-lived, and the daemon's environment may contain keys.
            .env_clear()
            .stdin(Stdio::from(listener))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // Waits for the fd store to exit, which is after the last descriptor is released.
        thread::Builder::new().name("fuse-holder".into()).spawn(move || child.wait())?;
        Ok(())
    }

    fn ask(
        &self,
        operation: Operation,
        fd: Option<BorrowedFd<'_>>,
    ) -> io::Result<(Status, u64, Option<OwnedFd>)> {
        let socket = new_socket()?;
        set_patience(&socket, PATIENCE)?;
        let address = SocketAddrUnix::new(&self.socket)?;
        retry_on_intr(|| connect(&socket, &address))?;
        send(&socket, &encode_request(operation, &self.label), fd)?;
        let mut reply = [0; REPLY_BYTES];
        let (length, fd) = receive(&socket, &mut reply)?;
        let (status, generation) = decode_reply(&reply[..length]).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "invalid reply of the fd store")
        })?;
        Ok((status, generation, fd))
    }

    fn error(&self, attempt: &str, source: io::Error) -> AttachError {
        AttachError::new(
            AttachErrorKind::FdStore,
            format!("{attempt} at {}", self.socket.display()),
        )
        .with_source(source)
    }
}

/// Returns whether the error means that there is no fd store, or that it exited during the request.
fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
    )
}

/// Runs the fd store until it keeps no descriptors. The listening socket is standard input.
pub(crate) fn run() -> io::Result<()> {
    detach_from_session();
    let listener = io::stdin();
    set_name();
    let mut stored = StoredDescriptors::default();
    loop {
        let peer = match accept_with(&listener, SocketFlags::CLOEXEC) {
            Ok(peer) => peer,
            Err(Errno::INTR | Errno::CONNABORTED) => continue,
            Err(error) => return Err(error.into()),
        };
        // A peer that violates the protocol loses only its own connection.
        if let Ok(Operation::Release) = serve_peer(&peer, &mut stored)
            && stored.kept.is_empty()
        {
            return Ok(());
        }
    }
}

/// Detaches the fd store from terminal, working directory and out-of-memory killer, so that none of
/// them ends it or is kept busy by it.
fn detach_from_session() {
    // Fails for a session leader, which has no controlling terminal to lose.
    let _ = rustix::process::setsid();
    // Another working directory would keep its file system busy.
    let _ = rustix::process::chdir("/");
    // Requires privileges that a test may lack; without it the fd store is not protected.
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
}

fn set_name() {
    // The name is only informative.
    let _ = rustix::thread::set_name(c"memlane-holder");
}

fn serve_peer(peer: &OwnedFd, stored: &mut StoredDescriptors) -> io::Result<Operation> {
    set_patience(peer, PATIENCE_WITH_PEERS)?;
    let uid = socket_peercred(peer)?.uid;
    if !uid.is_root() && uid != rustix::process::geteuid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut request = [0; REQUEST_BYTES];
    let (length, fd) = receive(peer, &mut request)?;
    let Some((operation, label)) = decode_request(&request[..length]) else {
        send(peer, &encode_reply(Status::Malformed, 0), None)?;
        return Err(io::ErrorKind::InvalidData.into());
    };
    let (status, generation, fd) = stored.apply(operation, label, fd);
    send(peer, &encode_reply(status, generation), fd)?;
    Ok(operation)
}

/// Descriptors in an fd store.
#[derive(Default)]
struct StoredDescriptors {
    kept: HashMap<Vec<u8>, Kept>,
}

impl StoredDescriptors {
    fn apply(
        &mut self,
        operation: Operation,
        label: &[u8],
        fd: Option<OwnedFd>,
    ) -> (Status, u64, Option<BorrowedFd<'_>>) {
        match operation {
            Operation::Keep => {
                let Some(fd) = fd else { return (Status::Malformed, 0, None) };
                if self.kept.len() >= KEPT_MAX && !self.kept.contains_key(label) {
                    return (Status::Full, 0, None);
                }
                self.kept.insert(label.to_vec(), Kept { fd, generation: 1 });
                (Status::Done, 1, None)
            }
            Operation::Take => match self.kept.get_mut(label) {
                Some(kept) => {
                    kept.generation += 1;
                    (Status::Done, kept.generation, Some(kept.fd.as_fd()))
                }
                None => (Status::UnknownLabel, 0, None),
            },
            Operation::Release => match self.kept.remove(label) {
                Some(kept) => (Status::Done, kept.generation, None),
                None => (Status::UnknownLabel, 0, None),
            },
        }
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn set_patience(socket: &OwnedFd, patience: Duration) -> io::Result<()> {
    set_socket_timeout(socket, Timeout::Recv, Some(patience))?;
    set_socket_timeout(socket, Timeout::Send, Some(patience))?;
    Ok(())
}

fn send(socket: &OwnedFd, message: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if let Some(fd) = &fd {
        let fits = ancillary.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(fd)));
        assert!(fits, "the buffer is made for one descriptor");
    }
    let parts = [IoSlice::new(message)];
    retry_on_intr(|| sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

fn receive(socket: &OwnedFd, message: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(message)];
    let received =
        retry_on_intr(|| recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
    let fd = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    if received.bytes == 0 {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    Ok((received.bytes, fd))
}

fn encode_request(operation: Operation, label: &[u8]) -> [u8; REQUEST_BYTES] {
    let label_bytes = u32::try_from(label.len()).expect("labels are cut to 256 bytes");
    let mut message = [0; REQUEST_BYTES];
    message[..8].copy_from_slice(&MAGIC.to_ne_bytes());
    message[8..12].copy_from_slice(&(operation as u32).to_ne_bytes());
    message[12..16].copy_from_slice(&label_bytes.to_ne_bytes());
    message[16..16 + label.len()].copy_from_slice(label);
    message
}

fn decode_request(message: &[u8]) -> Option<(Operation, &[u8])> {
    let (magic, rest) = message.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let (label_bytes, label) = rest.split_first_chunk()?;
    if u64::from_ne_bytes(*magic) != MAGIC || label.len() != LABEL_BYTES_MAX {
        return None;
    }
    let number = u32::from_ne_bytes(*number);
    let operation = OPERATIONS.into_iter().find(|&operation| operation as u32 == number)?;
    let label_bytes = usize::try_from(u32::from_ne_bytes(*label_bytes)).ok()?;
    Some((operation, label.get(..label_bytes)?))
}

fn encode_reply(status: Status, generation: u64) -> [u8; REPLY_BYTES] {
    let mut message = [0; REPLY_BYTES];
    message[..8].copy_from_slice(&MAGIC.to_ne_bytes());
    message[8..12].copy_from_slice(&(status as u32).to_ne_bytes());
    message[16..].copy_from_slice(&generation.to_ne_bytes());
    message
}

fn decode_reply(message: &[u8]) -> Option<(Status, u64)> {
    let message: &[u8; REPLY_BYTES] = message.try_into().ok()?;
    let (magic, rest) = message.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let generation = rest.last_chunk()?;
    if u64::from_ne_bytes(*magic) != MAGIC {
        return None;
    }
    let number = u32::from_ne_bytes(*number);
    let status = STATUSES.into_iter().find(|&status| status as u32 == number)?;
    Some((status, u64::from_ne_bytes(*generation)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use export_kit::AttachErrorKind;

    fn some_fd() -> OwnedFd {
        fs::File::open("/dev/null").expect("every system has one").into()
    }

    #[test]
    fn requests_survive_the_way() {
        for operation in [Operation::Keep, Operation::Take, Operation::Release] {
            let message = encode_request(operation, b"/run/volumes");
            assert_eq!(decode_request(&message), Some((operation, &b"/run/volumes"[..])));
        }
    }

    #[test]
    fn replies_survive_the_way() {
        for status in [Status::Done, Status::UnknownLabel, Status::Full, Status::Malformed] {
            assert_eq!(decode_reply(&encode_reply(status, 9)), Some((status, 9)));
        }
    }

    #[test]
    fn foreign_and_cut_messages_are_refused() {
        let message = encode_request(Operation::Keep, b"label");
        assert_eq!(decode_request(&message[..100]), None);
        assert_eq!(decode_request(&[0; REQUEST_BYTES]), None);
        assert_eq!(decode_reply(&[0; REPLY_BYTES]), None);
        assert_eq!(decode_reply(&[]), None);
    }

    #[test]
    fn a_label_longer_than_its_field_is_refused() {
        let mut message = encode_request(Operation::Keep, b"label");
        message[12..16].copy_from_slice(&257_u32.to_ne_bytes());
        assert_eq!(decode_request(&message), None);
    }

    #[test]
    fn what_is_kept_can_be_taken_until_it_is_released() {
        let mut stored = StoredDescriptors::default();
        assert_eq!(stored.apply(Operation::Take, b"a", None).0, Status::UnknownLabel);
        assert_eq!(stored.apply(Operation::Keep, b"a", Some(some_fd())).0, Status::Done);
        let (status, generation, fd) = stored.apply(Operation::Take, b"a", None);
        assert_eq!((status, generation, fd.is_some()), (Status::Done, 2, true));
        assert_eq!(stored.apply(Operation::Release, b"a", None).0, Status::Done);
        assert_eq!(stored.apply(Operation::Take, b"a", None).0, Status::UnknownLabel);
    }

    #[test]
    fn keeping_nothing_is_refused() {
        assert_eq!(
            StoredDescriptors::default().apply(Operation::Keep, b"a", None).0,
            Status::Malformed
        );
    }

    #[test]
    fn a_full_shelf_takes_no_more() {
        let mut stored = StoredDescriptors::default();
        for label in 0..KEPT_MAX {
            stored.apply(Operation::Keep, &label.to_ne_bytes(), Some(some_fd()));
        }
        assert_eq!(stored.apply(Operation::Keep, b"more", Some(some_fd())).0, Status::Full);
    }

    #[test]
    fn an_fd_store_that_ends_at_once_is_an_error() {
        let directory = tempfile::tempdir().expect("the temporary directory is writable");
        let fd_store = FdStore::new(&directory.path().join("holder.sock"), b"label");
        let helpers = HelperRunner { program: "/bin/true".into(), args: Vec::new() };
        let error = fd_store.keep(some_fd().as_fd(), &helpers).expect_err("it does not hold");
        assert_eq!(error.kind, AttachErrorKind::FdStore);
        assert!(error.to_string().contains("holder.sock"), "{error}");
    }

    #[test]
    fn a_peer_that_sends_rubbish_is_told_so_and_changes_nothing() {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a pair of sockets");
        let mut stored = StoredDescriptors::default();
        send(&theirs, b"rubbish", None).expect("the pair is connected");
        serve_peer(&ours, &mut stored).expect_err("it is no request");
        let mut reply = [0; REPLY_BYTES];
        let (length, _) = receive(&theirs, &mut reply).expect("there is an answer");
        assert_eq!(decode_reply(&reply[..length]), Some((Status::Malformed, 0)));
        assert!(stored.kept.is_empty());
    }

    #[test]
    fn a_peer_that_says_nothing_is_left_alone() {
        let (ours, _theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a pair of sockets");
        let error =
            serve_peer(&ours, &mut StoredDescriptors::default()).expect_err("there is no request");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn without_an_fd_store_there_is_nothing_to_take() {
        let fd_store = FdStore::new(Path::new("/nonexistent/holder.sock"), b"label");
        assert!(fd_store.take().is_none());
        assert!(!fd_store.is_keeping());
        fd_store.release().expect("nothing needs to be released");
    }
}
