//! Certificate authority for tests.
#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// Certificate authority, and a folder for the certificates that it issues.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) own_file: PathBuf,
    folder: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("there is room");
        let mut params = CertificateParams::new([]).expect("no names are fine");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of this test");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let own_file = folder.path().join("ca.pem");
        fs::write(&own_file, certificate.pem()).expect("there is room");
        Self { issuer: Issuer::new(params, key), own_file, folder }
    }

    pub(crate) fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        self.issue_with(name, |_| {})
    }

    pub(crate) fn issue_with(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let path = |ending: &str| self.folder.path().join(format!("{name}.{ending}"));
        fs::write(path("pem"), certificate.pem()).expect("there is room");
        fs::write(path("key"), key.serialize_pem()).expect("there is room");
        (path("pem"), path("key"))
    }
}
