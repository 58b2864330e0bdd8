//! Endpoints for users, projects, tokens and the audit log.

use std::sync::Arc;

use api::Role;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::access::{
    Asker, AuditFilter, Caller, Listed, NewToken, NewUser, Project, ProjectPatch, Token, User,
    UserPatch, tag_of,
};
use crate::clock::{Now, unix_seconds};
use crate::http::body::Body;
use crate::http::caller::{Administrator, Known, Proof};
use crate::http::console::Console;
use crate::http::credentials::new_password;
use crate::http::recorded::Change;
use crate::refusal::{Kind, Refusal};
use crate::sign_on::is_foreign;

type Shared = State<Arc<Console>>;
type Answer = Result<Response, Refusal>;

/// Default lifetime of a token.
const TOKEN_SECONDS_DEFAULT: u64 = 90 * 24 * 60 * 60;

const AUDIT_ENTRIES_MAX: usize = 1_000;
const AUDIT_ENTRIES_DEFAULT: usize = 100;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UserCreate {
    name: String,
    password: String,
    role: Role,
    #[serde(default)]
    projects: Vec<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UserChange {
    password: Option<String>,
    role: Option<Role>,
    projects: Option<Vec<String>>,
    disabled: Option<bool>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProjectChange {
    prefix: Option<String>,
    /// Null removes the limit.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    quota_bytes: Option<Option<u64>>,
    quota_volumes: Option<u64>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenCreate {
    name: String,
    role: Role,
    #[serde(default)]
    projects: Vec<String>,
    expires_in_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    before: Option<u64>,
    limit: Option<usize>,
    user: Option<String>,
    method: Option<String>,
    path: Option<String>,
    status: Option<u16>,
    since: Option<u64>,
    until: Option<u64>,
    /// Return all entries, one JSON object per line.
    export: Option<bool>,
}

fn given<'de, D: Deserializer<'de>>(field: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(field).map(Some)
}

pub(super) async fn users(_: Administrator, State(console): Shared) -> Json<Vec<Value>> {
    Json(console.accounts.users().iter().map(|it| with_tag(shown_user(it))).collect())
}

/// Returns one user, with an entity tag for `If-Match`.
pub(super) async fn user(
    _: Administrator,
    State(console): Shared,
    Path(name): Path<String>,
) -> Answer {
    let nobody = || Refusal::new(Kind::NotFound, &format!("no user {name:?}"));
    let user = console.accounts.user(&name).ok_or_else(nobody)?;
    Ok(tagged(&shown_user(&user)))
}

pub(super) async fn add_user(
    Administrator(known): Administrator,
    State(console): Shared,
    Body(asked): Body<UserCreate>,
) -> Answer {
    let password = new_password(&console, &asker(&known), "password", asked.password).await?;
    let UserCreate { name, role, projects, .. } = asked;
    let user = console.accounts.add_user(NewUser { name, password, role, projects })?;
    let shown = shown_user(&user);
    Ok(Change::to(&shown).told((StatusCode::CREATED, Json(shown.clone())).into_response()))
}

/// Changes a user. A new password ends all the user's sessions except the current one; disabling
/// the user ends all.
pub(super) async fn change_user(
    Administrator(known): Administrator,
    State(console): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    Body(asked): Body<UserChange>,
) -> Answer {
    let expected = expected(&headers)?;
    let password = match asked.password {
        Some(password) => Some(new_password(&console, &asker(&known), "password", password).await?),
        None => None,
    };
    let (has_password, is_disabled) = (password.is_some(), asked.disabled == Some(true));
    let UserChange { role, projects, disabled, .. } = asked;
    let patch = UserPatch { password, role, projects, disabled };
    let (old, user) = console.accounts.change_user(&name, patch, expected.as_deref())?;
    if has_password || is_disabled {
        let own = match &known.proof {
            Proof::Session(secret) if known.caller.user == name && !is_disabled => Some(secret),
            _ => None,
        };
        console.sessions.end_all_of(&name, own, Now::read());
    }
    if has_password || disabled == Some(false) {
        console.attempts.forget(&name);
    }
    let shown = shown_user(&user);
    let mut change = Change::between(&shown_user(&old), &shown);
    if has_password {
        change.new["password"] = "a new one".into();
    }
    Ok(change.told(tagged(&shown)))
}

pub(super) async fn remove_user(
    _: Administrator,
    State(console): Shared,
    Path(name): Path<String>,
) -> Answer {
    let old = console.accounts.remove_user(&name)?;
    console.sessions.end_all_of(&name, None, Now::read());
    Ok(Change::from(&shown_user(&old)).told(StatusCode::NO_CONTENT.into_response()))
}

/// Lists all projects for administrators, and their own projects for others.
pub(super) async fn projects(known: Known, State(console): Shared) -> Json<Vec<Value>> {
    let Caller { role, projects, .. } = known.caller;
    let mut shown = console.accounts.projects();
    shown.retain(|it| role == Role::Administrator || projects.contains(&it.name));
    Json(shown.iter().map(|it| with_tag(json!(it))).collect())
}

pub(super) async fn add_project(
    _: Administrator,
    State(console): Shared,
    Body(project): Body<Project>,
) -> Answer {
    console.accounts.add_project(project.clone())?;
    let shown = json!(project);
    Ok(Change::to(&shown).told((StatusCode::CREATED, Json(project)).into_response()))
}

pub(super) async fn change_project(
    _: Administrator,
    State(console): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    Body(asked): Body<ProjectChange>,
) -> Answer {
    let expected = expected(&headers)?;
    let ProjectChange { prefix, quota_bytes, quota_volumes } = asked;
    let patch = ProjectPatch { prefix, quota_bytes, quota_volumes };
    let (old, new) = console.accounts.change_project(&name, patch, expected.as_deref())?;
    let (old, new) = (json!(old), json!(new));
    Ok(Change::between(&old, &new).told(tagged(&new)))
}

pub(super) async fn remove_project(
    _: Administrator,
    State(console): Shared,
    Path(name): Path<String>,
) -> Answer {
    let old = console.accounts.remove_project(&name)?;
    Ok(Change::from(&json!(old)).told(StatusCode::NO_CONTENT.into_response()))
}

/// Lists all tokens for administrators, and their own tokens for others.
pub(super) async fn tokens(known: Known, State(console): Shared) -> Json<Vec<Value>> {
    let tokens = console.accounts.tokens(owner_of(&known.caller));
    Json(tokens.iter().map(shown_token).collect())
}

/// Creates a token. Its secret is returned only here.
pub(super) async fn add_token(
    known: Known,
    State(console): Shared,
    Body(asked): Body<TokenCreate>,
) -> Answer {
    if known.caller.token.is_some() {
        return Err(Refusal::forbidden("a token cannot create tokens; log in with a password"));
    }
    if is_foreign(&known.caller.user) {
        // A token would remain valid after the provider revoked the role.
        let what = "users of single sign-on cannot create tokens; use a user of the console";
        return Err(Refusal::forbidden(what));
    }
    let TokenCreate { name, role, projects, expires_in_seconds } = asked;
    let expires_in_seconds = expires_in_seconds.unwrap_or(TOKEN_SECONDS_DEFAULT);
    let new = NewToken { name, role, projects, expires_in_seconds };
    let (token, secret) = console.accounts.add_token(&known.caller, new, unix_seconds())?;
    let change = Change::to(&shown_token(&token));
    let shown = NewTokenShown { token: ShownToken::of(&token), secret: secret.reveal() };
    Ok(change.told((StatusCode::CREATED, Json(shown)).into_response()))
}

pub(super) async fn remove_token(
    known: Known,
    State(console): Shared,
    Path(id): Path<String>,
) -> Answer {
    let old = console.accounts.remove_token(&id, owner_of(&known.caller))?;
    Ok(Change::from(&shown_token(&old)).told(StatusCode::NO_CONTENT.into_response()))
}

/// Lists all sessions for administrators, and their own sessions for others.
pub(super) async fn sessions(known: Known, State(console): Shared) -> Json<Vec<Listed>> {
    Json(console.sessions.list(owner_of(&known.caller), Now::read()))
}

/// Ends a session, including those of single sign-on.
pub(super) async fn end_session(
    known: Known,
    State(console): Shared,
    Path(id): Path<String>,
) -> Answer {
    let ended = console.sessions.end_listed(&id, owner_of(&known.caller));
    let nothing = || Refusal::new(Kind::NotFound, &format!("no session {id:?}"));
    let user = ended.ok_or_else(nothing)?;
    let change = Change::from(&json!({"session_of": user}));
    Ok(change.told(StatusCode::NO_CONTENT.into_response()))
}

pub(super) async fn audit(
    _: Administrator,
    State(console): Shared,
    query: Result<Query<AuditQuery>, axum::extract::rejection::QueryRejection>,
) -> Answer {
    let asked = query.map_err(|error| Refusal::new(Kind::Invalid, &error.to_string()))?.0;
    let is_export = asked.export == Some(true);
    let count = match is_export {
        true => asked.limit.unwrap_or(usize::MAX),
        false => asked.limit.unwrap_or(AUDIT_ENTRIES_DEFAULT).min(AUDIT_ENTRIES_MAX),
    };
    let AuditQuery { before, user, method, path, status, since, until, .. } = asked;
    let filter = AuditFilter { before, user, method, path, status, since, until };
    let audit = Arc::clone(&console.audit);
    let read = tokio::task::spawn_blocking(move || audit.newest(&filter, count)).await;
    let failed = |error: &dyn std::fmt::Display| {
        Refusal::new(Kind::Internal, &format!("cannot read the audit log: {error}"))
    };
    let entries = read.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    if !is_export {
        return Ok(Json(entries).into_response());
    }
    let lines: String = entries.iter().map(|it| format!("{}\n", json!(it))).collect();
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"memlane-audit.jsonl\""),
    ];
    Ok((headers, lines).into_response())
}

/// Returns the entity tag in `If-Match`, if any.
pub(super) fn expected(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    match text.strip_prefix('"').and_then(|it| it.strip_suffix('"')) {
        Some(tag) => Ok(Some(tag.to_owned())),
        None => Err(Refusal::new(
            Kind::Invalid,
            "invalid If-Match header: use one entity tag in double quotes",
        )),
    }
}

/// Adds the entity tag to an entry of a list.
fn with_tag(mut shown: Value) -> Value {
    shown["etag"] = tag_of(&shown).into();
    shown
}

pub(super) fn tagged(shown: &Value) -> Response {
    let tag = format!("\"{}\"", tag_of(shown));
    ([(header::ETAG, tag)], Json(with_tag(shown.clone()))).into_response()
}

fn asker(known: &Known) -> Asker {
    Asker::User(known.caller.user.clone())
}

/// Returns the owner whose tokens the caller may see, or `None` for all.
fn owner_of(caller: &Caller) -> Option<&str> {
    (caller.role != Role::Administrator).then_some(caller.user.as_str())
}

fn shown_user(user: &User) -> Value {
    user.shown()
}

fn shown_token(token: &Token) -> Value {
    json!(ShownToken::of(token))
}

/// A token, without its secret.
#[derive(Serialize, ToSchema)]
#[schema(as = Token)]
pub(super) struct ShownToken<'a> {
    id: &'a str,
    name: &'a str,
    owner: &'a str,
    role: Role,
    projects: &'a [String],
    /// Unix seconds.
    created: u64,
    expires: u64,
    last_used: Option<u64>,
}

impl<'a> ShownToken<'a> {
    fn of(token: &'a Token) -> Self {
        let Token { id, name, owner, role, projects, created, expires, last_used, .. } = token;
        let (role, created, expires) = (*role, *created, *expires);
        Self { id, name, owner, role, projects, created, expires, last_used: *last_used }
    }
}

/// A new token, with its secret.
#[derive(Serialize, ToSchema)]
pub(super) struct NewTokenShown<'a> {
    #[serde(flatten)]
    #[schema(inline)]
    token: ShownToken<'a>,
    /// It is in this answer alone.
    secret: &'a str,
}
