//! Handshakes in memory with settings that were loaded from files.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};
use tempfile::TempDir;
use tls::{ClientCertificate, TlsFiles, TlsSettings};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
    directory: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).expect("no names are fine");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let certificate = params.self_signed(&key).expect("a certificate");
        let directory = tempfile::tempdir().expect("a directory");
        Self { issuer: Issuer::new(params, key), certificate, directory }
    }

    fn store(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    }

    fn own_file(&self) -> PathBuf {
        self.store("authority.pem", &self.certificate.pem())
    }

    /// Certificate and key for a DNS name.
    fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (
            self.store(&format!("{name}.pem"), &certificate.pem()),
            self.store(&format!("{name}.key"), &key.serialize_pem()),
        )
    }
}

fn read<T: PemObject>(path: &Path) -> T {
    T::from_pem_file(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn client(authority: &Authority, own: Option<&(PathBuf, PathBuf)>) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.der().clone()).expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the default versions")
        .with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(
                vec![read::<CertificateDer<'static>>(certificate)],
                read::<PrivateKeyDer<'static>>(key),
            )
            .expect("they fit"),
    };
    let name = ServerName::try_from("broker").expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("a client")
}

/// Exchanges handshake messages in memory until the handshake ends or fails.
fn shake_hands(
    mut client: ClientConnection,
    settings: &TlsSettings,
) -> Result<Option<ClientCertificate>, rustls::Error> {
    let mut server = ServerConnection::new(settings.server_config())?;
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).expect("memory takes all");
        server.read_tls(&mut bytes.as_slice()).expect("memory gives all");
        server.process_new_packets()?;
        bytes.clear();
        server.write_tls(&mut bytes).expect("memory takes all");
        client.read_tls(&mut bytes.as_slice()).expect("memory gives all");
        client.process_new_packets()?;
    }
    Ok(ClientCertificate::of(&server))
}

fn files(authority: &Authority) -> TlsFiles {
    let (certificate, key) = authority.issue("broker");
    TlsFiles { certificate, key, client_authorities: Some(authority.own_file()) }
}

#[test]
fn a_required_certificate_may_not_be_missing() {
    let authority = Authority::new();
    let settings = TlsSettings::load(&files(&authority)).expect("they fit");
    shake_hands(client(&authority, None), &settings).expect_err("no certificate");
    let own = authority.issue("alice");
    let shown = shake_hands(client(&authority, Some(&own)), &settings).expect("it is verified");
    assert!(shown.expect("a certificate").is_for("alice"));
}

#[test]
fn an_optional_certificate_may_be_missing_and_is_verified_when_shown() {
    let authority = Authority::new();
    let settings =
        TlsSettings::load_with_optional_certificates(&files(&authority)).expect("they fit");
    let nothing = shake_hands(client(&authority, None), &settings).expect("nothing is required");
    assert!(nothing.is_none());
    let own = authority.issue("alice");
    let shown = shake_hands(client(&authority, Some(&own)), &settings).expect("it is verified");
    let shown = shown.expect("a certificate");
    assert_eq!(shown.der(), read::<CertificateDer<'static>>(&own.0).as_ref());
    let other = Authority::new();
    let foreign = other.issue("alice");
    shake_hands(client(&authority, Some(&foreign)), &settings).expect_err("another authority");
}
