//! A connection: the socket, the shared memory, and the daemon's description of the volume.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use shared_ring::{
    Access, Answer, ClientRing, HandshakeError, Opened, Target, receive_answer, send_request,
};

use crate::error::ClientError;
use crate::fork::{self, OwnSocket};
use crate::origin::{ClientOptions, Origin};
use crate::patience::Patience;

/// Maximum time for the daemon to answer a handshake.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// A connection to the daemon with one open volume.
pub(crate) struct Link {
    socket: OwnSocket,
    pub(crate) ring: Arc<ClientRing>,
    pub(crate) opened: Opened,
}

/// Reason for which there is no connection.
#[derive(Debug)]
pub(crate) enum LinkError {
    /// No daemon is running at the moment.
    Absent(io::Error),
    /// The daemon has no room for another client at the moment.
    NoRoom {
        message: String,
    },
    /// A permanent refusal by the daemon.
    Refused {
        errno: i32,
        message: String,
    },
    Host(io::Error),
}

impl LinkError {
    pub(crate) fn into_client_error(self, path: &Path) -> ClientError {
        let path = path.display();
        match self {
            Self::Absent(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::ECONNREFUSED);
                let hint = "check that memlaned runs and that this is its socket";
                ClientError::new(
                    errno,
                    format!("cannot reach the daemon at {path}: {error}; {hint}"),
                )
            }
            Self::NoRoom { message } => ClientError::new(libc::EUSERS, message),
            Self::Refused { errno, message } => ClientError::new(errno, message),
            Self::Host(error) => {
                ClientError::of_call(&format!("cannot connect to the daemon at {path}"), &error)
            }
        }
    }
}

impl Link {
    /// Connects and opens a volume.
    fn open(
        path: &Path,
        target: &Target,
        lane_count: usize,
        place_socket: fn(OwnedFd) -> OwnedFd,
    ) -> Result<Arc<Self>, LinkError> {
        fork::tell_children_apart().map_err(LinkError::Host)?;
        if fork::is_guest() {
            let message = "volumes cannot be opened in a child of vfork";
            return Err(LinkError::Refused { errno: libc::EBUSY, message: message.to_owned() });
        }
        let socket = OwnSocket::new(place_socket(connect_to(path)?));
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, direction, Some(ANSWER_TIME_MAX)).map_err(host)?;
        }
        // A daemon that refuses clients may have closed the socket already, with an answer in it.
        let sent = send_request(socket.as_fd(), target, lane_count);
        let answer = match (sent, answer(&socket)) {
            (_, Ok(answer)) => answer,
            (Err(error), Err(_)) => return Err(LinkError::Absent(error)),
            (Ok(()), Err(error)) => return Err(error),
        };
        let (opened, memory) = match answer {
            Answer::Opened(opened, memory) => (opened, memory),
            Answer::Refused { errno: libc::EUSERS, message } => {
                return Err(LinkError::NoRoom { message });
            }
            Answer::Refused { errno, message } => {
                return Err(LinkError::Refused { errno, message });
            }
        };
        check_access(target, &opened)?;
        let ring = ClientRing::map(memory.as_fd(), opened.lane_count).map_err(LinkError::Host)?;
        Ok(Arc::new(Self { socket, ring, opened }))
    }

    /// Connects to a volume that was open before.
    pub(crate) fn reopen(origin: &Origin, lane_count: usize) -> Result<Arc<Self>, LinkError> {
        Self::open(&origin.path, &origin.target(), lane_count, origin.options.place_socket)
    }

    /// Opens as [`Link::open`] does, and retries while the daemon has no room, until
    /// `room_patience` has elapsed.
    pub(crate) fn open_when_there_is_room(
        path: &Path,
        target: &Target,
        lane_count: usize,
        options: &ClientOptions,
    ) -> Result<Arc<Self>, LinkError> {
        let mut patience = Patience::new(options.room_patience.min(options.patience));
        loop {
            match Self::open(path, target, lane_count, options.place_socket) {
                Err(LinkError::NoRoom { message }) => {
                    if !patience.pause() {
                        return Err(LinkError::NoRoom { message });
                    }
                }
                result => return result,
            }
        }
    }

    /// Checks that a daemon is listening at `path`.
    pub(crate) fn probe(path: &Path) -> Result<(), LinkError> {
        connect_to(path).map(drop)
    }

    /// Wakes the daemon's thread. A lost connection is detected by the wait that follows.
    pub(crate) fn ring_doorbell(&self) {
        // If the socket's queue is full, the daemon is woken anyway.
        let _sent = send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Returns whether the daemon's end of the socket is open.
    pub(crate) fn is_alive(&self) -> bool {
        let mut nothing = [0; 1];
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        matches!(recv(&self.socket, &mut nothing, flags), Err(Errno::AGAIN | Errno::INTR))
    }
}

/// Checks the granted access. A daemon older than this client may grant more access than requested.
fn check_access(target: &Target, opened: &Opened) -> Result<(), LinkError> {
    if matches!(target, Target::Again { access: Access::ReadOnly, .. }) && !opened.is_read_only {
        let name = &opened.name;
        let message = format!(
            "volume {name:?} was opened read-only, and the daemon now grants write access; open \
             it again, or use a daemon of the same release as this program"
        );
        return Err(LinkError::Refused { errno: libc::EROFS, message });
    }
    Ok(())
}

fn connect_to(path: &Path) -> Result<OwnedFd, LinkError> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = socket.map_err(host)?;
    let address = SocketAddrUnix::new(path).map_err(host)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            Err(error @ (Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN)) => {
                return Err(LinkError::Absent(error.into()));
            }
            Err(error) => return Err(LinkError::Host(error.into())),
        }
    }
}

/// Receives the daemon's answer. A broken connection may still contain it.
fn answer(socket: &OwnSocket) -> Result<Answer, LinkError> {
    let mut received = receive_answer(socket.as_fd());
    if let Err(HandshakeError::Socket(error)) = &received
        && error.raw_os_error() == Some(libc::ECONNRESET)
    {
        received = receive_answer(socket.as_fd());
    }
    received.map_err(|error| match error {
        HandshakeError::Socket(error) => LinkError::Absent(error),
        HandshakeError::Ended => LinkError::Absent(io::ErrorKind::ConnectionReset.into()),
        HandshakeError::Malformed => {
            let message = format!("the socket is not the ring socket of memlaned: {error}");
            LinkError::Refused { errno: libc::EPROTO, message }
        }
        HandshakeError::Version { .. } => {
            LinkError::Refused { errno: libc::EPROTONOSUPPORT, message: error.to_string() }
        }
    })
}

fn host(error: Errno) -> LinkError {
    LinkError::Host(error.into())
}
