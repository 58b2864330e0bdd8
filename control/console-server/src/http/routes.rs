//! Router.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, header};
use axum::middleware;
use axum::response::Response;
use serde_json::Value;

use crate::gateway::{Incoming, is_the_daemons};
use crate::http::body::{self, BODY_BYTES_MAX};
use crate::http::caller::Known;
use crate::http::console::Console;
use crate::http::endpoints::ENDPOINTS;
use crate::http::recorded::Change;
use crate::http::{headers, peer, recorded};
use crate::refusal::{Kind, Refusal};

/// Health checks, which monitoring uses without a token. They reveal only whether the programs run.
const FOR_EVERYBODY: &[&str] = &[api::HEALTH_PATH, api::READINESS_PATH];

pub(super) fn router(console: Arc<Console>) -> Router {
    let recorded = middleware::from_fn_with_state(Arc::clone(&console), recorded::record);
    let identified = middleware::from_fn_with_state(Arc::clone(&console), peer::identify);
    let own = ENDPOINTS.iter();
    own.fold(Router::new(), |router, it| router.route(it.path, (it.served_by)()))
        .method_not_allowed_fallback(async || {
            Refusal::new(Kind::NoMethod, "the path does not support this method")
        })
        .fallback(other)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(recorded)
        .layer(identified)
        .layer(middleware::from_fn(headers::add))
        .with_state(console)
}

/// Forwards a request to the daemon, or serves a file of the web page.
async fn other(State(console): State<Arc<Console>>, request: Request) -> Result<Response, Refusal> {
    let path = request.uri().path().to_owned();
    if !is_the_daemons(&path) {
        let file = console.page.answer(request.method(), &path, request.headers());
        let nothing = || Refusal::new(Kind::NotFound, "no such path");
        return file.ok_or_else(nothing);
    }
    if FOR_EVERYBODY.contains(&path.as_str()) {
        let response = console.gateway.pass_health(request.method(), &path).await?;
        return Ok(response);
    }
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let mut headers = request.headers().clone();
    // Authenticates before the body is read.
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
        // Creation of a machine may contain secrets (cloud-init), so its body is not logged.
        false => answer,
    })
}
