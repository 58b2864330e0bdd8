//! Authentication of requests: session cookies of browsers, and tokens of programs.

use std::sync::Arc;

use api::Role;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use crate::access::{Caller, Login, Secret};
use crate::clock::Now;
use crate::http::console::Console;
use crate::refusal::{Kind, Refusal};

pub(super) const SESSION_PATH: &str = "/console/v1/session";

/// Session cookie. The prefix `__Host-` restricts it to TLS and to this host.
pub(super) const COOKIE: &str = "__Host-memlane-session";

/// Header with the session's CSRF token, which other sites cannot know.
pub(super) const CSRF_HEADER: HeaderName = HeaderName::from_static("x-memlane-csrf");

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// A valid session that a browser presented, and its user.
pub(super) struct InSession {
    pub(super) secret: Secret,
    pub(super) login: Login,
    pub(super) caller: Caller,
}

/// Credentials with which a request was authenticated.
#[derive(Clone, Debug)]
pub(super) enum Proof {
    Session(Secret),
    /// Session of a user of an identity provider.
    Foreign(Secret),
    Token(Secret),
}

/// An authenticated caller with at least the role viewer.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) caller: Caller,
    pub(super) proof: Proof,
}

/// A session whose user has the required second factor, if any.
pub(super) struct Enrolled(pub(super) InSession);

/// An authenticated administrator.
pub(super) struct Administrator(pub(super) Known);

impl Known {
    /// Authenticates a caller, who must have the required second factor.
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

    /// Authenticates a caller, whatever the rights. Requests that change something need a CSRF
    /// token if they are authenticated by a cookie, because browsers send cookies with cross-site
    /// requests.
    pub(super) fn identified(
        console: &Console,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Self, Refusal> {
        let now = Now::read();
        if let Some(value) = headers.get(header::AUTHORIZATION) {
            // The name of the authentication scheme is case-insensitive (RFC 9110, section 11.1).
            let parts = value.to_str().ok().and_then(|it| it.trim().split_once(' '));
            let bearer = parts.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let secret = Secret::shown(bearer.map_or("", |(_, secret)| secret).trim());
            let caller = console.accounts.caller_of_token(&secret, now.unix_seconds);
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

    /// Returns whether the credentials are still valid and the rights unchanged.
    pub(super) fn still_is(&self, console: &Console) -> bool {
        let caller = self.now(console);
        caller.is_some_and(|it| it.projects == self.caller.projects && it.role >= Role::Viewer)
    }

    /// Returns the caller with current rights, or `None` if the credentials are no longer valid.
    pub(super) fn now(&self, console: &Console) -> Option<Caller> {
        let now = Now::read();
        match &self.proof {
            Proof::Session(secret) | Proof::Foreign(secret)
                if !console.sessions.goes_on(secret, now) =>
            {
                None
            }
            Proof::Foreign(_) => Some(self.caller.clone()),
            // The rules may have changed.
            Proof::Session(_) if console.accounts.must_enrol(&self.caller.user) => None,
            Proof::Session(_) => console.accounts.caller_of_user(&self.caller.user),
            Proof::Token(secret) => console.accounts.caller_of_token(secret, now.unix_seconds),
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
        let login = console.sessions.find(&secret, Now::read()).ok_or_else(nobody)?;
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

    /// Returns whether the user must enable a second factor before doing anything else. Users of an
    /// identity provider have theirs at the provider.
    pub(super) fn must_enrol(&self, console: &Console) -> bool {
        self.login.foreign.is_none() && console.accounts.must_enrol(&self.caller.user)
    }
}

/// Rejects users of the console who must enable a second factor first.
fn check_enrolled(console: &Console, caller: &Caller) -> Result<(), Refusal> {
    if console.accounts.must_enrol(&caller.user) {
        let what = "all users of this console have two-factor login: enable yours, in the browser \
                    or at /console/v1/second-factor";
        return Err(Refusal::new(Kind::MustEnrol, what));
    }
    Ok(())
}

/// Checks the `Origin` of a request. Programs send none.
///
/// It must match the `Host` header or the public URL. Behind a proxy with another host name, the
/// browser's `Sec-Fetch-Site: same-origin` is sufficient, because pages cannot set that header.
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

/// Returns the `Set-Cookie` value of a new session.
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
