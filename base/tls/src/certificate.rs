//! Names in the certificate of a client.

use rustls::ServerConnection;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

/// A certificate that a client has proved to own, signed by an authority of the configuration.
#[derive(Clone, Debug)]
pub struct ClientCertificate(CertificateDer<'static>);

impl ClientCertificate {
    /// Certificate of a connection whose handshake is over.
    pub fn of(connection: &ServerConnection) -> Option<Self> {
        let first = connection.peer_certificates()?.first()?;
        Some(Self(first.clone().into_owned()))
    }

    /// Returns whether it was issued for this DNS name or IP address, as a subject alternative name
    /// says.
    pub fn is_for(&self, name: &str) -> bool {
        let Ok(name) = ServerName::try_from(name) else { return false };
        let parsed = ParsedCertificate::try_from(&self.0);
        parsed.is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
    }

    /// The certificate as it came: X.509 in DER.
    pub fn der(&self) -> &[u8] {
        &self.0
    }
}
