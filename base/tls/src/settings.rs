//! TLS settings from PEM files.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::error::TlsError;

/// Files of the server's certificate and the client authorities. All are PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificate chain: the server's certificate first, then its intermediates.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authorities (CA certificates) for verifying client certificates. `None`: clients are not
    /// asked for a certificate.
    pub client_authorities: Option<PathBuf>,
}

/// Loaded and consistent certificates, for TLS 1.2 and 1.3.
#[derive(Clone, Debug)]
pub struct TlsSettings(Arc<ServerConfig>);

impl TlsSettings {
    /// Reads the files. With client authorities, a client must present a certificate.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        load(files, Certificates::Required).map(Self)
    }

    /// Reads the files. A client may connect without a certificate; one that it presents is
    /// verified.
    pub fn load_with_optional_certificates(files: &TlsFiles) -> Result<Self, TlsError> {
        load(files, Certificates::Optional).map(Self)
    }

    /// Returns the rustls configuration for accepting connections.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0)
    }
}

/// Client-certificate requirement where authorities are configured.
#[derive(Clone, Copy)]
enum Certificates {
    Required,
    Optional,
}

fn load(files: &TlsFiles, asked: Certificates) -> Result<Arc<ServerConfig>, TlsError> {
    let certificates = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| unusable(&files.key, e))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default versions");
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => builder.with_client_cert_verifier(client_verifier(path, asked)?),
    };
    let config = builder.with_single_cert(certificates, key).map_err(|error| TlsError::Pair {
        path: files.certificate.clone(),
        source: Box::new(error),
    })?;
    Ok(Arc::new(config))
}

fn client_verifier(
    path: &Path,
    asked: Certificates,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut authorities = RootCertStore::empty();
    for certificate in certificates(path)? {
        authorities.add(certificate).map_err(|e| unusable(path, e))?;
    }
    let provider = Arc::new(ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider);
    let builder = match asked {
        Certificates::Required => builder,
        Certificates::Optional => builder.allow_unauthenticated(),
    };
    builder.build().map_err(|e| unusable(path, e))
}

pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|e| unusable(path, e))?;
    if certificates.is_empty() {
        return Err(unusable(path, "the file holds no certificate"));
    }
    Ok(certificates)
}

pub(crate) fn unusable(path: &Path, source: impl Into<Box<dyn Error + Send + Sync>>) -> TlsError {
    TlsError::File { path: path.to_owned(), source: source.into() }
}
