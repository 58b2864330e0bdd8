//! The identity provider: endpoints, keys, and the exchange of codes for tokens.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::fetch::{Fetch, https};
use super::id_token::{Claims, Expected, verify};
use crate::access::Secret;

const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";

/// Time for which discovered endpoints are cached, and time for which a failure is.
const KEPT: Duration = Duration::from_secs(10 * 60);
const KEPT_FAILURE: Duration = Duration::from_secs(5);

/// Maximum number of concurrent code exchanges.
const REDEEMED_AT_ONCE_MAX: usize = 8;

#[derive(Clone, Debug)]
struct Endpoints {
    authorization: String,
    token: String,
    keys: String,
}

/// Time and result of the last discovery.
type Discovered = (Instant, Result<Endpoints, Arc<anyhow::Error>>);

/// The configured identity provider.
pub(super) struct Provider {
    pub(super) issuer: String,
    pub(super) client: String,
    pub(super) secret: Option<Secret>,
    pub(super) fetch: Fetch,
    known: Mutex<Option<Discovered>>,
    turns: tokio::sync::Semaphore,
}

/// Authorization code from the browser, with the secrets of its login.
pub(super) struct Code<'a> {
    pub(super) code: &'a str,
    pub(super) verifier: &'a str,
    pub(super) nonce: &'a str,
    pub(super) redirect: &'a str,
    pub(super) now: u64,
}

impl Provider {
    pub(super) fn new(
        issuer: String,
        client: String,
        secret: Option<Secret>,
        fetch: Fetch,
    ) -> anyhow::Result<Self> {
        https(&issuer).context("--oidc-issuer cannot be used")?;
        let turns = tokio::sync::Semaphore::new(REDEEMED_AT_ONCE_MAX);
        Ok(Self { issuer, client, secret, fetch, known: Mutex::new(None), turns })
    }

    /// Returns the authorization endpoint.
    pub(super) async fn authorization(&self) -> anyhow::Result<String> {
        Ok(self.endpoints().await?.authorization)
    }

    /// Exchanges a code for an ID token. Returns its verified claims.
    pub(super) async fn redeem(&self, code: Code<'_>) -> anyhow::Result<Claims> {
        let _turn = self.turns.try_acquire().context("too many logins in progress; retry")?;
        let endpoints = self.endpoints().await?;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code.code),
            ("redirect_uri", code.redirect),
            ("code_verifier", code.verifier),
        ];
        if self.secret.is_none() {
            form.push(("client_id", &self.client));
        }
        let form = encoded(&form);
        let header = self.secret.as_ref().map(|secret| self.basic(secret));
        let answer = self.fetch.post_form(&endpoints.token, header.as_deref(), form).await?;
        let token = answer["id_token"].as_str().context("the provider returned no ID token")?;
        let keys = self.fetch.get(&endpoints.keys).await?;
        let (issuer, client) = (self.issuer.as_str(), self.client.as_str());
        verify(token, &keys, Expected { issuer, client, nonce: code.nonce, now: code.now })
    }

    /// Returns the HTTP Basic credentials of the client, form-encoded first as RFC 6749, section
    /// 2.3.1, requires.
    fn basic(&self, secret: &Secret) -> String {
        let quoted = |text: &str| encoded(&[("", text)])[1..].to_owned();
        let pair = format!("{}:{}", quoted(&self.client), quoted(secret.reveal()));
        format!("Basic {}", STANDARD.encode(pair))
    }

    async fn endpoints(&self) -> anyhow::Result<Endpoints> {
        let mut known = self.known.lock().await;
        if let Some((at, found)) = &*known {
            let kept = if found.is_ok() { KEPT } else { KEPT_FAILURE };
            if at.elapsed() < kept {
                return found.clone().map_err(|error| anyhow::anyhow!("{error:#}"));
            }
        }
        let found = self.discover().await.map_err(Arc::new);
        *known = Some((Instant::now(), found.clone()));
        found.map_err(|error| anyhow::anyhow!("{error:#}"))
    }

    async fn discover(&self) -> anyhow::Result<Endpoints> {
        let url = format!("{}{DISCOVERY_PATH}", self.issuer.trim_end_matches('/'));
        let found = self.fetch.get(&url).await?;
        ensure!(found["issuer"] == self.issuer, "wrong issuer in {url}: {}", found["issuer"]);
        let methods = &found["code_challenge_methods_supported"];
        let has_challenge = methods.as_array().is_none_or(|all| all.iter().any(|it| it == "S256"));
        ensure!(has_challenge, "the provider does not support PKCE with S256");
        let endpoint = |name: &str| -> anyhow::Result<String> {
            let url = found[name].as_str().with_context(|| format!("{name} is missing"))?;
            https(url).with_context(|| format!("invalid {name}"))?;
            Ok(url.to_owned())
        };
        Ok(Endpoints {
            authorization: endpoint("authorization_endpoint")?,
            token: endpoint("token_endpoint")?,
            keys: endpoint("jwks_uri")?,
        })
    }
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Provider({})", self.issuer)
    }
}

/// Encodes parameters as a form or query.
pub(super) fn encoded(pairs: &[(&str, &str)]) -> String {
    api::with_query("", pairs)[1..].to_owned()
}

/// Returns the string of a claim, or all strings of a list.
pub(super) fn texts<'a>(claims: &'a Claims, name: &str) -> Vec<&'a str> {
    match claims.get(name) {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}
