//! Setup, login, logout, and changes of one's own password.

use std::sync::Arc;

use api::Role;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::{Asker, Caller, Login, UserPatch, is_name};
use crate::clock::Now;
use crate::http::body::Body;
use crate::http::caller::{COOKIE, Enrolled, InSession, check_origin, session_cookie};
use crate::http::console::{Console, Peer};
use crate::http::credentials::{begin_attempt, new_password, verify};
use crate::http::recorded::Actor;
use crate::http::second_factor::{Looked, look_at_code};
use crate::refusal::{Kind, Refusal};

/// Name under which failed setups are counted. It is not a valid user name.
const SETUP_NAME: &str = "(set-up)";

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetupRequest {
    code: String,
    name: String,
    password: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LoginRequest {
    name: String,
    password: String,
    /// Of the second factor, if the user has one.
    code: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PasswordRequest {
    current: String,
    new: String,
}

/// Session of the caller.
#[derive(Serialize, ToSchema)]
pub(super) struct OwnSession {
    name: String,
    role: Role,
    projects: Vec<String>,
    /// Value of the header X-Memlane-CSRF of requests that change something.
    csrf: String,
    /// Unix seconds.
    expires: u64,
    /// The rules let the user do nothing but enable a second factor.
    must_enrol: bool,
    services: Services,
}

/// Services of this host that the console was started with, besides the daemon.
#[derive(Serialize, ToSchema)]
struct Services {
    broker: bool,
    machines: bool,
}

/// Sessions ended by the new password, and tokens that remain.
#[derive(Serialize, ToSchema)]
pub(super) struct PasswordChanged {
    sessions_ended: usize,
    /// Number of tokens that remain valid.
    tokens: usize,
}

/// Creates the first administrator and logs in.
pub(super) async fn set_up(
    State(console): State<Arc<Console>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Body(asked): Body<SetupRequest>,
) -> Result<Response, Refusal> {
    check_origin(&console, &headers)?;
    // Setups from different addresses do not delay each other. Codes cannot be guessed.
    let attempt = format!("{SETUP_NAME} {}", peer.0);
    begin_attempt(&console, &attempt, peer)?;
    if !console.setup.is(&asked.code) {
        let what = "invalid setup link: it was already used, or the console was restarted";
        return Err(Refusal::forbidden(what));
    }
    console.attempts.succeeded(&attempt, peer.0);
    let asker = Asker::at(peer.0);
    let password = new_password(&console, &asker, "password", asked.password).await?;
    console.accounts.make_first(asked.name.clone(), password)?;
    console.setup.end();
    tracing::info!(user = asked.name, "created the first administrator");
    begin(&console, &asked.name, peer)
}

/// Logs in with a new session, regardless of the browser's earlier one. The error does not reveal
/// which of name, password and code is wrong, so passwords cannot be guessed separately from codes.
pub(super) async fn log_in(
    State(console): State<Arc<Console>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Body(asked): Body<LoginRequest>,
) -> Result<Response, Refusal> {
    check_origin(&console, &headers)?;
    // An invalid name may be a password in the wrong field, so it is not logged.
    let name = if is_name(&asked.name) { asked.name.as_str() } else { "" };
    begin_attempt(&console, name, peer)?;
    let user = console.accounts.user(name).filter(|it| !it.disabled);
    let asker = match &user {
        Some(user) if user.is_known_at(peer.0) => Asker::returning(name, peer.0),
        _ => Asker::at(peer.0),
    };
    let kept = user.map(|it| it.password);
    if !verify(&console, (name, peer), &asker, (asked.password, kept)).await? {
        return Ok(refused(name, None));
    }
    let looked = look_at_code(&console, (name, peer), asked.code).await?;
    if let Looked::Wrong | Looked::Refused = looked {
        return Ok(refused(name, Some(&looked)));
    }
    console.attempts.succeeded(name, peer.0);
    if let Ok(before) = InSession::of(&console, &axum::http::Method::GET, &headers) {
        console.sessions.end(&before.secret);
    }
    let response = begin(&console, name, peer)?;
    Ok(match looked.change() {
        Some(change) => change.told(response),
        None => response,
    })
}

/// Returns the same response for all causes. The audit log has the cause.
fn refused(name: &str, looked: Option<&Looked>) -> Response {
    let what = "wrong name, password or code";
    let mut response = Refusal::new(Kind::Unauthorized, what).into_response();
    response.extensions_mut().insert(Actor(name.to_owned()));
    match looked.and_then(Looked::change) {
        Some(change) => change.told(response),
        None => response,
    }
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: InSession,
) -> Json<OwnSession> {
    Json(shown(&console, &session.caller, &session.login, session.must_enrol(&console)))
}

pub(super) async fn log_out(State(console): State<Arc<Console>>, session: InSession) -> Response {
    console.sessions.end(&session.secret);
    let cookie = format!("{COOKIE}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0");
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response()
}

/// Changes the caller's own password. Other sessions of the user end. Tokens stay valid, and their
/// number is returned.
pub(super) async fn change_password(
    State(console): State<Arc<Console>>,
    Extension(peer): Extension<Peer>,
    Enrolled(session): Enrolled,
    Body(asked): Body<PasswordRequest>,
) -> Result<Response, Refusal> {
    let name = session.caller.user;
    if session.login.foreign.is_some() {
        let what = "your password is managed by the single sign-on provider; change it there";
        return Err(Refusal::new(Kind::Conflict, what));
    }
    begin_attempt(&console, &name, peer)?;
    let kept = console.accounts.user(&name).map(|it| it.password);
    let asker = Asker::User(name.clone());
    if !verify(&console, (&name, peer), &asker, (asked.current, kept)).await? {
        return Err(Refusal::in_field("current", "wrong password"));
    }
    console.attempts.succeeded(&name, peer.0);
    let password = Some(new_password(&console, &asker, "new", asked.new).await?);
    console.accounts.change_user(&name, UserPatch { password, ..UserPatch::default() }, None)?;
    let now = Now::read();
    let sessions_ended = console.sessions.end_all_of(&name, Some(&session.secret), now);
    let tokens = console.accounts.tokens(Some(&name));
    let tokens = tokens.iter().filter(|it| it.expires > now.unix_seconds).count();
    Ok(Json(PasswordChanged { sessions_ended, tokens }).into_response())
}

fn begin(console: &Console, name: &str, peer: Peer) -> Result<Response, Refusal> {
    let nobody = || Refusal::new(Kind::Unauthorized, "the user was deleted");
    let caller = console.accounts.caller_of_user(name).ok_or_else(nobody)?;
    let begun = console.sessions.begin(name, peer.0, Now::read());
    let (secret, login) = begun.map_err(|error| Refusal::internal(&error))?;
    if console.accounts.note_login(name, peer.0) {
        // Do not wait for the disk. If the record is lost, only the user's priority for password
        // hashing is.
        let accounts = Arc::clone(&console.accounts);
        tokio::task::spawn_blocking(move || accounts.keep());
    }
    let cookie = session_cookie(&secret);
    let body = Json(shown(console, &caller, &login, console.accounts.must_enrol(name)));
    let mut response = ([(header::SET_COOKIE, cookie)], body).into_response();
    response.extensions_mut().insert(Actor(name.to_owned()));
    Ok(response)
}

fn shown(console: &Console, caller: &Caller, login: &Login, must_enrol: bool) -> OwnSession {
    let (broker, machines) = (console.broker.is_some(), console.gateway.has_machines());
    OwnSession {
        name: caller.user.clone(),
        role: caller.role,
        projects: caller.projects.clone(),
        csrf: login.csrf.reveal().to_owned(),
        expires: login.expires,
        must_enrol,
        services: Services { broker, machines },
    }
}
