//! Who asks: a browser with the cookie of a session, or a program with a token.

use std::sync::Arc;

use api::Role;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use crate::access::{Caller, Login, Secret};
use crate::clock::unix_seconds;
use crate::http::console::Console;
use crate::refusal::{Kind, Refusal};

pub(super) const SESSION_PATH: &str = "/console/v1/session";

/// With this prefix a cookie is sent over TLS alone, and to this host alone.
pub(super) const COOKIE: &str = "__Host-memlane-session";

/// Repeats what the session was told, which another page cannot know.
pub(super) const CSRF_HEADER: HeaderName = HeaderName::from_static("x-memlane-csrf");

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// A session that a browser has shown, and who it is of.
pub(super) struct InSession {
    pub(super) secret: Secret,
    pub(super) login: Login,
    pub(super) caller: Caller,
}

/// Credential by which somebody showed who they are.
#[derive(Clone, Debug)]
pub(super) enum Proof {
    Session(Secret),
    /// A session of somebody whom a provider named.
    Foreign(Secret),
    Token(Secret),
}

/// Somebody who may look at least, with the proof of it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) caller: Caller,
    pub(super) proof: Proof,
}

/// A session whose user may do more than enable a second factor.
pub(super) struct Enrolled(pub(super) InSession);

/// Somebody who may administer the console.
pub(super) struct Administrator(pub(super) Known);

impl Known {
    /// Somebody who may do more than enable a second factor.
    pub(super) fn of(
        console: &Console,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Self, Refusal> {
        let known = Self::identified(console, method, headers)?;
        if let Proof::Session(_) = known.proof {
            check_enrolled(console, &known.caller)?;
        }
        Ok(known)
    }

    /// Finds out who asks, whatever they may. Requests that change something must come from the
    /// console's own page, where a cookie says who it is: browsers send those by themselves.
    pub(super) fn identified(
        console: &Console,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Self, Refusal> {
        let now = unix_seconds();
        if let Some(value) = headers.get(header::AUTHORIZATION) {
            // The name of a scheme is the same in capitals and in small letters (RFC 9110, 11.1).
            let parts = value.to_str().ok().and_then(|it| it.trim().split_once(' '));
            let bearer = parts.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let secret = Secret::shown(bearer.map_or("", |(_, secret)| secret).trim());
            let caller = console.accounts.caller_of_token(&secret, now);
            let caller = caller.ok_or_else(|| {
                Refusal::new(Kind::Unauthorized, "the token is unknown or has expired")
            })?;
            return Ok(Self { caller, proof: Proof::Token(secret) });
        }
        let session = InSession::of(console, method, headers)?;
        let proof = match session.login.foreign {
            None => Proof::Session(session.secret),
            Some(_) => Proof::Foreign(session.secret),
        };
        Ok(Self { caller: session.caller, proof })
    }

    /// Returns whether they are still known, as what they are.
    pub(super) fn still_is(&self, console: &Console) -> bool {
        let caller = self.now(console);
        caller.is_some_and(|it| it.projects == self.caller.projects && it.role >= Role::Viewer)
    }

    /// Caller with the rights of this moment; `None`: they are not known any more.
    pub(super) fn now(&self, console: &Console) -> Option<Caller> {
        let now = unix_seconds();
        match &self.proof {
            Proof::Session(secret) | Proof::Foreign(secret)
                if !console.sessions.goes_on(secret, now) =>
            {
                None
            }
            Proof::Foreign(_) => Some(self.caller.clone()),
            // Rules may have changed.
            Proof::Session(_) if console.accounts.must_enrol(&self.caller.user) => None,
            Proof::Session(_) => console.accounts.caller_of_user(&self.caller.user),
            Proof::Token(secret) => console.accounts.caller_of_token(secret, now),
        }
    }
}

impl InSession {
    pub(super) fn of(
        console: &Console,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Self, Refusal> {
        let nobody = || Refusal::new(Kind::Unauthorized, "not logged in");
        let secret = cookie(headers).ok_or_else(nobody)?;
        let login = console.sessions.find(&secret, unix_seconds()).ok_or_else(nobody)?;
        let caller = match &login.foreign {
            Some(caller) => caller.clone(),
            None => console.accounts.caller_of_user(&login.user).ok_or_else(nobody)?,
        };
        if !method.is_safe() {
            check_origin(console, headers)?;
            let shown = headers.get(CSRF_HEADER).and_then(|it| it.to_str().ok());
            if !shown.is_some_and(|shown| login.csrf.is(shown)) {
                let what = "missing or wrong X-Memlane-CSRF header";
                return Err(Refusal::new(Kind::Forged, what));
            }
        }
        Ok(Self { secret, login, caller })
    }

    /// Returns whether the rules let the user do nothing but enable a second factor. Users of a
    /// provider have theirs there.
    pub(super) fn must_enrol(&self, console: &Console) -> bool {
        self.login.foreign.is_none() && console.accounts.must_enrol(&self.caller.user)
    }
}

/// Refuses users of the console's own who have to enable a second factor first.
fn check_enrolled(console: &Console, caller: &Caller) -> Result<(), Refusal> {
    if console.accounts.must_enrol(&caller.user) {
        let what = "all users of this console have two-factor login: enable yours, in the browser \
                    or at /console/v1/second-factor";
        return Err(Refusal::new(Kind::MustEnrol, what));
    }
    Ok(())
}

/// Checks the origin that a browser states for a request. Programs say nothing.
///
/// Here is the host that the request names, or the public URL. A proxy may name another host: then
/// the browser's own word counts that the page and the request have one origin, which no page can
/// write.
pub(super) fn check_origin(console: &Console, headers: &HeaderMap) -> Result<(), Refusal> {
    let site = headers.get(FETCH_SITE).map(|it| it.as_bytes());
    let origin = headers.get(header::ORIGIN).and_then(|it| it.to_str().ok());
    let host = headers.get(header::HOST).and_then(|it| it.to_str().ok());
    let is_host = |origin: &str| origin.strip_prefix("https://") == host;
    let is_here = match (&console.public_url, origin) {
        (_, None) => true,
        (Some(url), Some(origin)) => origin == url || is_host(origin),
        (None, Some(origin)) => is_host(origin) || site == Some(b"same-origin"),
    };
    if site.is_none_or(|site| site == b"same-origin") && is_here {
        return Ok(());
    }
    let what = "the Origin header is that of another site; behind a proxy, set --public-url";
    Err(Refusal::new(Kind::Forged, what))
}

fn cookie(headers: &HeaderMap) -> Option<Secret> {
    cookie_named(headers, COOKIE).map(|value| Secret::shown(&value))
}

/// The cookie of a session that was begun.
pub(super) fn session_cookie(secret: &Secret) -> HeaderValue {
    let secret = secret.reveal();
    let cookie = format!("{COOKIE}={secret}; Path=/; Secure; HttpOnly; SameSite=Strict");
    HeaderValue::from_str(&cookie).expect("a secret has letters, digits, '-' and '_'")
}

pub(super) fn cookie_named(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|it| it.to_str().ok());
    let mut pairs = all.flat_map(|it| it.split(';')).filter_map(|it| it.trim().split_once('='));
    pairs.find(|(it, _)| *it == name).map(|(_, value)| value.to_owned())
}

impl FromRequestParts<Arc<Console>> for InSession {
    type Rejection = Refusal;

    async fn from_request_parts(
        parts: &mut Parts,
        console: &Arc<Console>,
    ) -> Result<Self, Refusal> {
        Self::of(console, &parts.method, &parts.headers)
    }
}

impl FromRequestParts<Arc<Console>> for Enrolled {
    type Rejection = Refusal;

    async fn from_request_parts(
        parts: &mut Parts,
        console: &Arc<Console>,
    ) -> Result<Self, Refusal> {
        let session = InSession::of(console, &parts.method, &parts.headers)?;
        if session.login.foreign.is_none() {
            check_enrolled(console, &session.caller)?;
        }
        Ok(Self(session))
    }
}

impl FromRequestParts<Arc<Console>> for Known {
    type Rejection = Refusal;

    async fn from_request_parts(
        parts: &mut Parts,
        console: &Arc<Console>,
    ) -> Result<Self, Refusal> {
        Self::of(console, &parts.method, &parts.headers)
    }
}

impl FromRequestParts<Arc<Console>> for Administrator {
    type Rejection = Refusal;

    async fn from_request_parts(
        parts: &mut Parts,
        console: &Arc<Console>,
    ) -> Result<Self, Refusal> {
        let known = Known::of(console, &parts.method, &parts.headers)?;
        match known.caller.role {
            Role::Administrator => Ok(Self(known)),
            _ => Err(Refusal::forbidden("this requires the role administrator")),
        }
    }
}
