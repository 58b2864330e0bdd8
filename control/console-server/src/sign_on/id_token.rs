//! Verification of ID tokens (OpenID Connect Core, section 3.1.3.7).

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Tolerated clock skew.
const SKEW_SECONDS: u64 = 60;

/// Maximum age of a token, which equals the time limit for a login.
const AGE_SECONDS_MAX: u64 = 10 * 60;

/// Maximum number of keys. Providers have a few.
const KEYS_MAX: usize = 64;

const COORDINATE_BYTES: usize = 32;
const UNCOMPRESSED: u8 = 4;

pub(super) type Claims = Map<String, Value>;

/// Values that a token's claims must have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client: &'a str,
    pub(super) nonce: &'a str,
    /// Unix seconds.
    pub(super) now: u64,
}

/// JWT header. Unknown members are ignored as the standard demands, but `crit` is rejected.
#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// A JSON Web Key (RFC 7517).
#[derive(Debug, Deserialize)]
struct Key {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    used_for: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// Verifies a token's signature with `keys` and its claims. Returns the claims.
///
/// # Errors
/// Anything is missing, ambiguous or wrong.
pub(super) fn verify(token: &str, keys: &Value, expected: Expected<'_>) -> anyhow::Result<Claims> {
    let mut parts = token.split('.');
    let (Some(head), Some(body), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        bail!("malformed ID token: it does not have three parts");
    };
    let header: Header = serde_json::from_slice(&decoded(head)?)
        .context("cannot parse the header of the ID token")?;
    ensure!(header.crit.is_none(), "unsupported header of the ID token");
    let key = key_for(&header, keys)?;
    let signed = &token[..head.len() + 1 + body.len()];
    check_signature(&header.alg, &key, signed.as_bytes(), &decoded(signature)?)?;
    let claims = serde_json::from_slice(&decoded(body)?)
        .context("cannot parse the claims of the ID token")?;
    check_claims(&claims, expected)?;
    Ok(claims)
}

/// Returns the only key that matches the token's header.
fn key_for(header: &Header, keys: &Value) -> anyhow::Result<Key> {
    let kind = match header.alg.as_str() {
        "RS256" => "RSA",
        "ES256" => "EC",
        other => {
            bail!("unsupported signature algorithm {other:?} of the ID token; use RS256 or ES256")
        }
    };
    let keys = keys["keys"].as_array().context("invalid key set of the provider")?;
    let keys = keys.iter().take(KEYS_MAX);
    // Keys of unknown types may have other members.
    let keys = keys.filter_map(|it| serde_json::from_value::<Key>(it.clone()).ok());
    let mut fitting: Vec<_> = keys
        .filter(|it| it.kty == kind)
        .filter(|it| it.used_for.as_deref().is_none_or(|it| it == "sig"))
        .filter(|it| it.alg.as_ref().is_none_or(|it| *it == header.alg))
        .filter(|it| header.kid.is_none() || it.kid == header.kid)
        .collect();
    match (fitting.pop(), fitting.is_empty()) {
        (Some(key), true) => Ok(key),
        (None, _) => bail!("no key of the provider matches the ID token"),
        (Some(_), false) => bail!("the ID token has no key id"),
    }
}

fn check_signature(
    algorithm: &str,
    key: &Key,
    signed: &[u8],
    signature: &[u8],
) -> anyhow::Result<()> {
    let part =
        |it: &Option<String>| decoded(it.as_deref().context("incomplete key of the provider")?);
    let verified = match algorithm {
        "RS256" => {
            let (n, e) = (part(&key.n)?, part(&key.e)?);
            let key = RsaPublicKeyComponents { n: trimmed(&n), e: trimmed(&e) };
            key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature)
        }
        "ES256" => {
            ensure!(key.crv.as_deref() == Some("P-256"), "unsupported curve of the provider's key");
            let (x, y) = (part(&key.x)?, part(&key.y)?);
            let are_whole = x.len() == COORDINATE_BYTES && y.len() == COORDINATE_BYTES;
            ensure!(are_whole, "invalid coordinates of the provider's key");
            let point = [&[UNCOMPRESSED], &x[..], &y[..]].concat();
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
        }
        other => bail!("{other:?} is not supported"),
    };
    verified.map_err(|_| anyhow::anyhow!("invalid signature of the ID token"))
}

/// Removes leading zeros, which the library does not accept.
fn trimmed(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|it| **it == 0).count();
    &number[zeros..]
}

fn check_claims(claims: &Claims, expected: Expected<'_>) -> anyhow::Result<()> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    ensure!(text("iss") == Some(expected.issuer), "wrong issuer of the ID token");
    let client = expected.client;
    let has_others = match claims.get("aud") {
        Some(Value::String(one)) if one == client => false,
        Some(Value::Array(all)) if all.iter().any(|it| it == client) => all.len() > 1,
        _ => bail!("wrong audience of the ID token"),
    };
    let party = claims.get("azp");
    let is_own = match party {
        None => !has_others,
        Some(party) => party == client,
    };
    ensure!(is_own, "wrong authorized party of the ID token");
    ensure!(text("nonce") == Some(expected.nonce), "wrong nonce of the ID token");
    let time = |name: &str| claims.get(name).map(seconds).transpose();
    let expires = time("exp")?.context("the ID token has no expiry time")?;
    ensure!(expires.saturating_add(SKEW_SECONDS) > expected.now, "the ID token has expired");
    let made = time("iat")?.context("the ID token has no issue time")?;
    ensure!(
        made <= expected.now + SKEW_SECONDS,
        "the issue time of the ID token is in the future; check the clocks"
    );
    let oldest = expected.now.saturating_sub(AGE_SECONDS_MAX + SKEW_SECONDS);
    ensure!(made >= oldest, "the ID token was issued too long ago");
    if let Some(begins) = time("nbf")? {
        ensure!(begins <= expected.now + SKEW_SECONDS, "the ID token is not valid yet");
    }
    ensure!(text("sub").is_some_and(|it| !it.is_empty()), "the ID token has no subject");
    Ok(())
}

/// Parses a time in Unix seconds. The standard allows fractions.
fn seconds(claim: &Value) -> anyhow::Result<u64> {
    let whole = claim.as_u64();
    // Truncates. `as` saturates, and such large times are invalid anyway.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    let cut = || claim.as_f64().filter(|it| *it >= 0.0).map(|it| it as u64);
    whole.or_else(cut).context("a time in the ID token is not a number")
}

fn decoded(text: &str) -> anyhow::Result<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).context("the ID token or a key is not base64url")
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_800_000_000;
    const EXPECTED: Expected<'_> =
        Expected { issuer: "https://login.example", client: "console", nonce: "n", now: NOW };

    fn key() -> EcdsaKeyPair {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let made = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("random");
        EcdsaKeyPair::from_pkcs8(algorithm, made.as_ref(), &random).expect("a key")
    }

    fn public(key: &EcdsaKeyPair, id: &str) -> Value {
        let point = key.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
        json!({"kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "x": x, "y": y})
    }

    fn signed(key: &EcdsaKeyPair, header: &Value, claims: &Value) -> String {
        let encode = |it: &Value| URL_SAFE_NO_PAD.encode(it.to_string());
        let text = format!("{}.{}", encode(header), encode(claims));
        let signature = key.sign(&SystemRandom::new(), text.as_bytes()).expect("random");
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn claims() -> Value {
        json!({"iss": "https://login.example", "aud": "console", "nonce": "n", "sub": "ann",
               "exp": NOW + 300, "iat": NOW})
    }

    #[test]
    fn a_token_that_is_meant_for_this_login_is_believed_and_no_other() {
        let (own, other) = (key(), key());
        let keys = json!({"keys": [{"kty": "oct"}, public(&own, "a"), public(&other, "b")]});
        let header = json!({"alg": "ES256", "kid": "a"});
        let check =
            |header: &Value, claims: &Value| verify(&signed(&own, header, claims), &keys, EXPECTED);
        assert_eq!(check(&header, &claims()).expect("it is right")["sub"], "ann");
        for (name, value) in [
            ("aud", json!(["console"])),
            ("azp", json!("console")),
            ("exp", json!(NOW - 30)),
            ("iat", json!(NOW as f64 + 0.5)),
            ("nbf", json!(NOW)),
        ] {
            let mut right = claims();
            right[name] = value;
            assert!(check(&header, &right).is_ok(), "{right}");
        }
        for (name, value) in [
            ("iss", json!("https://login.example/")),
            ("iss", Value::Null),
            ("aud", json!("other")),
            ("aud", json!([])),
            ("aud", json!(["console", "other"])),
            ("aud", json!({"console": true})),
            ("azp", json!("other")),
            ("azp", Value::Null),
            ("nonce", json!("m")),
            ("nonce", Value::Null),
            ("exp", json!(NOW - 60)),
            ("exp", json!("soon")),
            ("exp", Value::Null),
            ("iat", json!(NOW + 61)),
            ("iat", json!(NOW - 3_600)),
            ("iat", Value::Null),
            ("nbf", json!(NOW + 100)),
            ("sub", json!("")),
            ("sub", json!(7)),
        ] {
            let mut wrong = claims();
            wrong[name] = value;
            assert!(check(&header, &wrong).is_err(), "{wrong}");
        }
        for wrong in [
            json!({"alg": "none", "kid": "a"}),
            json!({"alg": "HS256", "kid": "a"}),
            json!({"alg": "RS256", "kid": "a"}),
            json!({"alg": "ES256", "kid": "b"}),
            json!({"alg": "ES256", "kid": "c"}),
            json!({"alg": "ES256"}),
            json!({"alg": "ES256", "kid": "a", "crit": ["exp"]}),
            json!({"kid": "a"}),
        ] {
            assert!(check(&wrong, &claims()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn texts_that_are_no_token_are_refused() {
        let key = key();
        let keys = json!({"keys": [public(&key, "a")]});
        let right = signed(&key, &json!({"alg": "ES256", "kid": "a"}), &claims());
        let check = |token: &str, keys: &Value| verify(token, keys, EXPECTED).is_ok();
        assert!(check(&right, &keys));
        let cut = right.rsplit_once('.').expect("a signature").0;
        let other = signed(&key, &json!({"alg": "ES256"}), &json!({"sub": "eve"}));
        let mixed = format!("{cut}.{}", other.rsplit('.').next().expect("a signature"));
        for wrong in ["", "..", "a.b.c", cut, &format!("{cut}."), &format!("{right}.x"), &mixed] {
            assert!(!check(wrong, &keys), "{wrong}");
        }
        for wrong in [json!({}), json!({"keys": []}), json!({"keys": [{"kty": "EC", "kid": "a"}]})]
        {
            assert!(!check(&right, &wrong), "{wrong}");
        }
    }
}
