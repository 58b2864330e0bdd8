//! What goes into the audit log: what changes something, logins, and refusals for want of rights.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::access::{AuditEntry, By};
use crate::clock::unix_seconds;
use crate::http::caller::{Known, SESSION_PATH};
use crate::http::console::{Console, Peer};

/// Who it was, where the request does not say so by itself: a login, a set-up.
#[derive(Clone, Debug)]
pub(super) struct Actor(pub(super) String);

/// Status codes that are recorded for GET, too: refusals, and consoles of machines (101).
const RECORDED: &[u16] = &[101, 401, 403, 429];

pub(super) async fn record(
    State(console): State<Arc<Console>>,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let known = Known::of(&console, &method, request.headers()).ok();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    // Who has no session yet asks for it: that is how a page learns so.
    let asks_for_session = status == 401 && path == SESSION_PATH;
    let is_login = response.extensions().get::<Actor>().is_some();
    if method.is_safe() && !is_login && (!RECORDED.contains(&status) || asks_for_session) {
        return response;
    }
    let actor = response.extensions().get::<Actor>().map(|it| it.0.clone());
    let by = if known.is_some() { By::Known } else { By::Unknown };
    let entry = AuditEntry {
        id: 0,
        time: unix_seconds(),
        user: actor.or_else(|| known.as_ref().map(|it| it.caller.user.clone())),
        token: known.and_then(|it| it.caller.token),
        address: peer.map(|it| it.0.to_string()).unwrap_or_default(),
        method: method.to_string(),
        path,
        status,
    };
    let audit = Arc::clone(&console.audit);
    // The file is written by a thread that may wait; an answer never comes before its entry.
    if let Err(error) = tokio::task::spawn_blocking(move || audit.add(by, entry)).await {
        tracing::error!(%error, "the audit log cannot be written");
    }
    response
}
