//! State of a login at the identity provider, and its completion.
//!
//! The state is in a cookie of the browser, signed with HMAC-SHA256. So pending logins take no
//! memory, and a code that was issued to another browser is useless.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, ensure};
use api::Role;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::fetch::Fetch;
use super::id_token::Claims;
use super::options::SignOnOptions;
use super::provider::{Code, Provider, encoded, texts};
use crate::access::{Caller, Secret, is_name};
use crate::clock::Now;

/// Path of the callback.
pub(crate) const CALLBACK_PATH: &str = "/console/v1/oidc/callback";

/// Time limit for a login at the provider.
const LOGIN_SECONDS_MAX: u64 = 10 * 60;

/// Prefix of users of the provider. Names of console users contain no colon.
const NAME_PREFIX: &str = "sso:";

/// Single sign-on with an OpenID Connect provider.
#[derive(Debug)]
pub(crate) struct SignOn {
    provider: Provider,
    roles: Vec<(String, Role)>,
    role_claim: String,
    name_claim: String,
    scope: String,
    redirect: String,
    seal: hmac::Key,
}

/// A started login.
#[derive(Debug)]
pub(crate) struct Begun {
    /// URL to redirect the browser to.
    pub(crate) url: String,
    /// Cookie to set, which the callback needs.
    pub(crate) cookie: String,
}

/// Contents of the cookie.
#[derive(Debug, Serialize, Deserialize)]
struct Pending {
    state: String,
    nonce: String,
    verifier: String,
    /// Of the steady clock. Another process cannot open the cookie.
    begun: u64,
}

impl SignOn {
    /// Returns `None` if no provider is configured. `origin` is the public origin of the console.
    pub(crate) fn new(options: &SignOnOptions, origin: &str) -> anyhow::Result<Option<Self>> {
        let named = options.oidc_issuer.clone().zip(options.oidc_client.clone());
        let Some((issuer, client)) = named else { return Ok(None) };
        let secret = options.oidc_secret_file.as_deref().map(secret).transpose()?;
        let fetch = Fetch::new(options.oidc_ca.as_deref())?;
        let provider = Provider::new(issuer, client, secret, fetch)?;
        let scopes: Vec<_> = options.oidc_scope.iter().map(String::as_str).collect();
        let mut key = [0; 32];
        getrandom::fill(&mut key).context("cannot get random bytes")?;
        Ok(Some(Self {
            provider,
            roles: options.oidc_role.clone(),
            role_claim: options.oidc_role_claim.clone(),
            name_claim: options.oidc_name_claim.clone(),
            scope: format!("openid {}", scopes.join(" ")).trim_end().to_owned(),
            redirect: format!("{origin}{CALLBACK_PATH}"),
            seal: hmac::Key::new(hmac::HMAC_SHA256, &key),
        }))
    }

    pub(crate) async fn begin(&self, now: Now) -> anyhow::Result<Begun> {
        let endpoint = self.provider.authorization().await?;
        let made = || Secret::make().map(|it| it.reveal().to_owned());
        let begun = now.steady_seconds;
        let pending = Pending { state: made()?, nonce: made()?, verifier: made()?, begun };
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, pending.verifier.as_bytes()));
        let query = encoded(&[
            ("response_type", "code"),
            ("client_id", &self.provider.client),
            ("redirect_uri", &self.redirect),
            ("scope", &self.scope),
            ("state", &pending.state),
            ("nonce", &pending.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let separator = if endpoint.contains('?') { '&' } else { '?' };
        Ok(Begun { url: format!("{endpoint}{separator}{query}"), cookie: self.sealed(&pending)? })
    }

    /// Completes a login with the cookie and the callback's query parameters. Returns the caller.
    ///
    /// # Errors
    /// A check fails, or the provider's claims give the user no role here.
    pub(crate) async fn finish(
        &self,
        cookie: &str,
        parameters: &[(String, String)],
        now: Now,
    ) -> anyhow::Result<Caller> {
        let pending = self.opened(cookie).context("no login was started in this browser")?;
        let is_young = now.steady_seconds.saturating_sub(pending.begun) <= LOGIN_SECONDS_MAX;
        ensure!(is_young, "the login timed out");
        let one = |name: &str| {
            let mut found = parameters.iter().filter(|(it, _)| it == name);
            let value = found.next().map(|(_, value)| value.as_str());
            ensure!(found.next().is_none(), "parameter {name} is repeated");
            Ok(value)
        };
        let state = one("state")?.context("the provider's response has no state")?;
        ensure!(
            Secret::shown(&pending.state).is(state),
            "the provider's response belongs to another login"
        );
        // RFC 9207: if the response names an issuer, it must be the provider.
        let issuer = one("iss")?;
        ensure!(
            issuer.is_none_or(|it| it == self.provider.issuer),
            "the response is from another issuer"
        );
        ensure!(one("error")?.is_none(), "the provider refused the login");
        let code = one("code")?.context("the provider's response has no code")?;
        let claims = self.provider.redeem(Code {
            code,
            verifier: &pending.verifier,
            nonce: &pending.nonce,
            redirect: &self.redirect,
            now: now.unix_seconds,
        });
        self.caller_of(&claims.await?)
    }

    fn caller_of(&self, claims: &Claims) -> anyhow::Result<Caller> {
        let names = texts(claims, &self.name_claim);
        let claim = &self.name_claim;
        ensure!(
            names.len() == 1 && claims[claim].is_string(),
            "the claim {claim} is not a single text"
        );
        ensure!(is_name(names[0]), "the claim {claim} is not a valid user name");
        let is_proven = claim != "email" || claims.get("email_verified") == Some(&true.into());
        ensure!(is_proven, "the provider has not verified the e-mail address");
        let values = texts(claims, &self.role_claim);
        let roles = self.roles.iter().filter(|(value, _)| values.contains(&value.as_str()));
        let role = roles.map(|(_, role)| *role).max();
        let role = role
            .with_context(|| format!("no role is mapped to user {}; see --oidc-role", names[0]))?;
        let user = format!("{NAME_PREFIX}{}", names[0]);
        Ok(Caller { user, token: None, role, projects: Vec::new() })
    }

    fn sealed(&self, pending: &Pending) -> anyhow::Result<String> {
        let text = URL_SAFE_NO_PAD.encode(serde_json::to_vec(pending)?);
        let tag = hmac::sign(&self.seal, text.as_bytes());
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag)))
    }

    fn opened(&self, cookie: &str) -> Option<Pending> {
        let (text, tag) = cookie.split_once('.')?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&self.seal, text.as_bytes(), &tag).ok()?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
    }
}

/// Returns whether a user name belongs to the provider.
pub(crate) fn is_foreign(user: &str) -> bool {
    user.starts_with(NAME_PREFIX)
}

fn secret(file: &Path) -> anyhow::Result<Secret> {
    let unusable = || format!("cannot use the client secret file {}", file.display());
    let mode = fs::metadata(file).with_context(unusable)?.permissions().mode();
    ensure!(
        mode & 0o007 == 0,
        "{}: other users can access it (mode {:o}); run chmod 600",
        unusable(),
        mode & 0o777
    );
    let text = fs::read_to_string(file).with_context(unusable)?;
    let text = text.trim_end_matches(['\r', '\n']);
    ensure!(!text.is_empty(), "{}: the file is empty", unusable());
    Ok(Secret::shown(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sign_on(name_claim: &str) -> SignOn {
        let folder = tempfile::tempdir().expect("a folder");
        let made = rcgen::generate_simple_self_signed(["login.example".to_owned()]).expect("a key");
        let path = folder.path().join("ca.pem");
        fs::write(&path, made.cert.pem()).expect("there is room");
        let role = |value: &str, role| (value.to_owned(), role);
        let options = SignOnOptions {
            oidc_issuer: Some("https://login.example".to_owned()),
            oidc_client: Some("console".to_owned()),
            oidc_ca: Some(path),
            oidc_role: vec![role("staff", Role::Viewer), role("root", Role::Administrator)],
            oidc_role_claim: "groups".to_owned(),
            oidc_name_claim: name_claim.to_owned(),
            ..SignOnOptions::default()
        };
        SignOn::new(&options, "https://here").expect("it can be used").expect("it is named")
    }

    #[test]
    fn claims_give_the_highest_role_that_is_mapped_or_none() {
        let caller = |claims: serde_json::Value| {
            let claims = claims.as_object().expect("an object").clone();
            sign_on("sub").caller_of(&claims).map(|it| (it.user, it.role))
        };
        let ann = |role| Some(("sso:ann".to_owned(), role));
        assert_eq!(caller(json!({"sub": "ann", "groups": "staff"})).ok(), ann(Role::Viewer));
        let both = json!({"sub": "ann", "groups": ["other", "root", "staff", 7]});
        assert_eq!(caller(both).ok(), ann(Role::Administrator));
        for wrong in [
            json!({"sub": "ann"}),
            json!({"sub": "ann", "groups": []}),
            json!({"sub": "ann", "groups": ["Root", "staff "]}),
            json!({"sub": "ann", "groups": {"root": true}}),
            json!({"sub": "ann", "roles": ["root"]}),
            json!({"sub": ["ann"], "groups": "root"}),
            json!({"sub": "a b", "groups": "root"}),
            json!({"sub": "sso:ann", "groups": "root"}),
            json!({"groups": "root"}),
        ] {
            assert!(caller(wrong.clone()).is_err(), "{wrong}");
        }
        let mail = |verified: serde_json::Value| {
            let claims = json!({"email": "a@b.c", "email_verified": verified, "groups": "root"});
            sign_on("email").caller_of(claims.as_object().expect("an object")).is_ok()
        };
        assert!(mail(json!(true)) && !mail(json!("true")) && !mail(json!(null)));
    }

    #[test]
    fn what_a_browser_brings_back_is_what_it_was_given() {
        let sign_on = sign_on("sub");
        let text = |text: &str| text.to_owned();
        let pending = Pending { state: text("s"), nonce: text("n"), verifier: text("v"), begun: 7 };
        let cookie = sign_on.sealed(&pending).expect("it can be written");
        assert_eq!(sign_on.opened(&cookie).expect("it is whole").nonce, "n");
        let (body, tag) = cookie.split_once('.').expect("two parts");
        let other = super::tests::sign_on("sub").sealed(&pending).expect("it can be written");
        for wrong in ["", ".", body, &format!("{body}."), &format!("A{cookie}"), tag, &other] {
            assert!(sign_on.opened(wrong).is_none(), "{wrong}");
        }
    }
}
