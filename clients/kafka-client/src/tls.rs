//! TLS on the client side: verification of brokers.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::{ClientError, ErrorKind};

/// Trusted certificate authorities.
#[derive(Clone, Debug)]
pub struct TlsTrust(Arc<ClientConfig>);

impl TlsTrust {
    /// Reads CA certificates from a PEM file.
    pub fn of_file(path: &Path) -> Result<Self, ClientError> {
        let unusable =
            || ClientError::invalid(format!("cannot use the certificates in {}", path.display()));
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_file_iter(path);
        for certificate in certificates.map_err(|error| unusable().because(error))? {
            let certificate = certificate.map_err(|error| unusable().because(error))?;
            roots.add(certificate).map_err(|error| unusable().because(error))?;
        }
        if roots.is_empty() {
            return Err(unusable().because("the file holds no certificate"));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider supports the default versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }

    /// Performs a TLS handshake on `stream` and verifies that the broker's certificate is for
    /// `host`.
    ///
    /// # Errors
    /// `host` is not a DNS name or IP address, or the broker's certificate cannot be verified
    /// (`Unreachable`).
    pub async fn encrypt<S>(&self, stream: S, host: &str) -> Result<TlsStream<S>, ClientError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let failed = || {
            ClientError::new(ErrorKind::Unreachable, format!("TLS handshake with {host} failed"))
        };
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| failed().because(error))?;
        let connector = TlsConnector::from(Arc::clone(&self.0));
        connector.connect(name, stream).await.map_err(|error| failed().because(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_refused() {
        let error = TlsTrust::of_file(Path::new("/dev/null")).expect_err("it is empty");
        assert!(error.to_string().contains("/dev/null"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}
