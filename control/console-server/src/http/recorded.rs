//! Recording of requests in the audit log: changes, logins, and denied requests.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::{Value, json};

use crate::access::{AuditEntry, By};
use crate::clock::unix_seconds;
use crate::http::caller::{Known, SESSION_PATH};
use crate::http::console::{Console, Peer};
use crate::http::peer::Line;

/// User name of a request that does not authenticate itself: a login or setup.
#[derive(Clone, Debug)]
pub(super) struct Actor(pub(super) String);

/// Values before and after a change, for the audit log.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) old: Value,
    pub(super) new: Value,
}

impl Change {
    pub(super) fn to(new: &Value) -> Self {
        Self { old: Value::Null, new: new.clone() }
    }

    pub(super) fn from(old: &Value) -> Self {
        Self { old: old.clone(), new: Value::Null }
    }

    /// Returns the fields whose values differ.
    pub(super) fn between(old: &Value, new: &Value) -> Self {
        let differing = |one: &Value, other: &Value| -> Value {
            let fields = one.as_object().into_iter().flatten();
            let fields = fields.filter(|(name, value)| other.get(name.as_str()) != Some(value));
            fields.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        Self { old: differing(old, new), new: differing(new, old) }
    }

    /// Returns the fields of a request with their old values, or all old values if the request has
    /// none.
    pub(super) fn of_daemon(mut old: Value, new: Value) -> Self {
        if let (Some(old), Some(new)) = (old.as_object_mut(), new.as_object()) {
            let is_asked = |name: &str| new.contains_key(name.trim_end_matches("_bytes"));
            old.retain(|name, _| new.is_empty() || new.contains_key(name) || is_asked(name));
        }
        Self { old, new }
    }

    /// Attaches the change to a response, for the audit log.
    pub(super) fn told(self, mut response: Response) -> Response {
        response.extensions_mut().insert(self);
        response
    }

    fn shown(&self) -> Value {
        json!({"old": self.old, "new": self.new})
    }
}

/// Status codes that are also recorded for GET: denied requests, and machine consoles (101).
const RECORDED: &[u16] = &[101, 401, 403, 429];

pub(super) async fn record(
    State(console): State<Arc<Console>>,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let known = Known::identified(&console, &method, request.headers()).ok();
    let line = request.extensions().get::<Line>();
    if let Some((line, peer)) = line.zip(peer) {
        let user = known.as_ref().map(|it| it.caller.user.as_str());
        line.connection.is_of(user, peer.0);
    }
    let response = next.run(request).await;
    let status = response.status().as_u16();
    // The page requests the session to learn whether the user is logged in, so a 401 is normal.
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
        change: response.extensions().get::<Change>().map(Change::shown),
        count: 1,
    };
    let audit = Arc::clone(&console.audit);
    // The entry is written before the response, on a thread that may block.
    if let Err(error) = tokio::task::spawn_blocking(move || audit.add(by, entry)).await {
        tracing::error!(%error, "cannot write the audit log");
    }
    response
}
