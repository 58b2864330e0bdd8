//! The server: accepts connections, starts a thread for each client, and shuts down.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, Scope};
use std::time::{Duration, Instant};

use adaptive_polling::{SpinPermits, Waiter};
use export_kit::{Peer, Quota, Registry, StartError, Status, StopSignal, accept_until};
use rustix::net::Shutdown;
use rustls::ServerConfig;
use tls::{TlsFiles, TlsSettings};

use crate::connection::Connection;
use crate::error::ServerError;
use crate::exports::{Client, Exports};
use crate::listener::Listener;
use crate::transport::Socket;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Path of a Unix socket to which any process may connect; [`Exports`] authorizes it. A socket
    /// left by a dead process is replaced.
    pub unix_path: PathBuf,
    /// TCP address. Without TLS, only loopback addresses are accepted.
    pub tcp: Option<SocketAddr>,
    pub tcp_access: TcpAccess,
    /// TLS for TCP, which makes it mandatory there. Unix sockets are always plain.
    pub tls: Option<TlsFiles>,
    /// Limits on clients; clients beyond them are disconnected at once. The Unix socket and TCP are
    /// counted separately, so that remote clients cannot lock out local ones; limits by user apply
    /// to the Unix socket. Each client takes a thread and about 1.5 MiB.
    pub quota: Quota,
    /// Time in which a client must choose an export, or it is disconnected. A client that has
    /// chosen one waits this long at most for ended connections to leave its device.
    pub handshake_time_max: Duration,
    /// Limit on the threads of this process that poll for requests instead of sleeping.
    pub spin_permits: Arc<SpinPermits>,
    /// Maximum time for which a connection polls for its next request before it sleeps.
    pub spin_max: Duration,
    /// Called first on each serving thread.
    pub thread_start: fn(),
}

/// Clients that may connect over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpAccess {
    /// Clients with a certificate of an authority in [`TlsFiles::client_authorities`].
    Certified,
    /// All clients that reach the address.
    Anybody,
}

/// A running server. Dropping it stops it without draining.
pub struct Server {
    registry: Arc<Registry<String>>,
    control: Arc<Control>,
    accepting: Option<JoinHandle<usize>>,
    tcp_address: Option<SocketAddr>,
}

/// State shared by the owner and the accepting thread.
struct Control {
    drain_until: Mutex<Option<Instant>>,
    /// TLS settings for new TCP connections.
    tls: Mutex<Option<TlsSettings>>,
    stop: StopSignal,
}

impl Server {
    /// Starts the server.
    pub fn start(config: Config, exports: Arc<dyn Exports>) -> Result<Self, ServerError> {
        let tls = config.tls.as_ref().map(TlsSettings::load).transpose()?;
        if let Some(address) = config.tcp
            && tls.is_none()
            && !address.ip().is_loopback()
        {
            return Err(ServerError::TlsRequired { address });
        }
        let asks_for_certificates =
            config.tls.as_ref().is_some_and(|files| files.client_authorities.is_some());
        if let Some(address) = config.tcp
            && config.tcp_access == TcpAccess::Certified
            && !asks_for_certificates
        {
            return Err(ServerError::Unprotected { address });
        }
        let mut listeners = vec![Listener::unix(&config.unix_path)?];
        let mut tcp_address = None;
        if let Some(address) = config.tcp {
            let (listener, address) = Listener::tcp(address)?;
            listeners.push(listener);
            tcp_address = Some(address);
        }
        let failed = |source| StartError::Thread { source };
        let stop = StopSignal::new().map_err(failed)?;
        let control =
            Arc::new(Control { drain_until: Mutex::default(), tls: Mutex::new(tls), stop });
        let registry = Arc::new(Registry::new(config.quota));
        let acceptor = Acceptor {
            config,
            exports,
            registry: Arc::clone(&registry),
            control: Arc::clone(&control),
        };
        let accepting = thread::Builder::new()
            .name("nbd-accept".to_owned())
            .spawn(move || acceptor.run(listeners))
            .map_err(failed)?;
        Ok(Self { registry, control, accepting: Some(accepting), tcp_address })
    }

    /// Address for TCP clients, if TCP is configured.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp_address
    }

    /// Returns the server's state, with the clients of each export by canonical name.
    pub fn status(&self) -> Status<String> {
        self.registry.status()
    }

    /// Number of clients of the export with this canonical name. The time does not depend on the
    /// number of clients.
    pub fn client_count_of(&self, export_name: &str) -> usize {
        self.registry.count_of(export_name)
    }

    /// Disconnects all clients of the export with this canonical name and returns their number.
    /// They may reconnect.
    pub fn disconnect(&self, export_name: &str) -> usize {
        self.registry.disconnect(export_name)
    }

    /// Returns whether a connection to this export is about to close, because its client has
    /// disconnected.
    pub fn is_closing(&self, export_name: &str) -> bool {
        self.registry.is_closing(export_name)
    }

    /// Replaces the certificates for new TCP connections. Has no effect on a server that was
    /// started without TLS.
    pub fn set_tls(&self, settings: TlsSettings) {
        let mut now = self.control.tls.lock().expect(NOT_POISONED);
        if now.is_some() {
            *now = Some(settings);
        }
    }

    /// Stops the server: accepts no more clients, answers every request that has arrived, closes
    /// the connections, removes the socket and joins all threads.
    ///
    /// Connections that are not done after `drain` are cut. Returns their number. A flush that has
    /// not returned by then is abandoned with its thread, which also keeps the device. The call
    /// takes longer than `drain` only if the device blocks in a call other than a flush.
    pub fn stop(mut self, drain: Duration) -> usize {
        self.stop_within(drain)
    }

    fn stop_within(&mut self, drain: Duration) -> usize {
        let Some(accepting) = self.accepting.take() else {
            return 0;
        };
        self.control.stop(Instant::now() + drain);
        accepting.join().expect("no thread of the server panics")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_within(Duration::ZERO);
    }
}

impl Control {
    fn stop(&self, drain_until: Instant) {
        *self.drain_until.lock().expect(NOT_POISONED) = Some(drain_until);
        self.stop.give();
    }

    fn tls(&self) -> Option<Arc<ServerConfig>> {
        let settings = self.tls.lock().expect(NOT_POISONED);
        settings.as_ref().map(TlsSettings::server_config)
    }
}

/// State of the accepting thread. All other threads are its children and end before it.
struct Acceptor {
    config: Config,
    exports: Arc<dyn Exports>,
    registry: Arc<Registry<String>>,
    control: Arc<Control>,
}

impl Acceptor {
    /// Returns the number of connections that were cut at the end.
    fn run(&self, listeners: Vec<Listener>) -> usize {
        thread::scope(|scope| {
            accept_until(&self.control.stop, &listeners, "NBD clients", |listener| {
                while let Some(socket) = listener.accept()? {
                    self.admit(listener, socket, scope)?;
                }
                Ok(())
            });
            drop(listeners);
            let drain_until = *self.control.drain_until.lock().expect(NOT_POISONED);
            let drain_until = drain_until.expect("it is set before the signal is given");
            self.registry.drain(Shutdown::Read, drain_until)
        })
    }

    /// Starts a thread for a client. Fails if the system has no thread left.
    fn admit<'scope, 'env>(
        &'env self,
        listener: &Listener,
        socket: Socket,
        scope: &'scope Scope<'scope, 'env>,
    ) -> io::Result<()> {
        let (client, tls) = match listener {
            Listener::Tcp(_) => (Client::Anybody, self.control.tls()),
            Listener::Unix(_) => match Peer::of(&**socket.descriptor()) {
                Ok(peer) => (Client::Local(peer), None),
                // No credentials: the peer has disconnected.
                Err(_) => return Ok(()),
            },
        };
        let peer = match &client {
            Client::Local(peer) => Some(peer),
            Client::Anybody | Client::Certified(_) => None,
        };
        if peer.is_some_and(|peer| !self.exports.admits(peer)) {
            self.registry.note_refused();
            tracing::debug!(?client, "NBD client refused: it may not use any volume");
            return Ok(());
        }
        let Some(registration) = self.registry.admit(peer, socket.descriptor()) else {
            tracing::debug!("NBD client refused: too many connections");
            return Ok(());
        };
        let thread_start = self.config.thread_start;
        let connection = Connection {
            socket,
            exports: Arc::clone(&self.exports),
            client,
            tls,
            waiter: Waiter::new(Arc::clone(&self.config.spin_permits), self.config.spin_max),
            handshake_time_max: self.config.handshake_time_max,
            registration,
            thread_start,
        };
        let serve = move || {
            thread_start();
            connection.serve();
        };
        thread::Builder::new().name("nbd-serve".to_owned()).spawn_scoped(scope, serve)?;
        Ok(())
    }
}

const NOT_POISONED: &str = "nothing panics with this lock";
