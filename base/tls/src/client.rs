//! TLS settings of a client that authenticates with a certificate.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::error::TlsError;
use crate::settings::{certificates, unusable};

/// Files of the client's certificate and the authorities of servers. All are PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsClientFiles {
    /// Certificate chain: the client's certificate first, then its intermediates.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authorities (CA certificates) for verifying servers. Those of the host are not used.
    pub authorities: PathBuf,
}

/// Reads the files. The settings are for TLS 1.2 and 1.3.
pub fn load_client(files: &TlsClientFiles) -> Result<ClientConfig, TlsError> {
    let mut authorities = RootCertStore::empty();
    for certificate in certificates(&files.authorities)? {
        authorities.add(certificate).map_err(|e| unusable(&files.authorities, e))?;
    }
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| unusable(&files.key, e))?;
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default versions")
        .with_root_certificates(authorities)
        .with_client_auth_cert(chain, key)
        .map_err(|error| TlsError::Pair {
            path: files.certificate.clone(),
            source: Box::new(error),
        })
}
