//! The server: accepts connections, starts a thread for each client, and shuts down.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use adaptive_polling::{SpinPermits, Waiter};
use export_kit::{
    LogLimit, Peer, Quota, Registry, SocketPlan, StartError, Status, StopSignal, UnixSocket,
    accept_until,
};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, SocketType, recv};
use shared_ring::{MESSAGE_BYTES_MAX, send_refusal};

use crate::client::Client;
use crate::executor::Use;
use crate::volumes::{Refusal, Volumes};

/// Any process may connect. Access is checked for each volume.
const SOCKET: SocketPlan = SocketPlan { kind: SocketType::SEQPACKET, mode: 0o666, backlog: 128 };

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Path of a Unix socket to which every process may connect. A socket left by a dead process is
    /// replaced.
    pub path: PathBuf,
    /// Limits on clients; clients beyond them are refused. Each client takes a thread, and the part
    /// of `shared_ring::memory_bytes` that it uses.
    pub quota: Quota,
    /// Time in which a client must open a volume, or it is disconnected. A client that opens one
    /// waits this long at most for ended connections to leave the device.
    pub handshake_time_max: Duration,
    /// Limit on the threads of this process that poll for requests instead of sleeping.
    pub spin_permits: Arc<SpinPermits>,
    /// Maximum time for which a thread polls for its client's next request before it sleeps.
    pub spin_max: Duration,
}

/// A running server. Dropping it disconnects its clients without waiting for them.
pub struct Server {
    registry: Arc<Registry<u64, Use>>,
    stop: Arc<StopSignal>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the server.
    pub fn start(config: Config, volumes: Arc<dyn Volumes>) -> Result<Self, StartError> {
        let listeners = [UnixSocket::bind(&config.path, SOCKET)?];
        let failed = |source| StartError::Thread { source };
        let stop = Arc::new(StopSignal::new().map_err(failed)?);
        let registry = Arc::new(Registry::new(config.quota));
        let log = Arc::default();
        let acceptor = Acceptor { config, volumes, registry: Arc::clone(&registry), log };
        let stopped = Arc::clone(&stop);
        let accept = move || {
            accept_until(&stopped, &listeners, "clients of the ring", |listener| {
                acceptor.accept_all(listener)
            });
        };
        let accepting = thread::Builder::new().name("ring-accept".to_owned()).spawn(accept);
        Ok(Self { registry, stop, accepting: Some(accepting.map_err(failed)?) })
    }

    /// Returns the server's state, with the clients of each volume id.
    pub fn status(&self) -> Status<u64> {
        self.registry.status()
    }

    /// Number of clients of a volume. The time does not depend on the number of clients.
    pub fn client_count_of(&self, volume_id: u64) -> usize {
        self.registry.count_of(&volume_id)
    }

    /// Notifies the clients of a volume of its new size.
    pub fn resized(&self, volume_id: u64) {
        self.registry.visit(&volume_id, |used| {
            used.ring.set_size_bytes(used.device.geometry().size_bytes);
        });
    }

    /// Disconnects all clients of a volume and returns their number. They may reconnect.
    pub fn disconnect(&self, volume_id: u64) -> usize {
        self.registry.disconnect(&volume_id)
    }

    /// Returns whether a client of a volume has disconnected and its thread has not ended yet.
    pub fn is_closing(&self, volume_id: u64) -> bool {
        self.registry.is_closing(&volume_id)
    }

    /// Stops the server: accepts no more clients, lets each client's thread finish its current
    /// request, and disconnects the clients. They reconnect to the next server and repeat
    /// unanswered requests.
    ///
    /// Returns the number of clients left after `time_max`. Their threads are abandoned, and so are
    /// threads whose flush has not returned.
    pub fn stop(mut self, time_max: Duration) -> usize {
        self.stop_within(time_max)
    }

    fn stop_within(&mut self, time_max: Duration) -> usize {
        let Some(accepting) = self.accepting.take() else {
            return 0;
        };
        self.stop.give();
        accepting.join().expect("the accepting thread does not panic");
        self.registry.drain(Shutdown::Both, Instant::now() + time_max)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_within(Duration::ZERO);
    }
}

/// State of the accepting thread.
struct Acceptor {
    config: Config,
    volumes: Arc<dyn Volumes>,
    registry: Arc<Registry<u64, Use>>,
    /// Rate limit of log messages, shared by all clients.
    log: Arc<LogLimit>,
}

impl Acceptor {
    /// Fails if the system has no descriptor, memory or thread for another client.
    fn accept_all(&self, listener: &UnixSocket) -> io::Result<()> {
        while let Some(socket) = listener.accept()? {
            let socket = Arc::new(socket);
            // No credentials: the peer has disconnected.
            let Ok(peer) = Peer::of(&*socket) else { continue };
            if !self.volumes.admits(&peer) {
                self.registry.note_refused();
                turn_away(&socket, &stranger(&peer));
                continue;
            }
            let Some(registration) = self.registry.admit(Some(&peer), &socket) else {
                turn_away(&socket, &self.no_room(&peer));
                continue;
            };
            let client = Client {
                socket,
                peer,
                volumes: Arc::clone(&self.volumes),
                waiter: Waiter::new(Arc::clone(&self.config.spin_permits), self.config.spin_max),
                handshake_time_max: self.config.handshake_time_max,
                registration,
                log: Arc::clone(&self.log),
            };
            thread::Builder::new().name("ring-serve".to_owned()).spawn(move || client.serve())?;
        }
        Ok(())
    }

    fn no_room(&self, peer: &Peer) -> Refusal {
        let Quota { total, per_user, reserved } = self.config.quota;
        let message = format!(
            "too many ring clients, cannot accept another one of user {}: the limits are {total} \
             in all and {per_user} per user, and {reserved} are reserved for root; close some, or \
             use the volume's device",
            peer.uid
        );
        Refusal { errno: Errno::USERS.raw_os_error(), message }
    }
}

/// The message does not depend on which volumes exist.
fn stranger(peer: &Peer) -> Refusal {
    let uid = peer.uid;
    let message = format!(
        "permission denied: user {uid} may not use any volume of this daemon; allow it with: \
         memlane volume set VOLUME users={uid}"
    );
    Refusal { errno: Errno::ACCESS.raw_os_error(), message }
}

/// Sends a client the reason for its refusal. Never blocks.
fn turn_away(socket: &OwnedFd, refusal: &Refusal) {
    // Read the request first: closing a socket with unread data resets the connection, and the
    // client would not see the refusal.
    let mut request = [0; MESSAGE_BYTES_MAX];
    let _asked = recv(socket, &mut request, RecvFlags::DONTWAIT);
    if let Err(error) = send_refusal(socket.as_fd(), refusal.errno, &refusal.message) {
        tracing::debug!(%error, "the refused ring client had disconnected");
    }
}
