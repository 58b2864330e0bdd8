//! OpenID Connect provider for tests, with real TLS, keys and signed tokens. A case selects its
//! faults.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};
use system::{Tool, free_address};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring as cryptography;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub(crate) const CLIENT: &str = "memlane console";
pub(crate) const SECRET: &str = "a secret: 100%";

/// Variant of an ID token.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) header: Value,
    /// Claims to replace; null removes a claim.
    pub(crate) claims: Value,
    /// Replacement of the signature.
    pub(crate) signature: Option<&'static str>,
    /// Signed with an unknown key.
    pub(crate) is_forged: bool,
}

impl Case {
    pub(crate) fn right() -> Self {
        let header = json!({"alg": "ES256", "kid": "ec"});
        let claims = json!({"groups": ["operators"]});
        Self { header, claims, signature: None, is_forged: false }
    }

    pub(crate) fn claim(name: &str, value: Value) -> Self {
        let mut case = Self::right();
        case.claims[name] = value;
        case
    }

    pub(crate) fn header(header: Value) -> Self {
        Self { header, ..Self::right() }
    }
}

/// Parameters of an authorization request.
pub(crate) type Asked = HashMap<String, String>;

struct Inside {
    issuer: String,
    own: EcdsaKeyPair,
    forged: EcdsaKeyPair,
    rsa: RsaKeyPair,
    /// Issued codes, each for one use.
    codes: Mutex<HashMap<String, (Asked, Case)>>,
}

/// Serves until the test process ends.
pub(crate) struct Provider(Arc<Inside>);

impl Provider {
    /// Starts a provider, and writes its certificate to `folder`.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let address = free_address()?;
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        std::fs::write(folder.join("provider.pem"), made.cert.pem())?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der());
        let key = key.map_err(anyhow::Error::msg)?;
        let certificates = vec![CertificateDer::from(made.cert.der().to_vec())];
        let config =
            ServerConfig::builder_with_provider(Arc::new(cryptography::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_no_client_auth()
                .with_single_cert(certificates, key)?;
        let rsa = folder.join("rsa.der");
        Tool::new("openssl genpkey -quiet -algorithm RSA -pkeyopt rsa_keygen_bits:2048")
            .args(["-outform", "DER", "-out"])
            .arg(&rsa)
            .check()?;
        let rsa = std::fs::read(rsa)?;
        // Versions of openssl write either format.
        let rsa = RsaKeyPair::from_pkcs8(&rsa).or_else(|_| RsaKeyPair::from_der(&rsa));
        let inside = Arc::new(Inside {
            issuer: format!("https://{address}"),
            own: key_pair()?,
            forged: key_pair()?,
            rsa: rsa.map_err(|error| anyhow::anyhow!("no RSA key: {error}"))?,
            codes: Mutex::default(),
        });
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discover))
            .route("/keys", get(keys))
            .route("/token", post(token))
            .with_state(Arc::clone(&inside));
        let (told, ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = TcpListener::bind(address).await.expect("the address is free");
                told.send(()).expect("the test waits");
                serve(listener, TlsAcceptor::from(Arc::new(config)), router).await;
            });
        });
        ready.recv().context("the provider did not start")?;
        Ok(Self(inside))
    }

    pub(crate) fn issuer(&self) -> &str {
        &self.0.issuer
    }

    /// Returns the redirect after a successful login at the provider.
    pub(crate) fn approve(&self, asked: &Asked, case: Case) -> String {
        let code = format!("code-{}", asked["state"]);
        let mut codes = self.0.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.insert(code.clone(), (asked.clone(), case));
        code
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, router: Router) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, router) = (acceptor.clone(), router.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = TowerToHyperService::new(router);
            // The client may disconnect.
            let _ended =
                http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn discover(State(inside): State<Arc<Inside>>) -> Json<Value> {
    let issuer = &inside.issuer;
    Json(json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize?tenant=a"),
        "token_endpoint": format!("{issuer}/token"),
        "jwks_uri": format!("{issuer}/keys"),
        "code_challenge_methods_supported": ["plain", "S256"],
    }))
}

async fn keys(State(inside): State<Arc<Inside>>) -> Json<Value> {
    let encode = |it: &[u8]| URL_SAFE_NO_PAD.encode(it);
    let point = inside.own.public_key().as_ref();
    let rsa: PublicKeyComponents<Vec<u8>> = inside.rsa.public().into();
    let (n, e) = (encode(&rsa.n), encode(&rsa.e));
    Json(json!({"keys": [
        {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": "AA"},
        {"kty": "EC", "crv": "P-256", "kid": "ec", "use": "sig", "alg": "ES256",
         "x": encode(&point[1..33]), "y": encode(&point[33..])},
        {"kty": "RSA", "kid": "rsa", "use": "sig",
         "n": n, "e": e},
        {"kty": "RSA", "kid": "enc", "use": "enc",
         "n": n, "e": e},
    ]}))
}

/// Token endpoint of RFC 6749 and RFC 7636. All errors have the same response.
async fn token(State(inside): State<Arc<Inside>>, headers: HeaderMap, body: String) -> Response {
    token_for(&inside, &headers, &body).map_or_else(
        || (StatusCode::BAD_REQUEST, Json(json!({"error": "invalid_grant"}))).into_response(),
        |token| Json(json!({"token_type": "Bearer", "id_token": token})).into_response(),
    )
}

fn token_for(inside: &Inside, headers: &HeaderMap, body: &str) -> Option<String> {
    let form = super::pairs(body);
    let pair = headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
    let pair = String::from_utf8(STANDARD.decode(pair).ok()?).ok()?;
    let (client, secret) = pair.split_once(':')?;
    let is_client = super::decoded(client) == CLIENT && super::decoded(secret) == SECRET;
    let mut codes = inside.codes.lock().unwrap_or_else(PoisonError::into_inner);
    let (asked, case) = codes.remove(form.get("code")?)?;
    let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, form.get("code_verifier")?.as_bytes()));
    let is_right = is_client
        && form.get("grant_type")? == "authorization_code"
        && form.get("redirect_uri") == asked.get("redirect_uri")
        && asked.get("code_challenge") == Some(&challenge);
    is_right.then(|| inside.signed(&asked, &case))
}

impl Inside {
    fn signed(&self, asked: &Asked, case: &Case) -> String {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.expect("it is after 1970").as_secs();
        let mut claims = json!({"iss": self.issuer, "aud": CLIENT, "nonce": asked["nonce"],
                                "sub": "ann", "iat": now, "exp": now + 300});
        for (name, value) in case.claims.as_object().expect("an object") {
            let claims = claims.as_object_mut().expect("an object");
            match value {
                Value::Null => _ = claims.remove(name),
                value => _ = claims.insert(name.clone(), value.clone()),
            }
        }
        let encode = |it: &Value| URL_SAFE_NO_PAD.encode(it.to_string());
        let text = format!("{}.{}", encode(&case.header), encode(&claims));
        let random = SystemRandom::new();
        let signature = match (case.signature, case.header["alg"].as_str()) {
            (Some(signature), _) => return format!("{text}.{signature}"),
            (None, Some("RS256")) => {
                let mut signature = vec![0; self.rsa.public().modulus_len()];
                let signed =
                    self.rsa.sign(&RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature);
                signed.expect("random");
                signature
            }
            (None, _) => {
                let key = if case.is_forged { &self.forged } else { &self.own };
                key.sign(&random, text.as_bytes()).expect("random").as_ref().to_vec()
            }
        };
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn key_pair() -> Result<EcdsaKeyPair> {
    let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
    let made = EcdsaKeyPair::generate_pkcs8(algorithm, &random);
    let made = made.map_err(|_| anyhow::anyhow!("no random bytes"))?;
    EcdsaKeyPair::from_pkcs8(algorithm, made.as_ref(), &random)
        .map_err(|error| anyhow::anyhow!("no key: {error}"))
}
