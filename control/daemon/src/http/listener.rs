//! Socket of the REST interface, with limits on the number of connections and on their time.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use program::{Seat, Seated};
use shares::Owner;
use tokio::net::{UnixListener, UnixStream};

use crate::http::access::AccessRule;
use crate::http::readiness::{self, Readiness};
use crate::http::routes;

/// Maximum number of connections. Beyond it, idle connections are closed.
const CONNECTION_COUNT_MAX: usize = 64;

/// Maximum time for the head of the next request. Idle connections are closed then.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);

/// Buffer size of a connection, and so the maximum size of a request head.
const CONNECTION_BUFFER_BYTES: usize = 64 << 10;

/// Serves until `stop` completes, then closes connections after requests in flight.
pub(super) async fn serve(
    listener: UnixListener,
    readiness: Arc<Readiness>,
    rule: AccessRule,
    stop: impl Future<Output = ()>,
) {
    let admitted = readiness::router(readiness);
    let refused = routes::forbidding_router();
    let open = GracefulShutdown::new();
    let serving = |(connection, _), seat| {
        let router = if rule.admits(&connection) { &admitted } else { &refused };
        open.watch(serving(connection, router.clone(), seat))
    };
    let next = || listener.accept();
    tokio::select! {
        () = program::serve_all("API connection", CONNECTION_COUNT_MAX, next, serving) => {}
        () = stop => {}
    }
    drop(listener);
    open.shutdown().await;
}

fn serving(
    connection: UnixStream,
    router: Router,
    seat: Arc<Seat>,
) -> http1::Connection<TokioIo<UnixStream>, Seated<TowerToHyperService<Router>>> {
    let mut http1 = program::http1_limited(HEAD_TIME_MAX);
    http1.max_buf_size(CONNECTION_BUFFER_BYTES);
    let service = TowerToHyperService::new(router);
    program::serve_http1(&http1, TokioIo::new(connection), service, (seat, Owner::NOBODY))
}
