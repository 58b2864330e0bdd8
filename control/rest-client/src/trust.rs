//! Trusted certificates: one by its fingerprint, or those signed by an authority.

use std::fmt::{self, Write};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{
    CryptoProvider, ring as provider, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_rustls::TlsConnector;

const PIN_BYTES: usize = 32;

/// SHA-256 fingerprint of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin([u8; PIN_BYTES]);

impl Pin {
    fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        Self(digest.as_ref().try_into().expect("a SHA-256 has 32 bytes"))
    }
}

impl FromStr for Pin {
    type Err = String;

    /// Parses 64 hexadecimal digits, with or without colons between the bytes.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a SHA-256 fingerprint; use 64 hexadecimal digits");
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
        if digits.len() != 2 * PIN_BYTES {
            return Err(wrong());
        }
        let mut pin = [0; PIN_BYTES];
        for (byte, pair) in pin.iter_mut().zip(digits.chunks(2)) {
            let digit = |it: u8| char::from(it).to_digit(16).ok_or_else(wrong);
            let value = digit(pair[0])? * 16 + digit(pair[1])?;
            *byte = u8::try_from(value).expect("two digits are a byte");
        }
        Ok(Self(pin))
    }
}

/// Formats the fingerprint as browsers do.
impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_char(':')?;
            }
            write!(f, "{byte:02X}")?;
        }
        Ok(())
    }
}

/// Trusted certificates.
#[derive(Clone, Debug)]
pub(crate) struct Trust(Arc<Believed>);

#[derive(Debug)]
enum Believed {
    Pinned(Pin),
    Signed { authorities: Arc<WebPkiServerVerifier>, own: Vec<CertificateDer<'static>> },
}

impl Trust {
    /// Trusts only the certificate with this fingerprint, whatever its contents.
    pub(crate) fn pinned(pin: Pin) -> Self {
        Self(Arc::new(Believed::Pinned(pin)))
    }

    /// Trusts certificates for the host that are in this file (such as self-signed ones) or signed
    /// by one in it.
    pub(crate) fn signed(path: &Path) -> Result<Self, String> {
        let unusable =
            |why: &str| format!("cannot use the certificates in {}: {why}", path.display());
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        let own = certificates.map_err(|error| unusable(&error.to_string()))?;
        let mut roots = RootCertStore::empty();
        // The host's CA bundle may contain certificates that cannot be parsed.
        let (understood, _) = roots.add_parsable_certificates(own.iter().cloned());
        if understood == 0 {
            return Err(unusable("the file holds no certificate"));
        }
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), crypto());
        let authorities = builder.build().map_err(|error| unusable(&error.to_string()))?;
        Ok(Self(Arc::new(Believed::Signed { authorities, own })))
    }

    /// Returns a connector for one connection, and a record of the certificate that it rejects.
    pub(crate) fn connector(&self) -> (TlsConnector, Arc<Seen>) {
        let seen = Arc::new(Seen::default());
        let verifier = Verifier { trust: self.clone(), crypto: crypto(), seen: Arc::clone(&seen) };
        let config = ClientConfig::builder_with_provider(crypto())
            .with_safe_default_protocol_versions()
            .expect("the provider supports the default versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        (TlsConnector::from(Arc::new(config)), seen)
    }
}

fn crypto() -> Arc<CryptoProvider> {
    Arc::new(provider::default_provider())
}

/// Fingerprint of the certificate that was rejected.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<Option<Pin>>);

impl Seen {
    pub(crate) fn unbelieved(&self) -> Option<Pin> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Verifier for [`Trust`]. In any case the server must prove that it has the certificate's key.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    crypto: Arc<CryptoProvider>,
    seen: Arc<Seen>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let believed = match &*self.trust.0 {
            Believed::Pinned(pin) if Pin::of(certificate) == *pin => {
                Ok(ServerCertVerified::assertion())
            }
            Believed::Pinned(_) => Err(CertificateError::ApplicationVerificationFailure.into()),
            Believed::Signed { own, .. } if own.contains(certificate) => {
                let parsed = ParsedCertificate::try_from(certificate)?;
                verify_server_name(&parsed, name).map(|()| ServerCertVerified::assertion())
            }
            Believed::Signed { authorities, .. } => {
                authorities.verify_server_cert(certificate, intermediates, name, ocsp_response, now)
            }
        };
        if believed.is_err() {
            let mut seen = self.seen.0.lock().unwrap_or_else(PoisonError::into_inner);
            *seen = Some(Pin::of(certificate));
        }
        believed
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.crypto.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.crypto.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.crypto.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_read_as_it_is_shown_and_as_tools_print_it() {
        let pin = Pin::of(&CertificateDer::from(b"anything".to_vec()));
        let shown = pin.to_string();
        assert_eq!(shown.len(), 95);
        assert_eq!(shown.parse(), Ok(pin));
        assert_eq!(shown.replace(':', "").to_lowercase().parse(), Ok(pin));
        for wrong in ["", "aa", &shown[1..], &shown.replace('A', "x"), &format!("{shown}00")] {
            if wrong != shown {
                wrong.parse::<Pin>().expect_err(wrong);
            }
        }
    }

    #[test]
    fn a_file_without_certificates_is_refused() {
        for path in ["/dev/null", "/nowhere"] {
            let why = Trust::signed(Path::new(path)).expect_err(path);
            assert!(why.contains(path), "{why}");
        }
    }
}
