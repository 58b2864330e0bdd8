//! The socket of the REST interface: connections bounded in number and in time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::http::access::AccessRule;
use crate::http::gate::{self, Gate};
use crate::http::routes;
use crate::run_dir::remove_stale;

/// Connections beyond so many wait to be accepted.
const CONNECTION_COUNT_MAX: usize = 64;

/// How long a connection may take to send the head of its next request. Idle ones are closed.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);

/// The buffer of a connection, and so the longest head of a request.
const CONNECTION_BUFFER_BYTES: usize = 64 << 10;

/// How long to pause after the system had no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens at `path`, for the processes that `rule` admits. Takes the place of a socket that is
/// there: clients find the old or the new one.
pub(super) fn bind(path: &Path, rule: &AccessRule) -> anyhow::Result<UnixListener> {
    let new_path = path.with_extension("sock.new");
    let doing = |what: &str| format!("cannot {what} the socket {}", path.display());
    remove_stale(&new_path).with_context(|| doing("replace"))?;
    let listener = UnixListener::bind(&new_path).with_context(|| doing("make"))?;
    rule.restrict(&new_path)?;
    std::fs::rename(&new_path, path).with_context(|| doing("place"))?;
    Ok(listener)
}

/// Serves until `stop` is ready, then lets connections end whose requests are answered.
pub(super) async fn serve(
    listener: UnixListener,
    gate: Arc<Gate>,
    rule: AccessRule,
    stop: impl Future<Output = ()>,
) {
    let admitted = gate::router(gate);
    let refused = routes::forbidding_router();
    let permits = Arc::new(Semaphore::new(CONNECTION_COUNT_MAX));
    let open = GracefulShutdown::new();
    let accepting = async {
        loop {
            let permit = Arc::clone(&permits).acquire_owned().await;
            let permit = permit.expect("the semaphore is never closed");
            let connection = accept(&listener).await;
            let router = if rule.admits(&connection) { &admitted } else { &refused };
            let serving = open.watch(serving(connection, router.clone()));
            tokio::spawn(async move {
                if let Err(error) = serving.await {
                    tracing::debug!(%error, "API connection ended");
                }
                drop(permit);
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stop => {}
    }
    drop(listener);
    open.shutdown().await;
}

async fn accept(listener: &UnixListener) -> UnixStream {
    loop {
        match listener.accept().await {
            Ok((connection, _)) => return connection,
            Err(error) => {
                tracing::warn!(%error, "cannot accept API connections; retrying");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn serving(
    connection: UnixStream,
    router: Router,
) -> http1::Connection<TokioIo<UnixStream>, TowerToHyperService<Router>> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(CONNECTION_BUFFER_BYTES)
        .serve_connection(TokioIo::new(connection), TowerToHyperService::new(router))
}
