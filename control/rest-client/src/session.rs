//! Session of a password login at a console, for operations that tokens do not permit. It ends when
//! the user logs out.

use std::fmt;

use hyper::HeaderMap;
use hyper::header::{self, HeaderName, HeaderValue};
use serde::Deserialize;

use crate::error::RestError;
use crate::token::hidden;

const CSRF: HeaderName = HeaderName::from_static("x-memlane-csrf");

/// Body of the response to a login.
#[derive(Deserialize)]
struct Begun {
    csrf: String,
}

/// A session. Its secrets are visible only in the headers of requests.
#[derive(Clone)]
pub struct Session {
    cookie: HeaderValue,
    csrf: HeaderValue,
}

impl Session {
    /// Extracts the session from the response to a login.
    pub(crate) fn begun_by(headers: &HeaderMap, body: &[u8]) -> Result<Self, RestError> {
        let cookie = headers.get(header::SET_COOKIE).map(HeaderValue::as_bytes);
        let pair = cookie.and_then(|it| it.split(|byte| *byte == b';').next()).and_then(hidden);
        let begun = serde_json::from_slice::<Begun>(body).ok();
        let csrf = begun.and_then(|it| hidden(it.csrf.as_bytes()));
        let (cookie, csrf) = pair.zip(csrf).ok_or_else(|| {
            let what = "cannot parse the console's response to the login; check its version";
            RestError::Other(what.to_owned())
        })?;
        Ok(Self { cookie, csrf })
    }

    pub(crate) fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        vec![(header::COOKIE, self.cookie.clone()), (CSRF, self.csrf.clone())]
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_the_cookie_and_what_goes_with_it_and_is_not_shown() {
        let mut headers = HeaderMap::new();
        let cookie = HeaderValue::from_static("name=secret; Path=/; Secure");
        headers.insert(header::SET_COOKIE, cookie);
        let session = Session::begun_by(&headers, br#"{"csrf": "hidden", "name": "ann"}"#);
        let session = session.expect("a session");
        let sent = session.headers();
        assert_eq!(sent[0].1.as_bytes(), b"name=secret");
        assert_eq!(sent[1].1.as_bytes(), b"hidden");
        let shown = format!("{session:?} {sent:?}");
        assert!(!shown.contains("secret") && !shown.contains("hidden"), "{shown}");
        for (headers, body) in [(&HeaderMap::new(), &br#"{"csrf": "x"}"#[..]), (&headers, b"{}")] {
            Session::begun_by(headers, body).expect_err("something is missing");
        }
    }
}
