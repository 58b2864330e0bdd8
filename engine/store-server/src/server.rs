//! The listening socket, TLS, and the threads of the server.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::Request;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use image::{FolderStore, ImageError};
use program::{ArrivingBody, Seat};
use rustls::ServerConfig;
use shares::Owner;
use tls::{ClientCertificate, TlsError, TlsFiles, TlsSettings};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::clients::{ClientStatus, Clients, Visitors, name_of};
use crate::quota::Quota;
use crate::requests::{Served, refuse};
use crate::wire::WireError;
use crate::work::{WORK_COUNT_MAX, Work};

/// Number of threads for connections.
const THREAD_COUNT: usize = 2;

/// Maximum number of connections. Beyond it, idle ones are closed.
const CONNECTION_COUNT_MAX: usize = 64;

/// Maximum time of a TLS handshake.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum time until the next request. Longer than clients keep idle connections.
const IDLE_TIME_MAX: Duration = Duration::from_secs(300);

/// Maximum time for which a client may not acknowledge what was sent to it.
const UNACKNOWLEDGED_TIME_MAX: Duration = Duration::from_secs(60);

/// Buffer size of a connection, and so the maximum size of a request's head.
const CONNECTION_BUFFER_BYTES: usize = 64 << 10;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    pub listen: SocketAddr,
    /// Created if it does not exist. Its parent must exist.
    pub directory: PathBuf,
    /// Certificate of the server, and the authority of clients, which is required.
    pub tls: TlsFiles,
    /// Names of clients, one of which the certificate must have. Empty: each certificate of the
    /// authority is accepted.
    pub clients: Vec<String>,
    /// Limit on the bytes of the store.
    pub bytes_max: Option<u64>,
}

/// Error of starting a server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot start the threads of the image store's server")]
    Threads { source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot open the directory of the image store to serve it")]
    Store { source: ImageError },
}

/// State of a server.
#[derive(Clone, Debug)]
pub struct ServerStatus {
    pub address: SocketAddr,
    pub clients: Vec<ClientStatus>,
    /// Number of connections that were refused.
    pub refused: u64,
    pub bytes_max: Option<u64>,
    /// Bytes of the store, if they were counted.
    pub used_bytes: Option<u64>,
}

/// A running server. Dropping it closes its connections.
pub struct StoreServer {
    address: SocketAddr,
    directory: PathBuf,
    store: Arc<FolderStore>,
    quota: Arc<Quota>,
    clients: Arc<Clients>,
    tls: Arc<Mutex<Arc<ServerConfig>>>,
    /// `None` only during drop.
    runtime: Option<Runtime>,
}

/// Parts that every connection uses.
#[derive(Clone)]
struct Parts {
    served: Arc<Served>,
    clients: Arc<Clients>,
    admitted: Arc<Vec<String>>,
}

impl StoreServer {
    /// Opens the directory, locks it against other processes of this host, and starts to listen.
    pub fn start(spec: ServerSpec, visitors: Arc<dyn Visitors>) -> Result<Self, ServerError> {
        let tls = TlsSettings::load(&spec.tls)?.server_config();
        let store = FolderStore::serve_alone(&spec.directory);
        let store = Arc::new(store.map_err(|source| ServerError::Store { source })?);
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREAD_COUNT)
            .max_blocking_threads(WORK_COUNT_MAX + 1)
            .thread_name("store-server")
            .enable_all()
            .build()
            .map_err(|source| ServerError::Threads { source })?;
        let address = spec.listen;
        let listening = |source| ServerError::Listen { address, source };
        let listener = runtime.block_on(TcpListener::bind(address)).map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        let (tls, clients) = (Arc::new(Mutex::new(tls)), Arc::new(Clients::new(visitors)));
        let quota = Arc::new(Quota::new(spec.bytes_max));
        let served = Arc::new(Served {
            store: Arc::clone(&store),
            quota: Arc::clone(&quota),
            work: Work::new(),
        });
        let parts =
            Parts { served, clients: Arc::clone(&clients), admitted: Arc::new(spec.clients) };
        runtime.spawn(accept_all(listener, Arc::clone(&tls), parts));
        let directory = spec.directory;
        Ok(Self { address, directory, store, quota, clients, tls, runtime: Some(runtime) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the store, for use by this process. Nothing else may write to the directory.
    pub fn store(&self) -> &Arc<FolderStore> {
        &self.store
    }

    /// Replaces the TLS settings for new connections.
    pub fn set_tls(&self, settings: &TlsSettings) {
        *self.tls.lock().expect(NO_PANIC) = settings.server_config();
    }

    pub fn status(&self) -> ServerStatus {
        ServerStatus {
            address: self.address,
            clients: self.clients.status(),
            refused: self.clients.refused_count(),
            bytes_max: self.quota.bytes_max(),
            used_bytes: self.quota.known_bytes(),
        }
    }
}

const NO_PANIC: &str = "no thread panics with this lock";

impl Drop for StoreServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A thread may hang in a disk operation.
            runtime.shutdown_background();
        }
    }
}

async fn accept_all(listener: TcpListener, tls: Arc<Mutex<Arc<ServerConfig>>>, parts: Parts) {
    let next = || listener.accept();
    let serving = |(stream, address), seat| {
        let config = Arc::clone(&tls.lock().expect(NO_PANIC));
        serve((stream, address), config, seat, parts.clone())
    };
    program::serve_all("image store connection", CONNECTION_COUNT_MAX, next, serving).await;
}

/// Serves a connection. Its certificate is verified before anything is read from it.
async fn serve(
    (stream, address): (TcpStream, SocketAddr),
    config: Arc<ServerConfig>,
    seat: Arc<Seat>,
    parts: Parts,
) -> Result<(), String> {
    let peer = owner_of(address.ip());
    // Until the handshake has succeeded, the connection may be closed in favour of others.
    seat.spare(peer);
    limit_silence(&stream).map_err(|error| error.to_string())?;
    let shaking = TlsAcceptor::from(config).accept(stream);
    let refuse = |why: String| {
        parts.clients.refuse(address, &why);
        why
    };
    let shaken = timeout(HANDSHAKE_TIME_MAX, shaking).await;
    let shaken = shaken.map_err(|_| refuse("the TLS handshake took too long".to_owned()))?;
    let stream = shaken.map_err(|error| refuse(format!("the TLS handshake failed: {error}")))?;
    let certificate = ClientCertificate::of(stream.get_ref().1);
    let certificate = certificate.ok_or_else(|| refuse("it has no certificate".to_owned()))?;
    let name = name_of(&certificate);
    let admitted = &parts.admitted;
    let is_admitted = admitted.is_empty() || admitted.iter().any(|name| certificate.is_for(name));
    if !is_admitted {
        refuse(format!("its certificate is for {name}, which is not in clients"));
    }
    let visit = is_admitted.then(|| Arc::new(parts.clients.enter(name.clone(), address)));
    let served = Arc::clone(&parts.served);
    let service = service_fn(move |request: Request<ArrivingBody>| {
        let (served, visit, name) = (Arc::clone(&served), visit.clone(), name.clone());
        async move {
            Ok::<_, std::convert::Infallible>(match visit {
                Some(visit) => served.answer(request, &visit).await,
                None => refuse_client(&name),
            })
        }
    });
    let mut http1 = program::http1_limited(IDLE_TIME_MAX);
    http1.max_buf_size(CONNECTION_BUFFER_BYTES);
    let serving = program::serve_http1(&http1, TokioIo::new(stream), service, (seat, peer));
    serving.await.map_err(|error| error.to_string())
}

fn refuse_client(name: &str) -> crate::requests::Answer {
    let why = format!(
        "the certificate is for {name}, which is not in clients of [store-server] on the server"
    );
    refuse(WireError::Client, why)
}

/// Sets TCP options: a time limit for unacknowledged data, and no delay of small segments.
fn limit_silence(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let millis = u32::try_from(UNACKNOWLEDGED_TIME_MAX.as_millis()).expect("a minute");
    Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, millis)?)
}

fn owner_of(address: IpAddr) -> Owner {
    let mut hasher = DefaultHasher::new();
    address.to_canonical().hash(&mut hasher);
    // Owner 0 is nobody.
    Owner(hasher.finish() | 1)
}
