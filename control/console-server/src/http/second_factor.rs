//! Endpoints for second factors: enrolment, disabling, verification at login, and the rule that
//! requires them.
//!
//! Users of an identity provider have no second factor here; the provider may require one.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::access::{AccountError, Asker, CodeKind, Rules, SecondFactor, TotpSecret};
use crate::clock::Now;
use crate::http::accounts::{expected, tagged};
use crate::http::body::Body;
use crate::http::caller::{Administrator, InSession};
use crate::http::console::{Console, Peer};
use crate::http::credentials::{begin_attempt, verify};
use crate::http::recorded::Change;
use crate::refusal::{Kind, Refusal};

/// Field name in changes of the audit log.
const FIELD: &str = "second_factor";

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SecondFactorBegin {
    password: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SecondFactorConfirm {
    code: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SecondFactorDisable {
    password: String,
    /// Of the authenticator, or a recovery code.
    code: String,
}

/// State of the caller's second factor.
#[derive(Serialize, ToSchema)]
pub(super) struct SecondFactorState {
    enabled: bool,
    /// False where an identity provider logs the user in.
    available: bool,
    recovery_codes_left: usize,
}

/// Secret of an enrolment, for an authenticator.
#[derive(Serialize, ToSchema)]
pub(super) struct SecondFactorSecret {
    /// In base32.
    secret: String,
    uri: String,
}

/// Recovery codes, and sessions ended by the enrolment.
#[derive(Serialize, ToSchema)]
pub(super) struct SecondFactorEnabled {
    /// Each counts once. They are in this answer alone.
    recovery_codes: Vec<String>,
    sessions_ended: usize,
}

/// Result of the verification of a code.
pub(super) enum Looked {
    /// The user has no second factor.
    NotNeeded,
    Counts(CodeKind),
    Wrong,
    /// Too many wrong codes: this one was not verified.
    Refused,
}

impl Looked {
    /// Returns the change to record in the audit log, if the result is unusual.
    pub(super) fn change(&self) -> Option<Change> {
        let said = match self {
            Self::NotNeeded | Self::Counts(CodeKind::OfAuthenticator) => return None,
            Self::Counts(CodeKind::Recovery(left)) => json!({"recovery_code": {"left": left}}),
            Self::Wrong => json!("wrong code"),
            Self::Refused => json!("ignored: too many wrong codes"),
        };
        Some(Change::to(&json!({FIELD: said})))
    }
}

/// Verifies and consumes a code, after the password was correct. Returns once that is on disk.
pub(super) async fn look_at_code(
    console: &Console,
    (name, peer): (&str, Peer),
    code: Option<String>,
) -> Result<Looked, Refusal> {
    let user = console.accounts.user(name);
    let Some(user) = user.filter(|it| it.second_factor.is_some()) else {
        return Ok(Looked::NotNeeded);
    };
    let now = Now::read();
    // An attacker who knows the password gains nothing from many addresses, and does not delay the
    // user at known networks.
    let known = user.is_known_at(peer.0).then_some(peer.0);
    if !console.attempts.begin_code(name, known, now) {
        return Ok(Looked::Refused);
    }
    let accounts = Arc::clone(&console.accounts);
    let owner = name.to_owned();
    let take = move || accounts.take_code(&owner, &code.unwrap_or_default(), now.unix_seconds);
    let taken = tokio::task::spawn_blocking(take).await;
    match taken.map_err(|error| Refusal::internal(&error.into()))? {
        Ok(kind) => {
            console.attempts.code_succeeded(name, known);
            Ok(Looked::Counts(kind))
        }
        Err(AccountError::Invalid(..)) => Ok(Looked::Wrong),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: InSession,
) -> Json<SecondFactorState> {
    let user = match session.login.foreign {
        None => console.accounts.user(&session.caller.user),
        Some(_) => None,
    };
    let available = user.is_some();
    let factor = user.and_then(|it| it.second_factor);
    let recovery_codes_left = factor.as_ref().map_or(0, SecondFactor::recovery_codes_left);
    Json(SecondFactorState { enabled: factor.is_some(), available, recovery_codes_left })
}

/// Starts an enrolment. Nothing changes until the first code is confirmed.
pub(super) async fn begin(
    State(console): State<Arc<Console>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    session: InSession,
    Body(asked): Body<SecondFactorBegin>,
) -> Result<Response, Refusal> {
    let name = own_name(&session)?;
    check_password(&console, (&name, peer), asked.password).await?;
    console.attempts.succeeded(&name, peer.0);
    if console.accounts.user(&name).is_some_and(|it| it.second_factor.is_some()) {
        let what = "a second factor is already enabled; disable it before you enrol another";
        return Err(Refusal::new(Kind::Conflict, what));
    }
    let failed = |error: anyhow::Error| Refusal::internal(&error);
    let secret = TotpSecret::make().map_err(failed)?;
    let host = headers.get(header::HOST).and_then(|it| it.to_str().ok()).unwrap_or("console");
    let uri = secret.uri(&name, host).map_err(failed)?;
    let shown = SecondFactorSecret { secret: secret.reveal().map_err(failed)?, uri };
    console.enrolments.begin(&name, secret, Now::read());
    Ok(Change::to(&json!({FIELD: "enrolment begun"})).told(Json(shown).into_response()))
}

/// Enables the second factor with its first code. Other sessions of the user end, because they were
/// started without it.
pub(super) async fn confirm(
    State(console): State<Arc<Console>>,
    Extension(peer): Extension<Peer>,
    session: InSession,
    Body(asked): Body<SecondFactorConfirm>,
) -> Result<Response, Refusal> {
    let name = own_name(&session)?;
    let now = Now::read();
    let nothing = || Refusal::new(Kind::Conflict, "no enrolment is in progress; start again");
    let secret = console.enrolments.begun(&name, now).ok_or_else(nothing)?;
    begin_attempt(&console, &name, peer)?;
    let confirmed = SecondFactor::confirm(secret, &asked.code, now.unix_seconds);
    let confirmed = confirmed.map_err(|error| Refusal::internal(&error))?;
    let Some((factor, recovery_codes)) = confirmed else { return Ok(wrong_code(&Looked::Wrong)) };
    console.attempts.succeeded(&name, peer.0);
    let accounts = Arc::clone(&console.accounts);
    let owner = name.clone();
    let enable = move || accounts.enable_second_factor(&owner, factor);
    let enabled = tokio::task::spawn_blocking(enable).await;
    enabled.map_err(|error| Refusal::internal(&error.into()))??;
    console.enrolments.end(&name);
    let sessions_ended = console.sessions.end_all_of(&name, Some(&session.secret), now);
    let shown = SecondFactorEnabled { recovery_codes, sessions_ended };
    let change = Change::between(&json!({FIELD: false}), &json!({FIELD: true}));
    Ok(change.told(Json(shown).into_response()))
}

/// Disables the caller's second factor. Requires the password and a code.
pub(super) async fn disable(
    State(console): State<Arc<Console>>,
    Extension(peer): Extension<Peer>,
    session: InSession,
    Body(asked): Body<SecondFactorDisable>,
) -> Result<Response, Refusal> {
    let name = own_name(&session)?;
    check_password(&console, (&name, peer), asked.password).await?;
    let looked = look_at_code(&console, (&name, peer), Some(asked.code)).await?;
    match looked {
        Looked::Counts(_) => {}
        Looked::NotNeeded => {
            console.attempts.succeeded(&name, peer.0);
            return Err(Refusal::new(Kind::Conflict, "no second factor is enabled"));
        }
        Looked::Wrong | Looked::Refused => return Ok(wrong_code(&looked)),
    }
    console.attempts.succeeded(&name, peer.0);
    remove(&console, &name).await?;
    let change = Change::between(&json!({FIELD: true}), &json!({FIELD: false}));
    Ok(change.told(StatusCode::NO_CONTENT.into_response()))
}

/// Removes another user's second factor, and ends the user's sessions.
pub(super) async fn reset(
    Administrator(known): Administrator,
    State(console): State<Arc<Console>>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    if known.caller.user == name {
        let what = "disable your own second factor with your password and a code";
        return Err(Refusal::new(Kind::Conflict, what));
    }
    remove(&console, &name).await?;
    console.sessions.end_all_of(&name, None, Now::read());
    console.attempts.forget(&name);
    let change = Change::between(&json!({FIELD: true}), &json!({FIELD: false}));
    Ok(change.told(StatusCode::NO_CONTENT.into_response()))
}

pub(super) async fn rules(_: Administrator, State(console): State<Arc<Console>>) -> Response {
    tagged(&json!(console.accounts.rules()))
}

/// Changes the rules. Sessions of users without a second factor stay valid, for enabling one.
pub(super) async fn change_rules(
    Administrator(known): Administrator,
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    Body(asked): Body<Rules>,
) -> Result<Response, Refusal> {
    let expected = expected(&headers)?;
    let accounts = Arc::clone(&console.accounts);
    let change = move || accounts.change_rules(&known.caller.user, asked, expected.as_deref());
    let old = tokio::task::spawn_blocking(change).await;
    let old = old.map_err(|error| Refusal::internal(&error.into()))??;
    let new = json!(asked);
    Ok(Change::between(&json!(old), &new).told(tagged(&new)))
}

async fn remove(console: &Console, name: &str) -> Result<(), Refusal> {
    console.enrolments.end(name);
    let accounts = Arc::clone(&console.accounts);
    let name = name.to_owned();
    let removed = tokio::task::spawn_blocking(move || accounts.disable_second_factor(&name)).await;
    removed.map_err(|error| Refusal::internal(&error.into()))??;
    Ok(())
}

fn own_name(session: &InSession) -> Result<String, Refusal> {
    if session.login.foreign.is_some() {
        let what = "your second factor is managed by the single sign-on provider";
        return Err(Refusal::new(Kind::Conflict, what));
    }
    Ok(session.caller.user.clone())
}

/// Verifies the caller's password. The attempt counts as failed until it is marked as successful.
async fn check_password(
    console: &Console,
    (name, peer): (&str, Peer),
    password: String,
) -> Result<(), Refusal> {
    begin_attempt(console, name, peer)?;
    let kept = console.accounts.user(name).map(|it| it.password);
    let asker = Asker::User(name.to_owned());
    match verify(console, (name, peer), &asker, (password, kept)).await? {
        true => Ok(()),
        false => Err(Refusal::in_field("password", "wrong password")),
    }
}

fn wrong_code(looked: &Looked) -> Response {
    let what = "wrong or expired code; wait for the next one, and check that the clocks are right";
    let response = Refusal::in_field("code", what).into_response();
    match looked.change() {
        Some(change) => change.told(response),
        None => response,
    }
}
