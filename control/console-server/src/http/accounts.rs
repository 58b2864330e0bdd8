//! Users, projects, tokens and the audit log.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use permissions::Role;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::access::{Caller, NewToken, NewUser, Project, ProjectPatch, Token, User, UserPatch};
use crate::clock::unix_seconds;
use crate::http::body::Body;
use crate::http::caller::{Administrator, Known, Proof};
use crate::http::console::Console;
use crate::http::login::new_password;
use crate::refusal::{Kind, Refusal};
use crate::sign_on::is_foreign;

type Shared = State<Arc<Console>>;
type Answer = Result<Response, Refusal>;

/// A token ends after this, where nothing else is asked for.
const TOKEN_SECONDS_DEFAULT: u64 = 90 * 24 * 60 * 60;

const AUDIT_ENTRIES_MAX: usize = 1_000;
const AUDIT_ENTRIES_DEFAULT: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UserCreate {
    name: String,
    password: String,
    role: Role,
    #[serde(default)]
    projects: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UserChange {
    password: Option<String>,
    role: Option<Role>,
    projects: Option<Vec<String>>,
    disabled: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProjectChange {
    prefix: Option<String>,
    /// Null takes the limit away.
    #[serde(default, deserialize_with = "given")]
    quota_bytes: Option<Option<u64>>,
}

#[derive(Deserialize)]
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
}

fn given<'de, D: Deserializer<'de>>(field: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(field).map(Some)
}

pub(super) async fn users(_: Administrator, State(console): Shared) -> Json<Vec<Value>> {
    Json(console.accounts.users().iter().map(shown_user).collect())
}

pub(super) async fn add_user(
    _: Administrator,
    State(console): Shared,
    Body(asked): Body<UserCreate>,
) -> Answer {
    let password = new_password(&console, "password", asked.password).await?;
    let UserCreate { name, role, projects, .. } = asked;
    let user = console.accounts.add_user(NewUser { name, password, role, projects })?;
    Ok((StatusCode::CREATED, Json(shown_user(&user))).into_response())
}

/// Changes a user. With a new password all their sessions end, but for the one that asks; once they
/// are disabled, all.
pub(super) async fn change_user(
    Administrator(known): Administrator,
    State(console): Shared,
    Path(name): Path<String>,
    Body(asked): Body<UserChange>,
) -> Answer {
    let password = match asked.password {
        Some(password) => Some(new_password(&console, "password", password).await?),
        None => None,
    };
    let (has_password, is_disabled) = (password.is_some(), asked.disabled == Some(true));
    let UserChange { role, projects, disabled, .. } = asked;
    let patch = UserPatch { password, role, projects, disabled };
    let user = console.accounts.change_user(&name, patch)?;
    if has_password || is_disabled {
        let own = match &known.proof {
            Proof::Session(secret) if known.caller.user == name && !is_disabled => Some(secret),
            _ => None,
        };
        console.sessions.end_all_of(&name, own, unix_seconds());
    }
    Ok(Json(shown_user(&user)).into_response())
}

pub(super) async fn remove_user(
    _: Administrator,
    State(console): Shared,
    Path(name): Path<String>,
) -> Answer {
    console.accounts.remove_user(&name)?;
    console.sessions.end_all_of(&name, None, unix_seconds());
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// All projects for administrators, one's own for others who are limited.
pub(super) async fn projects(known: Known, State(console): Shared) -> Json<Vec<Project>> {
    let Caller { role, projects, .. } = known.caller;
    let mut shown = console.accounts.projects();
    shown.retain(|it| role == Role::Administrator || projects.contains(&it.name));
    Json(shown)
}

pub(super) async fn add_project(
    _: Administrator,
    State(console): Shared,
    Body(project): Body<Project>,
) -> Answer {
    console.accounts.add_project(project.clone())?;
    Ok((StatusCode::CREATED, Json(project)).into_response())
}

pub(super) async fn change_project(
    _: Administrator,
    State(console): Shared,
    Path(name): Path<String>,
    Body(asked): Body<ProjectChange>,
) -> Answer {
    let ProjectChange { prefix, quota_bytes } = asked;
    let project = console.accounts.change_project(&name, ProjectPatch { prefix, quota_bytes })?;
    Ok(Json(project).into_response())
}

pub(super) async fn remove_project(
    _: Administrator,
    State(console): Shared,
    Path(name): Path<String>,
) -> Answer {
    console.accounts.remove_project(&name)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// All tokens for administrators, one's own for others.
pub(super) async fn tokens(known: Known, State(console): Shared) -> Json<Vec<Value>> {
    let tokens = console.accounts.tokens(owner_of(&known.caller));
    Json(tokens.iter().map(shown_token).collect())
}

/// Makes a token. Its secret is in this answer alone.
pub(super) async fn add_token(
    known: Known,
    State(console): Shared,
    Body(asked): Body<TokenCreate>,
) -> Answer {
    if known.caller.token.is_some() {
        return Err(Refusal::forbidden("a token makes no tokens: log in"));
    }
    if is_foreign(&known.caller.user) {
        // What it may would go on when the provider has taken the role away.
        let what = "who logged in by the provider makes no tokens: a user of the console does";
        return Err(Refusal::forbidden(what));
    }
    let TokenCreate { name, role, projects, expires_in_seconds } = asked;
    let expires_in_seconds = expires_in_seconds.unwrap_or(TOKEN_SECONDS_DEFAULT);
    let new = NewToken { name, role, projects, expires_in_seconds };
    let (token, secret) = console.accounts.add_token(&known.caller, new, unix_seconds())?;
    let mut shown = shown_token(&token);
    shown["secret"] = secret.reveal().into();
    Ok((StatusCode::CREATED, Json(shown)).into_response())
}

pub(super) async fn remove_token(
    known: Known,
    State(console): Shared,
    Path(id): Path<String>,
) -> Answer {
    console.accounts.remove_token(&id, owner_of(&known.caller))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn audit(
    _: Administrator,
    State(console): Shared,
    query: Result<Query<AuditQuery>, axum::extract::rejection::QueryRejection>,
) -> Answer {
    let asked = query.map_err(|error| Refusal::new(Kind::Invalid, &error.to_string()))?.0;
    let count = asked.limit.unwrap_or(AUDIT_ENTRIES_DEFAULT).min(AUDIT_ENTRIES_MAX);
    let audit = Arc::clone(&console.audit);
    let read = tokio::task::spawn_blocking(move || audit.newest(asked.before, count)).await;
    let failed = |error: &dyn std::fmt::Display| {
        Refusal::new(Kind::Internal, &format!("the audit log cannot be read: {error}"))
    };
    let entries = read.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    Ok(Json(entries).into_response())
}

/// Whose tokens somebody sees; `None`: everybody's.
fn owner_of(caller: &Caller) -> Option<&str> {
    (caller.role != Role::Administrator).then_some(caller.user.as_str())
}

fn shown_user(user: &User) -> Value {
    json!({
        "name": user.name,
        "role": user.role,
        "projects": user.projects,
        "disabled": user.disabled,
    })
}

fn shown_token(token: &Token) -> Value {
    json!({
        "id": token.id,
        "name": token.name,
        "owner": token.owner,
        "role": token.role,
        "projects": token.projects,
        "created": token.created,
        "expires": token.expires,
        "last_used": token.last_used,
    })
}
