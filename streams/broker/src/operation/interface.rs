//! HTTP interface: listeners and routes.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use access::owner_at;
use anyhow::{Context, bail};
use api::ProblemKind;
use axum::Router;
use axum::extract::{Path as PathOf, State};
use axum::response::Response;
use axum::routing::get;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use program::Seat;
use shares::Owner;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;

use super::answers::{health, json, problem, text};
use super::metrics;
use super::state::Operation;
use super::views::{StatusView, TopicView, detailed_lag, lags};
use crate::storage::Storage;

/// Maximum number of connections. Beyond it, idle connections of the address with the most
/// idle ones are closed.
const CONNECTION_COUNT_MAX: usize = 64;

/// Maximum time for receiving the next request head, after which a connection is closed.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);

/// Size of a connection's buffer, which limits the size of a request head.
const CONNECTION_BUFFER_BYTES: usize = 64 << 10;

/// Access for the broker's user and group.
const SOCKET_MODE: u32 = 0o660;

/// Addresses of the interface.
#[derive(Clone, Debug, Default)]
pub(crate) struct HttpPlaces {
    pub(crate) address: Option<SocketAddr>,
    /// True if the address may be reachable from other hosts.
    pub(crate) may_be_exposed: bool,
    pub(crate) socket: Option<PathBuf>,
}

/// Thread of the interface. It ends on drop.
pub(crate) struct Interface {
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Interface {
    /// Starts the interface, and periodic checks of the storage.
    ///
    /// # Errors
    /// An address or socket cannot be bound, or the address is reachable from other hosts without
    /// permission.
    pub(crate) fn start(
        places: &HttpPlaces,
        operation: &Arc<Operation>,
        storage: Arc<dyn Storage>,
    ) -> anyhow::Result<Self> {
        if places.address.is_none() && places.socket.is_none() {
            return Ok(Self { running: None });
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(2)
            .build()
            .context("cannot start the HTTP interface")?;
        let inside = runtime.enter();
        let listeners = Listeners::open(places)?;
        drop(inside);
        let (stop, stopped) = oneshot::channel();
        let operation = Arc::clone(operation);
        let work = move || {
            runtime.spawn(Arc::clone(&operation).probe(storage));
            let router = router(operation);
            runtime.block_on(async {
                tokio::select! {
                    () = listeners.serve(&router) => {}
                    // Sending and dropping both mean the end.
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(work)?;
        Ok(Self { running: Some((stop, thread)) })
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            // A panic was already reported, and the process is ending anyway.
            let _ended = thread.join();
        }
    }
}

struct Listeners {
    tcp: Option<TcpListener>,
    unix: Option<UnixListener>,
    /// Removed on drop.
    socket: Option<PathBuf>,
}

impl Listeners {
    fn open(places: &HttpPlaces) -> anyhow::Result<Self> {
        let tcp = places.address.map(|address| {
            if !address.ip().is_loopback() && !places.may_be_exposed {
                bail!(
                    "--http {address} is reachable from other hosts without a password; use a \
                     loopback address, or --http-exposed true"
                );
            }
            let doing = || format!("cannot listen on {address} for HTTP");
            let listener = std::net::TcpListener::bind(address).with_context(doing)?;
            listener.set_nonblocking(true).with_context(doing)?;
            TcpListener::from_std(listener).with_context(doing)
        });
        let unix = places.socket.as_deref().map(bind);
        Ok(Self { tcp: tcp.transpose()?, unix: unix.transpose()?, socket: places.socket.clone() })
    }

    async fn serve(&self, router: &Router) {
        let next = || async {
            tokio::select! {
                tcp = accept_tcp(self.tcp.as_ref()) => {
                    tcp.map(|(stream, address)| Connection::Tcp(stream, owner_at(address.ip())))
                }
                unix = accept_unix(self.unix.as_ref()) => unix.map(Connection::Unix),
            }
        };
        let serving = |connection, seat| {
            let router = router.clone();
            async move {
                match connection {
                    Connection::Tcp(stream, peer) => serve(stream, router, (seat, peer)).await,
                    Connection::Unix(stream) => serve(stream, router, (seat, Owner::NOBODY)).await,
                }
            }
        };
        program::serve_all("HTTP connection", CONNECTION_COUNT_MAX, next, serving).await;
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        if let Some(path) = &self.socket {
            // A leftover socket is harmless: the next start replaces it.
            let _ = std::fs::remove_file(path);
        }
    }
}

enum Connection {
    Tcp(tokio::net::TcpStream, Owner),
    Unix(tokio::net::UnixStream),
}

async fn accept_tcp(
    listener: Option<&TcpListener>,
) -> io::Result<(tokio::net::TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

async fn accept_unix(listener: Option<&UnixListener>) -> io::Result<tokio::net::UnixStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    seat: (Arc<Seat>, Owner),
) -> hyper::Result<()> {
    let mut http1 = program::http1_limited(HEAD_TIME_MAX);
    http1.max_buf_size(CONNECTION_BUFFER_BYTES);
    let service = TowerToHyperService::new(router);
    program::serve_http1(&http1, TokioIo::new(stream), service, seat).await
}

/// Binds a Unix socket. Replaces a stale socket, but no other file.
fn bind(path: &Path) -> anyhow::Result<UnixListener> {
    let doing = |what: &str| format!("cannot {what} the socket {}", path.display());
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            bail!("{} already exists and is not a socket; remove it", path.display());
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            bail!("another process listens on {}; stop it, or use another path", path.display());
        }
        std::fs::remove_file(path).with_context(|| doing("replace"))?;
    }
    let listener = UnixListener::bind(path).with_context(|| doing("make"))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))
        .with_context(|| doing("restrict"))?;
    Ok(listener)
}

type Shared = State<Arc<Operation>>;

fn router(operation: Arc<Operation>) -> Router {
    Router::new()
        .route("/healthz", get(show_health))
        .route("/readyz", get(show_readiness))
        .route("/metrics", get(show_metrics))
        .route("/v1/status", get(show_status))
        .route("/v1/topics", get(show_topics))
        .route("/v1/topics/{name}", get(show_topic))
        .route("/v1/groups", get(show_groups))
        .route("/v1/groups/{name}", get(show_group))
        .fallback(async || {
            let detail = "it serves /healthz, /readyz, /metrics, /v1/status, /v1/topics, \
                          /v1/topics/NAME, /v1/groups and /v1/groups/NAME";
            problem(ProblemKind::UnknownPath, detail.to_owned())
        })
        .with_state(operation)
}

/// Responds as long as the process lives.
async fn show_health(State(operation): Shared) -> Response {
    health(operation.stage(), None, None)
}

async fn show_readiness(State(operation): Shared) -> Response {
    health(operation.stage(), operation.unready(), operation.unserved())
}

async fn show_metrics(State(operation): Shared) -> Response {
    text(metrics_text::CONTENT_TYPE, metrics::write(&operation).await)
}

async fn show_status(State(operation): Shared) -> Response {
    json(StatusView::of(&operation))
}

async fn show_topics(State(operation): Shared) -> Response {
    let Some(broker) = operation.broker() else { return not_serving(&operation) };
    let topics = broker.topics.all();
    json(topics.iter().map(|topic| TopicView::of(topic)).collect::<Vec<_>>())
}

async fn show_topic(State(operation): Shared, PathOf(name): PathOf<String>) -> Response {
    let Some(broker) = operation.broker() else { return not_serving(&operation) };
    match broker.topics.by_name(&name) {
        Some(topic) => json(TopicView::detailed(&topic)),
        None => problem(ProblemKind::NotFound, format!("topic {name:?} does not exist")),
    }
}

async fn show_groups(State(operation): Shared) -> Response {
    let Some(broker) = operation.broker() else { return not_serving(&operation) };
    match lags(&broker).await {
        Some(groups) => json(groups),
        None => coordinator_busy(),
    }
}

async fn show_group(State(operation): Shared, PathOf(name): PathOf<String>) -> Response {
    let Some(broker) = operation.broker() else { return not_serving(&operation) };
    match detailed_lag(&broker, &name).await {
        Some(Some(group)) => json(group),
        Some(None) => problem(ProblemKind::NotFound, format!("group {name:?} does not exist")),
        None => coordinator_busy(),
    }
}

fn coordinator_busy() -> Response {
    let detail = "the group coordinator is busy or waits for the storage; retry later";
    problem(ProblemKind::Starting, detail.to_owned())
}

fn not_serving(operation: &Operation) -> Response {
    let kind = match operation.stage() {
        "stopping" => ProblemKind::ShuttingDown,
        _ => ProblemKind::Starting,
    };
    problem(kind, format!("the broker is {}", operation.stage()))
}
