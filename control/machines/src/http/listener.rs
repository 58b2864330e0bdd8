//! Listening socket: access control, and limits on connections and time.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use export_kit::Peer;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use program::{Seat, Seated, Signals};
use shares::Owner;
use tokio::net::{UnixListener, UnixStream};

use super::routes;
use crate::service::Service;

/// Maximum number of connections. At the limit, idle connections are closed.
const CONNECTION_COUNT_MAX: usize = 32;

/// Time limit for the head of the next request. Idle connections are closed.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);

/// Access control: root, the program's own user, and members of the group, if one is configured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) gid: Option<u32>,
}

impl Access {
    fn admits(self, connection: &UnixStream) -> bool {
        // If the peer's credentials are unavailable, it has disconnected.
        Peer::of(connection).is_ok_and(|peer| self.admits_peer(&peer))
    }

    fn admits_peer(self, peer: &Peer) -> bool {
        peer.is_owner() || self.gid.is_some_and(|gid| peer.is_in_group(gid))
    }
}

/// Serves on `socket` until the process is asked to stop.
pub(crate) async fn run(socket: &Path, access: Access, service: Service) -> anyhow::Result<()> {
    let listener = bind(socket, access)?;
    let signals = Signals::listen_to_stop()?;
    tracing::info!(socket = %socket.display(), "serving");
    program::serve_until_stopped(signals, serve(listener, access, service)).await;
    program::remove_if_there(socket).with_context(|| format!("cannot remove {}", socket.display()))
}

fn bind(path: &Path, access: Access) -> anyhow::Result<UnixListener> {
    let doing = |what: &str| format!("cannot {what} the socket {}", path.display());
    program::bind_in_place(path, |new_path| {
        std::os::unix::fs::chown(new_path, None, access.gid)
            .with_context(|| doing("change the group of"))?;
        let mode = Permissions::from_mode(0o660);
        std::fs::set_permissions(new_path, mode).with_context(|| doing("change the mode of"))
    })
}

async fn serve(listener: UnixListener, access: Access, service: Service) {
    let admitted = routes::router(Arc::new(service));
    let refused = routes::forbidding_router();
    let serving = |(connection, _), seat| {
        let router = if access.admits(&connection) { &admitted } else { &refused };
        serving(connection, router.clone(), seat)
    };
    let next = || listener.accept();
    program::serve_all("API connection", CONNECTION_COUNT_MAX, next, serving).await;
}

fn serving(
    connection: UnixStream,
    router: Router,
    seat: Arc<Seat>,
) -> http1::UpgradeableConnection<TokioIo<UnixStream>, Seated<TowerToHyperService<Router>>> {
    let http1 = program::http1_limited(HEAD_TIME_MAX);
    let service = TowerToHyperService::new(router);
    program::serve_http1(&http1, TokioIo::new(connection), service, (seat, Owner::NOBODY))
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
