//! One client: its handshake, and the loop that takes its entries.

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

/// Entries of one lane that are served before the next lane has its turn, and before those are
/// woken that sleep.
const ENTRIES_PER_TURN: usize = 8;

/// Looks for entries in one go, with pauses in between, before the waiter has its say.
const LOOKS_PER_POLL: u32 = 16;

/// Parts of a client's thread.
pub(crate) struct Client {
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) peer: Peer,
    pub(crate) volumes: Arc<dyn Volumes>,
    pub(crate) waiter: Waiter,
    pub(crate) handshake_time_max: Duration,
    pub(crate) registration: Registration<u64, Use>,
    pub(crate) log: Arc<LogLimit>,
}

/// How a client ended.
#[derive(Debug)]
enum End {
    Gone,
    Told,
    Broke(Violation),
}

impl Client {
    /// Serves the client until it goes, breaks the protocol, or is ended through its registration.
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

    /// What the client has opened, if it may.
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
                let message = format!("the daemon has no memory for another ring client: {error}");
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
        // Before the client knows: it is counted when its call returns.
        let (device, ring_seen) = (Arc::clone(&volume.device), Arc::clone(&ring));
        let used = Use { device, ring: ring_seen };
        let inside = self.registration.open(volume.id, used, self.handshake_time_max);
        let inside = inside.ok_or_else(|| still_leaving(&volume.name))?;
        send_answer(self.socket.as_fd(), &opened, &file).map_err(NotOpened::lost)?;
        // From now on it may take all the time it likes.
        set_socket_timeout(&*self.socket, Timeout::Recv, None).map_err(NotOpened::socket)?;
        Ok((volume, ring, Arc::new(inside)))
    }
}

/// A volume, the memory of the connection, and its place in the device.
type Opening = (OpenVolume, Arc<ServerRing>, Arc<Inside<u64, Use>>);

/// The client may try again, as when there is no room for it.
fn still_leaving(name: &str) -> Refusal {
    let message = format!(
        "requests of a closed connection to volume {name:?} are still in progress; retry when \
         they have ended"
    );
    Refusal { errno: Errno::USERS.raw_os_error(), message }
}

/// Why nothing was opened.
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

/// A client that has opened a volume.
struct Session<'client> {
    socket: &'client OwnedFd,
    waiter: &'client mut Waiter,
    registration: &'client Registration<u64, Use>,
    executor: Executor,
    taker: Taker,
    late: LateWork,
}

/// What a wait ended with.
enum Found {
    /// A bit for each lane that has an entry.
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

    /// Serves some entries of these lanes, and wakes the threads that sleep for the answers.
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

    /// Serves an entry, or leaves it to threads that may wait for a disk. Returns the lane on
    /// which a request was answered.
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

    /// Looks again and again while traffic is recent, then sleeps until the client rings.
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

/// Sleeps until the client rings or goes.
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
