//! Certificates for tests, signed by an authority of the test.
#![allow(dead_code, reason = "each program that includes this uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};

use nbd::TlsFiles;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("keys can be made");
        let mut params = CertificateParams::new(Vec::new()).expect("no names are valid names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let certificate = params.self_signed(&key).expect("it can be signed").pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// Writes the authority's own certificate.
    pub(crate) fn publish(&self, directory: &Path, name: &str) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, &self.certificate).expect("there is space for temporary files");
        path
    }

    /// Writes a certificate for `localhost`, and its key, as `NAME-cert.pem` and `NAME-key.pem`.
    pub(crate) fn issue(&self, directory: &Path, name: &str) -> TlsFiles {
        self.issue_for("localhost", directory, name)
    }

    /// Issues a certificate as [`Authority::issue`] does, for another DNS name.
    pub(crate) fn issue_for(&self, dns_name: &str, directory: &Path, name: &str) -> TlsFiles {
        let key = KeyPair::generate().expect("keys can be made");
        let params = CertificateParams::new([dns_name.to_owned()]).expect("a valid name");
        let signed = params.signed_by(&key, &self.issuer).expect("it can be signed");
        let certificate_path = directory.join(format!("{name}-cert.pem"));
        let key_path = directory.join(format!("{name}-key.pem"));
        fs::write(&certificate_path, signed.pem()).expect("there is space for temporary files");
        fs::write(&key_path, key.serialize_pem()).expect("there is space for temporary files");
        TlsFiles { certificate: certificate_path, key: key_path, client_authorities: None }
    }
}
