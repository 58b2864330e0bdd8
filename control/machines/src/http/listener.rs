//! The socket: connections bounded in number and in time, of processes that may speak.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use export_kit::Peer;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use super::routes;
use crate::service::Service;

/// Connections beyond so many wait to be accepted.
const CONNECTION_COUNT_MAX: usize = 32;

/// How long a connection may take to send the head of its next request. Idle ones are closed.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);

/// How long to pause after the system had no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who may speak: root, the program's own user, and members of the group, where there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) gid: Option<u32>,
}

impl Access {
    fn admits(self, connection: &UnixStream) -> bool {
        // A failure to ask means that the peer is gone.
        Peer::of(connection).is_ok_and(|peer| self.admits_peer(&peer))
    }

    fn admits_peer(self, peer: &Peer) -> bool {
        peer.is_owner() || self.gid.is_some_and(|gid| peer.is_in_group(gid))
    }
}

/// Serves at `socket` until the program is asked to end.
pub(crate) async fn run(socket: &Path, access: Access, service: Service) -> anyhow::Result<()> {
    let listener = bind(socket, access)?;
    let mut end = signal(SignalKind::terminate()).context("cannot install signal handlers")?;
    let mut interrupt =
        signal(SignalKind::interrupt()).context("cannot install signal handlers")?;
    service_manager::ready();
    tracing::info!(socket = %socket.display(), "serving");
    tokio::select! {
        () = serve(listener, access, service) => {}
        _ = end.recv() => {}
        _ = interrupt.recv() => {}
    }
    service_manager::stopping();
    remove_stale(socket).with_context(|| format!("cannot remove {}", socket.display()))
}

/// Clients find the old socket or the new one.
fn bind(path: &Path, access: Access) -> anyhow::Result<UnixListener> {
    let doing = |what: &str| format!("cannot {what} the socket {}", path.display());
    let new_path = path.with_extension("sock.new");
    remove_stale(&new_path).with_context(|| doing("replace"))?;
    let listener = UnixListener::bind(&new_path).with_context(|| doing("make"))?;
    std::os::unix::fs::chown(&new_path, None, access.gid).with_context(|| doing("give away"))?;
    let mode = Permissions::from_mode(0o660);
    std::fs::set_permissions(&new_path, mode).with_context(|| doing("protect"))?;
    std::fs::rename(&new_path, path).with_context(|| doing("place"))?;
    Ok(listener)
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

async fn serve(listener: UnixListener, access: Access, service: Service) {
    let admitted = routes::router(Arc::new(service));
    let refused = routes::forbidding_router();
    let permits = Arc::new(Semaphore::new(CONNECTION_COUNT_MAX));
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        let connection = match listener.accept().await {
            Ok((connection, _)) => connection,
            Err(error) => {
                tracing::warn!(%error, "cannot accept API connections; retrying");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let router = if access.admits(&connection) { &admitted } else { &refused };
        let serving = serving(connection, router.clone());
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::debug!(%error, "connection ended");
            }
            drop(permit);
        });
    }
}

fn serving(
    connection: UnixStream,
    router: Router,
) -> http1::UpgradeableConnection<TokioIo<UnixStream>, TowerToHyperService<Router>> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .serve_connection(TokioIo::new(connection), TowerToHyperService::new(router))
        .with_upgrades()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_group_may_speak_and_nobody_else() {
        let peer = |uid, groups: &[u32]| Peer { uid, gid: 7, pid: 1, groups: groups.to_vec() };
        let stranger = rustix::process::geteuid().as_raw() + 1;
        let access = Access { gid: Some(990) };
        assert!(access.admits_peer(&peer(0, &[])));
        assert!(access.admits_peer(&peer(stranger, &[27, 990])));
        assert!(!access.admits_peer(&peer(stranger, &[27, 0])));
        assert!(!Access { gid: None }.admits_peer(&peer(stranger, &[27, 990])));
    }
}
