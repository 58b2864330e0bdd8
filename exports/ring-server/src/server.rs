//! The server: listens, gives each client a thread, and stops in good order.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use adaptive_polling::{SpinPermits, Waiter};
use peers::{LogLimit, Peer, Quota};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use shared_ring::{MESSAGE_BYTES_MAX, send_refusal};

use crate::client::Client;
use crate::error::ServerError;
use crate::listener::Listener;
use crate::registry::{Registry, Status};
use crate::volumes::{Refusal, Volumes};

/// How long no client is accepted after the system had no descriptor, memory or thread for one.
const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Where and how to serve.
#[derive(Clone, Debug)]
pub struct Config {
    /// A Unix socket that everybody may connect to. One that a dead process left is replaced.
    pub path: PathBuf,
    /// Clients beyond so many are turned away. Each costs a thread, and the memory that it touches
    /// of `shared_ring::memory_bytes`.
    pub quota: Quota,
    /// A client that has not asked for a volume after so long is closed.
    pub handshake_time_max: Duration,
    /// Bounds the threads of this process that look for requests instead of sleeping.
    pub spin_permits: Arc<SpinPermits>,
    /// The longest that a thread looks for its client's next request before it sleeps.
    pub spin_max: Duration,
}

/// A running server. Dropping it ends its clients without waiting for them.
pub struct Server {
    registry: Arc<Registry>,
    control: Arc<Control>,
    accepting: Option<JoinHandle<()>>,
}

/// How the owner tells the accepting thread to stop.
struct Control {
    is_stopping: Mutex<bool>,
    wake: OwnedFd,
}

impl Server {
    /// Listens and returns. Clients are served from now on.
    pub fn start(config: Config, volumes: Arc<dyn Volumes>) -> Result<Self, ServerError> {
        let listener = Listener::bind(&config.path)?;
        let failed = |source| ServerError::Thread { source };
        let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let control = Arc::new(Control { is_stopping: Mutex::new(false), wake });
        let registry = Arc::new(Registry::new(config.quota));
        let acceptor = Acceptor {
            config,
            volumes,
            registry: Arc::clone(&registry),
            control: Arc::clone(&control),
            log: Arc::default(),
        };
        let accepting = thread::Builder::new()
            .name("ring-accept".to_owned())
            .spawn(move || acceptor.run(&listener))
            .map_err(failed)?;
        Ok(Self { registry, control, accepting: Some(accepting) })
    }

    pub fn status(&self) -> Status {
        self.registry.status()
    }

    /// Tells the clients of a volume that it has another size.
    pub fn resized(&self, volume_id: u64) {
        self.registry.refresh_size(volume_id);
    }

    /// Ends all clients of a volume; they may come back. Returns how many there were.
    pub fn disconnect(&self, volume_id: u64) -> usize {
        self.registry.disconnect(volume_id)
    }

    /// Accepts nobody any more, lets each client's thread end the request that it is at, and ends
    /// the clients. They come back to the next server with what was not answered.
    ///
    /// Returns how many are left after `time_max`; their threads are left alone, and so are those
    /// whose flush has not ended.
    pub fn stop(mut self, time_max: Duration) -> usize {
        self.stop_within(time_max)
    }

    fn stop_within(&mut self, time_max: Duration) -> usize {
        let Some(accepting) = self.accepting.take() else {
            return 0;
        };
        self.control.stop();
        accepting.join().expect("the accepting thread does not panic");
        self.registry.end_all(Instant::now() + time_max)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_within(Duration::ZERO);
    }
}

impl Control {
    fn stop(&self) {
        *self.is_stopping.lock().expect("nothing panics with this lock") = true;
        rustix::io::write(&self.wake, &1_u64.to_ne_bytes()).expect("an event can be counted");
    }

    fn is_stopping(&self) -> bool {
        *self.is_stopping.lock().expect("nothing panics with this lock")
    }
}

/// The thread that accepts clients.
struct Acceptor {
    config: Config,
    volumes: Arc<dyn Volumes>,
    registry: Arc<Registry>,
    control: Arc<Control>,
    /// Of all clients together.
    log: Arc<LogLimit>,
}

impl Acceptor {
    fn run(&self, listener: &Listener) {
        let mut outcome = Ok(());
        loop {
            match outcome {
                Ok(()) => self.wait(Some(listener), None),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept clients of the ring for a moment");
                    self.wait(None, Some(&ACCEPT_PAUSE));
                }
            }
            if self.control.is_stopping() {
                return;
            }
            outcome = self.accept_all(listener);
        }
    }

    /// Sleeps until there is a client, the server shall stop, or the time is over.
    fn wait(&self, listener: Option<&Listener>, time_max: Option<&Timespec>) {
        let mut events = vec![PollFd::new(&self.control.wake, PollFlags::IN)];
        events.extend(listener.map(|listener| PollFd::new(listener, PollFlags::IN)));
        match poll(&mut events, time_max) {
            // The caller looks everywhere anyway, so an interruption does no harm.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => panic!("cannot wait for clients of the ring: {error}"),
        }
    }

    /// Fails when the system has no descriptor, memory or thread for another client.
    fn accept_all(&self, listener: &Listener) -> io::Result<()> {
        while let Some(socket) = listener.accept()? {
            let socket = Arc::new(socket);
            // One of whom the kernel does not know any more has gone.
            let Ok(peer) = Peer::of(&*socket) else { continue };
            if !self.volumes.admits(&peer) {
                self.registry.note_refused();
                turn_away(&socket, &stranger(&peer));
                continue;
            }
            let Some(registration) = self.registry.admit(&socket, &peer) else {
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
            "the daemon has no room for another client of the ring of user {}: it serves {total} \
             in all, {per_user} of one user, and keeps {reserved} places for root; end some, or \
             use the volume's device",
            peer.uid
        );
        Refusal { errno: Errno::USERS.raw_os_error(), message }
    }
}

/// The same whatever there is.
fn stranger(peer: &Peer) -> Refusal {
    let uid = peer.uid;
    let message = format!(
        "user {uid} may use no volume of this daemon; whoever runs it can allow that with: memlane \
         volume set VOLUME users={uid}"
    );
    Refusal { errno: Errno::ACCESS.raw_os_error(), message }
}

/// Tells a client why it has no place. Never waits.
fn turn_away(socket: &OwnedFd, refusal: &Refusal) {
    // Whatever it asks for: unread, that would be taken for a broken connection.
    let mut request = [0; MESSAGE_BYTES_MAX];
    let _asked = recv(socket, &mut request, RecvFlags::DONTWAIT);
    if let Err(error) = send_refusal(socket.as_fd(), refusal.errno, &refusal.message) {
        tracing::debug!(%error, "a client that was turned away had gone");
    }
}
