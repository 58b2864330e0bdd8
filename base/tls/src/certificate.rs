//! Names in the certificate of a client.

use rustls::ServerConnection;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

/// Verified client certificate: signed by a configured authority, and the client proved that it has
/// the key.
#[derive(Clone, Debug)]
pub struct ClientCertificate(CertificateDer<'static>);

impl ClientCertificate {
    /// Returns the client's certificate of a connection whose handshake is complete.
    pub fn of(connection: &ServerConnection) -> Option<Self> {
        let first = connection.peer_certificates()?.first()?;
        Some(Self(first.clone().into_owned()))
    }

    /// Returns whether a subject alternative name matches this DNS name or IP address.
    pub fn is_for(&self, name: &str) -> bool {
        let Ok(name) = ServerName::try_from(name) else { return false };
        let parsed = ParsedCertificate::try_from(&self.0);
        parsed.is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
    }

    /// Returns the DNS names in the certificate.
    pub fn names(&self) -> Vec<String> {
        let parsed = webpki::EndEntityCert::try_from(&self.0);
        parsed.map_or_else(
            |_| Vec::new(),
            |parsed| parsed.valid_dns_names().map(str::to_owned).collect(),
        )
    }

    /// The certificate in DER encoding.
    pub fn der(&self) -> &[u8] {
        &self.0
    }
}
