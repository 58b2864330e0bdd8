//! TLS settings from PEM files, and what certificates of clients say.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use crate::error::ServerError;

/// Where the server's certificate comes from. All files are PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate, then those that lead from it to its authority.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authorities of which clients must show a certificate. Without, every client is accepted.
    pub client_authorities: Option<PathBuf>,
}

/// A certificate that a client has proved to own, signed by an authority of the configuration.
#[derive(Clone, Debug)]
pub struct ClientCertificate(CertificateDer<'static>);

impl ClientCertificate {
    /// Of a connection whose handshake is over.
    pub(crate) fn of(connection: &ServerConnection) -> Option<Self> {
        let first = connection.peer_certificates()?.first()?;
        Some(Self(first.clone().into_owned()))
    }

    /// Whether it was issued for this DNS name or IP address, as a subject alternative name says.
    pub fn is_for(&self, name: &str) -> bool {
        let Ok(name) = ServerName::try_from(name) else { return false };
        let parsed = ParsedCertificate::try_from(&self.0);
        parsed.is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
    }
}

/// Certificates that were read and fit together, for TLS 1.2 and 1.3.
#[derive(Clone, Debug)]
pub struct TlsSettings(pub(crate) Arc<ServerConfig>);

impl TlsSettings {
    /// Reads the files.
    pub fn load(files: &TlsFiles) -> Result<Self, ServerError> {
        load(files).map(Self)
    }
}

fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>, ServerError> {
    let certificates = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| unusable(&files.key, e))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default versions");
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => builder.with_client_cert_verifier(client_verifier(path)?),
    };
    let config = builder.with_single_cert(certificates, key).map_err(|error| {
        ServerError::TlsPair { path: files.certificate.clone(), source: Box::new(error) }
    })?;
    Ok(Arc::new(config))
}

fn client_verifier(path: &Path) -> Result<Arc<dyn ClientCertVerifier>, ServerError> {
    let mut authorities = RootCertStore::empty();
    for certificate in certificates(path)? {
        authorities.add(certificate).map_err(|e| unusable(path, e))?;
    }
    let provider = Arc::new(ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider)
        .build()
        .map_err(|e| unusable(path, e))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|e| unusable(path, e))?;
    if certificates.is_empty() {
        return Err(unusable(path, "the file holds no certificate"));
    }
    Ok(certificates)
}

fn unusable(path: &Path, source: impl Into<Box<dyn Error + Send + Sync>>) -> ServerError {
    ServerError::TlsFile { path: path.to_owned(), source: source.into() }
}
