//! HTTPS requests to the identity provider. Redirects are not followed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use axum::body::Bytes;
use axum::http::{Request, Uri, header};
use http_body_util::Full;
use rest_client::converse;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 256 << 10;
const PORT_DEFAULT: u16 = 443;

/// CA bundles of the host: paths of Debian and Fedora.
const AUTHORITIES: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// HTTPS client.
pub(super) struct Fetch(TlsConnector);

impl Fetch {
    /// `authorities` is a CA file, or `None` for the authorities of the host.
    pub(super) fn new(authorities: Option<&Path>) -> anyhow::Result<Self> {
        let path = match authorities {
            Some(path) => path.to_owned(),
            None => authorities_of_host()?,
        };
        let unusable = || format!("cannot use the certificates in {}", path.display());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(&path).with_context(unusable)? {
            roots.add(certificate.with_context(unusable)?).with_context(unusable)?;
        }
        ensure!(!roots.is_empty(), "{}: it contains no certificate", unusable());
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .context("cannot initialize the cryptographic provider")?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    pub(super) async fn get(&self, url: &str) -> anyhow::Result<Value> {
        self.ask(url, Request::get(path_of(url)?), Bytes::new()).await
    }

    /// Sends a form. `authorization` is an optional header.
    pub(super) async fn post_form(
        &self,
        url: &str,
        authorization: Option<&str>,
        form: String,
    ) -> anyhow::Result<Value> {
        let kind = "application/x-www-form-urlencoded";
        let mut request = Request::post(path_of(url)?).header(header::CONTENT_TYPE, kind);
        if let Some(value) = authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        self.ask(url, request, Bytes::from(form)).await
    }

    async fn ask(
        &self,
        url: &str,
        request: axum::http::request::Builder,
        body: Bytes,
    ) -> anyhow::Result<Value> {
        let asking = self.converse(url, request, body);
        let answer = tokio::time::timeout(ANSWER_TIME_MAX, asking).await;
        answer.unwrap_or_else(|_| {
            bail!("{url} did not answer within {} s", ANSWER_TIME_MAX.as_secs());
        })
    }

    async fn converse(
        &self,
        url: &str,
        request: axum::http::request::Builder,
        body: Bytes,
    ) -> anyhow::Result<Value> {
        let uri = https(url)?;
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned());
        let name = name.with_context(|| format!("invalid host in the URL {url}"))?;
        let unreachable = || format!("cannot reach {url}");
        let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(PORT_DEFAULT)));
        let stream = self.0.connect(name, stream.await.with_context(unreachable)?);
        let stream = stream.await.with_context(unreachable)?;
        let authority = uri.authority().map(|it| it.as_str()).unwrap_or_default();
        let request = request
            .header(header::HOST, authority)
            .header(header::ACCEPT, "application/json")
            .body(Full::new(body))?;
        let answer = converse(stream, request, ANSWER_BYTES_MAX).await;
        let answer = answer.map_err(|broken| anyhow::anyhow!("{url}: {broken}"))?;
        // The error body may repeat secrets that were sent, so it is not included.
        ensure!(answer.status.as_u16() == 200, "{url} answered {}", answer.status);
        serde_json::from_slice(&answer.body).with_context(|| format!("{url} did not return JSON"))
    }
}

/// Parses an https URL without user information.
pub(super) fn https(url: &str) -> anyhow::Result<Uri> {
    let uri: Uri = url.parse().with_context(|| format!("{url:?} is not a valid URL"))?;
    let has_user = uri.authority().is_none_or(|it| it.as_str().contains('@'));
    ensure!(
        uri.scheme_str() == Some("https") && !has_user && !url.contains('#'),
        "{url:?} is not https://HOST[:PORT]/PATH"
    );
    Ok(uri)
}

fn path_of(url: &str) -> anyhow::Result<String> {
    let uri = https(url)?;
    Ok(uri.path_and_query().map_or_else(|| "/".to_owned(), |it| it.as_str().to_owned()))
}

fn authorities_of_host() -> anyhow::Result<PathBuf> {
    let found = AUTHORITIES.iter().map(PathBuf::from).find(|path| path.exists());
    found.context("no CA certificates found on this host; set --oidc-ca to the CA of the provider")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_is_asked() {
        for url in ["https://a", "https://a:8443/b?c=d", "https://[::1]/x"] {
            assert!(https(url).is_ok(), "{url}");
        }
        for url in
            ["", "a", "http://a", "https://", "https://u@a/", "https://a/#b", "ftp://a", "/a"]
        {
            assert!(https(url).is_err(), "{url}");
        }
        assert_eq!(path_of("https://a").expect("a path"), "/");
        assert_eq!(path_of("https://a/b?c").expect("a path"), "/b?c");
    }
}
