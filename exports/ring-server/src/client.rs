//! One client connection: its handshake, and the loop that serves its submission entries.

use std::hint;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use adaptive_polling::Waiter;
use export_kit::{Inside, LogLimit, Peer, Registration};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, recv};
use shared_ring::{
    HandshakeError, LANES_MAX, Opened, ServerRing, Taken, Taker, Violation, receive_request,
    send_answer, send_refusal,
};

use crate::executor::{Executor, Parts, Request, Use};
use crate::late::LateWork;
use crate::status;
use crate::volumes::{OpenVolume, Refusal, Volumes};

/// Maximum entries served from one lane before the next lane has its turn and sleeping client
/// threads are woken.
const ENTRIES_PER_TURN: usize = 8;

/// Checks for entries in one poll, with pauses in between. The waiter decides after each poll
/// whether to poll again or sleep.
const LOOKS_PER_POLL: u32 = 16;

/// State of a client's thread.
pub(crate) struct Client {
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) peer: Peer,
    pub(crate) volumes: Arc<dyn Volumes>,
    pub(crate) waiter: Waiter,
    pub(crate) handshake_time_max: Duration,
    pub(crate) registration: Registration<u64, Use>,
    pub(crate) log: Arc<LogLimit>,
}

/// Reason for which a client's connection ended.
#[derive(Debug)]
enum End {
    Gone,
    Told,
    Broke(Violation),
}

impl Client {
    /// Serves the client until it disconnects, violates the protocol, or is disconnected through
    /// its registration.
    pub(crate) fn serve(mut self) {
        let Some((volume, ring, inside)) = self.shake_hands() else { return };
        let (device, counters) = (volume.device, Arc::clone(self.registration.counters()));
        let parts = Parts { device, ring: Arc::clone(&ring), counters };
        let late = LateWork::new(parts.clone(), inside);
        let (executor, taker) = (Executor::new(parts), Taker::new(ring));
        let Self { socket, waiter, registration, .. } = &mut self;
        let mut session = Session { socket, waiter, registration, executor, taker, late };
        match session.run() {
            End::Gone => tracing::debug!(volume = volume.name, "ring client disconnected"),
            End::Told => {
                tracing::debug!(volume = volume.name, "ring client disconnected by the daemon")
            }
            End::Broke(violation) => {
                let (volume, uid) = (volume.name, self.peer.uid);
                if let Some(left_out) = self.log.admit() {
                    let message = "ring client violated the protocol";
                    tracing::warn!(volume, uid, %violation, left_out, message);
                }
            }
        }
    }

    /// Performs the handshake. Returns `None` if the client was refused or has disconnected.
    fn shake_hands(&self) -> Option<Opening> {
        match self.open() {
            Ok(opened) => Some(opened),
            Err(NotOpened::Refused(refusal)) => {
                tracing::debug!(reason = refusal.message, "ring client refused");
                let sent = send_refusal(self.socket.as_fd(), refusal.errno, &refusal.message);
                if let Err(error) = sent {
                    tracing::debug!(%error, "the refused ring client had disconnected");
                }
                None
            }
            Err(NotOpened::Lost(error)) => {
                tracing::debug!(%error, "ring client lost during its handshake");
                None
            }
        }
    }

    fn open(&self) -> Result<Opening, NotOpened> {
        let time_max = Some(self.handshake_time_max);
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&*self.socket, direction, time_max).map_err(NotOpened::socket)?;
        }
        let (target, lane_count_max) = receive_request(self.socket.as_fd())?;
        let volume = self.volumes.open(&target, &self.peer)?;
        let geometry = volume.device.geometry();
        let lane_count = lane_count_max.clamp(1, LANES_MAX);
        let (ring, file) =
            ServerRing::create(lane_count, geometry.size_bytes).map_err(|error| {
                let message = format!("cannot allocate memory for the ring of a client: {error}");
                Refusal { errno: Errno::NOMEM.raw_os_error(), message }
            })?;
        let opened = Opened {
            volume_id: volume.id,
            name: volume.name.clone(),
            size_bytes: geometry.size_bytes,
            sector_bytes: geometry.sector.bytes(),
            is_read_only: volume.device.is_read_only(),
            lane_count,
        };
        // Registered before the answer is sent, so that the client is counted when its call
        // returns.
        let (device, ring_seen) = (Arc::clone(&volume.device), Arc::clone(&ring));
        let used = Use { device, ring: ring_seen };
        let inside = self.registration.open(volume.id, used, self.handshake_time_max);
        let inside = inside.ok_or_else(|| still_leaving(&volume.name))?;
        send_answer(self.socket.as_fd(), &opened, &file).map_err(NotOpened::lost)?;
        // After the handshake, receiving has no timeout: an idle client stays connected.
        set_socket_timeout(&*self.socket, Timeout::Recv, None).map_err(NotOpened::socket)?;
        Ok((volume, ring, Arc::new(inside)))
    }
}

/// An opened volume, the shared memory of the connection, and its registration with the device.
type Opening = (OpenVolume, Arc<ServerRing>, Arc<Inside<u64, Use>>);

/// Temporary refusal (`EUSERS`). The client may retry, as when the quota is exhausted.
fn still_leaving(name: &str) -> Refusal {
    let message = format!(
        "requests of a closed connection to volume {name:?} are still in progress; retry later"
    );
    Refusal { errno: Errno::USERS.raw_os_error(), message }
}

/// Reason for which no volume was opened.
enum NotOpened {
    Refused(Refusal),
    Lost(std::io::Error),
}

impl NotOpened {
    fn socket(errno: Errno) -> Self {
        Self::Lost(errno.into())
    }

    fn lost(error: std::io::Error) -> Self {
        Self::Lost(error)
    }
}

impl From<Refusal> for NotOpened {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<HandshakeError> for NotOpened {
    fn from(error: HandshakeError) -> Self {
        let errno = match error {
            HandshakeError::Socket(error) => return Self::Lost(error),
            HandshakeError::Ended => return Self::Lost(std::io::ErrorKind::BrokenPipe.into()),
            HandshakeError::Malformed => Errno::INVAL,
            HandshakeError::Version { .. } => Errno::PROTONOSUPPORT,
        };
        Self::Refused(Refusal { errno: errno.raw_os_error(), message: error.to_string() })
    }
}

/// State of a client that has opened a volume.
struct Session<'client> {
    socket: &'client OwnedFd,
    waiter: &'client mut Waiter,
    registration: &'client Registration<u64, Use>,
    executor: Executor,
    taker: Taker,
    late: LateWork,
}

/// Result of a wait.
enum Found {
    /// Bitmap of the lanes that have entries.
    Entries(u64),
    End(End),
}

impl Session<'_> {
    fn run(&mut self) -> End {
        loop {
            match self.wait() {
                Found::Entries(lanes) => {
                    if let Err(violation) = self.serve(lanes) {
                        return End::Broke(violation);
                    }
                }
                Found::End(end) => return end,
            }
            if self.registration.is_ending() {
                return End::Told;
            }
        }
    }

    /// Serves some entries of each lane in the bitmap, and wakes client threads that sleep on
    /// answers.
    fn serve(&mut self, lanes: u64) -> Result<(), Violation> {
        let mut left = lanes;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            left &= left - 1;
            let mut answered = 0_u64;
            for _ in 0..ENTRIES_PER_TURN {
                let Some(taken) = self.taker.take(lane)? else { break };
                if let Some(lane) = self.serve_entry(taken) {
                    answered |= 1 << lane;
                }
            }
            if answered != 0 {
                self.executor.parts.ring.wake(answered);
            }
        }
        Ok(())
    }

    /// Serves an entry, or hands it to a thread that may block on disk. Returns the lane if a
    /// request was completed.
    fn serve_entry(&mut self, taken: Taken) -> Option<usize> {
        let Taken { ticket, entry } = taken;
        let executor = &mut self.executor;
        let Some(request) = Request::of(&entry) else {
            return Some(executor.parts.ring.complete(ticket, status::invalid()));
        };
        executor.count(request);
        if executor.data_may_be_away(request) {
            self.late.perform(request, ticket);
            return None;
        }
        if request == Request::Flush && executor.flush_may_wait() {
            self.late.flush(ticket);
            return None;
        }
        let status = executor.perform(&ticket, request);
        if status == status::DONE && request.is_fua() && executor.flush_may_wait() {
            self.late.flush(ticket);
            return None;
        }
        Some(executor.parts.ring.complete(ticket, status))
    }

    /// Polls while there was recent traffic, then sleeps until the client rings its doorbell.
    fn wait(&mut self) -> Found {
        let (taker, socket) = (&self.taker, self.socket);
        let Parts { device, ring, counters } = &self.executor.parts;
        let poll = || {
            for _ in 0..LOOKS_PER_POLL {
                let lanes = taker.lanes_with_entries();
                if lanes != 0 {
                    return Poll::Ready(Found::Entries(lanes));
                }
                hint::spin_loop();
            }
            Poll::Pending
        };
        let sleep = || {
            let lanes = taker.announce_sleep();
            let found = if lanes != 0 { Found::Entries(lanes) } else { sleep_on(socket) };
            taker.awake();
            ring.set_size_bytes(device.geometry().size_bytes);
            if lanes == 0 {
                counters.doorbells.add(1);
            }
            found
        };
        self.waiter.wait(poll, sleep)
    }
}

/// Sleeps until the client rings its doorbell or disconnects.
fn sleep_on(socket: &OwnedFd) -> Found {
    let mut message = [0; 64];
    loop {
        match recv(socket, &mut message, RecvFlags::empty()) {
            Ok((_, 0)) => return Found::End(End::Gone),
            Ok(_) => return Found::Entries(0),
            Err(Errno::INTR) => {}
            Err(error) => {
                tracing::debug!(%error, "the socket of a ring client failed");
                return Found::End(End::Gone);
            }
        }
    }
}
