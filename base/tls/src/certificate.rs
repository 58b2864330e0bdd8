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

    /// The certificate in DER encoding.
    pub fn der(&self) -> &[u8] {
        &self.0
    }
}
