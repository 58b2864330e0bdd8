//! Endpoints for single sign-on: redirect to the identity provider, and its callback.

use std::sync::Arc;

use api::decode;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::clock::Now;
use crate::http::caller::{cookie_named, session_cookie};
use crate::http::console::{Console, Peer};
use crate::http::recorded::Actor;
use crate::refusal::{Kind, Refusal};
use crate::sign_on::SignOn;

/// Cookie of a pending login. It is `SameSite=Lax`, because browsers do not send strict cookies
/// with the provider's redirect.
const COOKIE: &str = "__Host-memlane-sign-on";
const COOKIE_SECONDS: u64 = 10 * 60;

/// Maximum number of query parameters in the callback.
const PARAMETERS_MAX: usize = 16;

/// Ways to log in.
#[derive(Serialize, ToSchema)]
pub(super) struct Ways {
    password: bool,
    provider: bool,
}

/// Returns the available ways to log in. Needs no authentication, because the login page uses it.
pub(super) async fn ways(State(console): State<Arc<Console>>) -> Json<Ways> {
    Json(Ways { password: true, provider: console.sign_on.is_some() })
}

/// Redirects the browser to the provider.
pub(super) async fn begin(State(console): State<Arc<Console>>) -> Response {
    let begun = match sign_on_of(&console) {
        Ok(sign_on) => sign_on.begin(Now::read()).await,
        Err(refusal) => return refusal.into_response(),
    };
    match begun {
        Ok(begun) => {
            let attributes =
                format!("Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={COOKIE_SECONDS}");
            let cookie = format!("{COOKIE}={}; {attributes}", begun.cookie);
            let headers = [(header::LOCATION, begun.url), (header::SET_COOKIE, cookie)];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        Err(error) => {
            tracing::warn!("single sign-on is not available: {error:#}");
            told(StatusCode::SERVICE_UNAVAILABLE, "Cannot reach the identity provider.")
        }
    }
}

/// Handles the provider's callback and starts a session. On failure, the browser gets no details.
pub(super) async fn finish(
    State(console): State<Arc<Console>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let sign_on = match sign_on_of(&console) {
        Ok(sign_on) => sign_on,
        Err(refusal) => return refusal.into_response(),
    };
    let cookie = cookie_named(&headers, COOKIE).unwrap_or_default();
    let parameters = parameters(request.uri().query().unwrap_or_default());
    let now = Now::read();
    let caller = match parameters {
        Some(parameters) => sign_on.finish(&cookie, &parameters, now).await,
        None => Err(anyhow::anyhow!("cannot parse the response of the identity provider")),
    };
    let gone = format!("{COOKIE}=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0");
    let mut response = match caller {
        Ok(caller) => match console.sessions.begin_for(&caller, peer.0, now) {
            Ok((secret, _)) => {
                let location = [(header::LOCATION, "/".to_owned())];
                let mut response = (StatusCode::SEE_OTHER, location).into_response();
                response.headers_mut().append(header::SET_COOKIE, session_cookie(&secret));
                response.extensions_mut().insert(Actor(caller.user));
                response
            }
            Err(error) => Refusal::internal(&error).into_response(),
        },
        Err(error) => {
            tracing::warn!("single sign-on login refused: {error:#}");
            told(
                StatusCode::FORBIDDEN,
                "The login was refused. The reason is in the console's log.",
            )
        }
    };
    if let Ok(gone) = gone.parse() {
        response.headers_mut().append(header::SET_COOKIE, gone);
    }
    response
}

fn sign_on_of(console: &Console) -> Result<&SignOn, Refusal> {
    let nowhere = || {
        Refusal::new(
            Kind::NotFound,
            "single sign-on is not configured; start the console with --oidc-issuer",
        )
    };
    console.sign_on.as_ref().ok_or_else(nowhere)
}

/// Returns an HTML page, because the request is a navigation, not a script's.
fn told(status: StatusCode, what: &str) -> Response {
    let text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Memlane</title>\
         <h1>Memlane</h1><p>{what}</p><p><a href=\"/\">Log in</a></p></html>"
    );
    (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

/// Parses query parameters. Returns `None` if they are not UTF-8 or too many.
fn parameters(query: &str) -> Option<Vec<(String, String)>> {
    let pairs: Vec<_> = query.split('&').filter(|it| !it.is_empty()).collect();
    if pairs.len() > PARAMETERS_MAX {
        return None;
    }
    let pairs = pairs.into_iter().map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode(name, true)?, decode(value, true)?))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_or_refused() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let read = parameters("code=a%2Fb+c&state=&flag&&x=%c3%a4");
        let expected =
            vec![pair("code", "a/b c"), pair("state", ""), pair("flag", ""), pair("x", "ä")];
        assert_eq!(read, Some(expected));
        for wrong in ["a=%", "a=%2", "a=%zz", "a=%ff", &"a=b&".repeat(PARAMETERS_MAX + 1)] {
            assert_eq!(parameters(wrong), None, "{wrong}");
        }
    }
}
