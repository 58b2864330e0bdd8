//! What is served at which path.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, header};
use axum::middleware;
use axum::response::Response;
use axum::routing::{delete, get, patch, post};
use serde_json::Value;

use crate::gateway::{Incoming, is_the_daemons};
use crate::http::body::{self, BODY_BYTES_MAX};
use crate::http::caller::{Known, SESSION_PATH};
use crate::http::console::Console;
use crate::http::recorded::Change;
use crate::http::{
    accounts, headers, login, machine_consoles, peer, recorded, sign_on, topics, watching,
};
use crate::refusal::{Kind, Refusal};
use crate::sign_on::CALLBACK_PATH;

/// These say whether programs run, and nothing else: watchers ask without a token.
const FOR_EVERYBODY: &[&str] = &[api::HEALTH_PATH, api::READINESS_PATH];

pub(super) fn router(console: Arc<Console>) -> Router {
    let user = get(accounts::user).patch(accounts::change_user).delete(accounts::remove_user);
    let project = patch(accounts::change_project).delete(accounts::remove_project);
    let session = get(login::show).post(login::log_in).delete(login::log_out);
    let recorded = middleware::from_fn_with_state(Arc::clone(&console), recorded::record);
    let identified = middleware::from_fn_with_state(Arc::clone(&console), peer::identify);
    Router::new()
        .route("/console/v1/setup", post(login::set_up))
        .route(SESSION_PATH, session)
        .route("/console/v1/logins", get(sign_on::ways))
        .route("/console/v1/oidc/login", get(sign_on::begin))
        .route(CALLBACK_PATH, get(sign_on::finish))
        .route("/console/v1/password", post(login::change_password))
        .route("/console/v1/users", get(accounts::users).post(accounts::add_user))
        .route("/console/v1/users/{name}", user)
        .route("/console/v1/projects", get(accounts::projects).post(accounts::add_project))
        .route("/console/v1/projects/{name}", project)
        .route("/console/v1/tokens", get(accounts::tokens).post(accounts::add_token))
        .route("/console/v1/tokens/{id}", delete(accounts::remove_token))
        .route("/console/v1/sessions", get(accounts::sessions))
        .route("/console/v1/sessions/{id}", delete(accounts::end_session))
        .route("/console/v1/audit", get(accounts::audit))
        .route("/console/v1/events", get(watching::events))
        .route("/console/v1/history", get(watching::history))
        .route("/console/v1/charts", get(watching::charts))
        .route("/console/v1/topics", get(topics::list))
        .route("/console/v1/topics/{name}", get(topics::show))
        .route("/console/v1/query", post(topics::query))
        .route("/console/v1/machines/{name}/serial", get(machine_consoles::serial))
        .route("/console/v1/machines/{name}/screen", get(machine_consoles::screen))
        .method_not_allowed_fallback(async || {
            Refusal::new(Kind::NoMethod, "the path has no such method")
        })
        .fallback(other)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(recorded)
        .layer(identified)
        .layer(middleware::from_fn(headers::add))
        .with_state(console)
}

/// The daemon's interface, or a file of the page.
async fn other(State(console): State<Arc<Console>>, request: Request) -> Result<Response, Refusal> {
    let path = request.uri().path().to_owned();
    if !is_the_daemons(&path) {
        let file = console.page.answer(request.method(), &path, request.headers());
        let nothing = || Refusal::new(Kind::NotFound, "nothing is served at this path");
        return file.ok_or_else(nothing);
    }
    if FOR_EVERYBODY.contains(&path.as_str()) {
        let response = console.gateway.pass_health(request.method(), &path).await?;
        return Ok(response);
    }
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let mut headers = request.headers().clone();
    // Before the body is read: who may not ask sends nothing.
    let known = Known::of(&console, &method, &headers)?;
    headers.remove(header::COOKIE);
    let body = body::read(request, &()).await?;
    let new = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let old = match method {
        Method::PATCH | Method::DELETE => console.gateway.before(&known.caller, &uri).await,
        _ => Value::Null,
    };
    let incoming = Incoming { method: &method, uri: &uri, headers: &headers, body };
    let answer = console.gateway.pass(&known.caller, incoming).await?;
    Ok(match !method.is_safe() && !path.starts_with(api::MACHINES_PATH) {
        true => Change::of_daemon(old, new).told(answer),
        // What a machine is given at its first start may hold secrets.
        false => answer,
    })
}
