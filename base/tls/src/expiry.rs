//! Expiry of certificates in PEM files. Connections do not depend on it: rustls verifies their
//! certificates.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use crate::client::TlsClientFiles;
use crate::error::TlsError;
use crate::settings::{TlsFiles, certificates, unusable};

/// Time before an expiry from which a certificate counts as expiring: 30 days.
const SOON_SECONDS: u64 = 30 * 24 * 60 * 60;

/// A file of certificates in use, and when they expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFile {
    /// Use of the file, for messages.
    pub used_for: &'static str,
    pub path: PathBuf,
    contents: Contents,
    expires: Option<u64>,
}

/// State of a certificate at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validity {
    /// Also if the time of expiry is unknown.
    #[default]
    Valid,
    /// It expires within 30 days.
    Expiring,
    Expired,
}

/// Contents of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    /// Certificates that are all needed.
    Chain,
    /// Authorities (CA certificates), of which one may have succeeded another.
    Authorities,
}

impl CertificateFile {
    /// Reads the files of a server: its chain, and the authorities of its clients if there are any.
    /// A file that cannot be read has no time of expiry.
    pub fn of_server(files: &TlsFiles, own: &'static str, clients: &'static str) -> Vec<Self> {
        let mut all = vec![Self::read_chain(&files.certificate, own)];
        let authorities = files.client_authorities.as_ref();
        all.extend(authorities.map(|path| Self::read(path, clients, Contents::Authorities)));
        all
    }

    /// Reads the files of a client: its chain, and the authorities of its servers.
    pub fn of_client(
        files: &TlsClientFiles,
        own: &'static str,
        servers: &'static str,
    ) -> Vec<Self> {
        let authorities = Self::read(&files.authorities, servers, Contents::Authorities);
        vec![Self::read_chain(&files.certificate, own), authorities]
    }

    /// Reads a file with a certificate chain.
    pub fn read_chain(path: &Path, used_for: &'static str) -> Self {
        Self::read(path, used_for, Contents::Chain)
    }

    fn read(path: &Path, used_for: &'static str, contents: Contents) -> Self {
        let mut file = Self { used_for, path: path.to_owned(), contents, expires: None };
        // The service that uses the file reports why it cannot be read.
        let _unreadable = file.read_again();
        file
    }

    /// Reads the file again. After a failure the time that is known stays.
    pub fn read_again(&mut self) -> Result<(), TlsError> {
        let times = certificates(&self.path)?;
        let times = times.iter().map(|it| expires(&self.path, it));
        let times: Vec<u64> = times.collect::<Result<_, _>>()?;
        self.expires = match self.contents {
            Contents::Chain => times.into_iter().min(),
            Contents::Authorities => times.into_iter().max(),
        };
        Ok(())
    }

    /// Returns the time of expiry in seconds since 1970: that of the first certificate of a chain,
    /// or of the last of several authorities. `None` if the file could not be read.
    pub fn expires_unix_seconds(&self) -> Option<u64> {
        self.expires
    }

    /// Returns the state at a time in seconds since 1970.
    pub fn validity_at(&self, unix_seconds: u64) -> Validity {
        match self.expires {
            Some(expires) if expires <= unix_seconds => Validity::Expired,
            Some(expires) if expires - unix_seconds <= SOON_SECONDS => Validity::Expiring,
            _ => Validity::Valid,
        }
    }
}

impl CertificateFile {
    /// Describes the state at a time in seconds since 1970.
    pub fn describe_at(&self, unix_seconds: u64) -> String {
        let Self { used_for, path, .. } = self;
        let verb = match self.validity_at(unix_seconds) {
            Validity::Valid => "is valid until",
            Validity::Expiring => "expires on",
            Validity::Expired => "has expired on",
        };
        let time = self.expires.map_or_else(
            || "an unknown time".to_owned(),
            |expires| {
                let time = UNIX_EPOCH + Duration::from_secs(expires);
                humantime::format_rfc3339_seconds(time).to_string()
            },
        );
        format!("the certificate in {} ({used_for}) {verb} {time}", path.display())
    }
}

fn expires(path: &Path, certificate: &CertificateDer<'_>) -> Result<u64, TlsError> {
    let parsed = EndEntityCert::try_from(certificate).map_err(|error| unusable(path, error))?;
    // webpki tells when a certificate has expired. It checks that before it looks for an issuer.
    let never = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let usage = KeyUsage::server_auth();
    match parsed.verify_for_usage(&[], &[], &[], never, usage, None, None) {
        Err(webpki::Error::CertExpired { not_after, .. }) => Ok(not_after.as_secs()),
        Err(error) => Err(unusable(path, error)),
        Ok(_) => Err(unusable(path, "it never expires")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 60 * 60;

    fn certificate(year: i32) -> String {
        let mut parameters = rcgen::CertificateParams::new(["a".to_owned()]).expect("a name");
        parameters.not_after = rcgen::date_time_ymd(year, 1, 2);
        let key = rcgen::KeyPair::generate().expect("there is randomness");
        parameters.self_signed(&key).expect("it can be signed").pem()
    }

    #[test]
    fn a_chain_expires_with_its_first_and_authorities_with_their_last() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("all.pem");
        let all = [2040, 2031, 2050].map(certificate).concat();
        std::fs::write(&path, all).expect("there is room");
        let files = TlsFiles {
            certificate: path.clone(),
            key: path.clone(),
            client_authorities: Some(path),
        };
        let [chain, authorities] = &CertificateFile::of_server(&files, "own", "clients")[..] else {
            panic!("two files");
        };
        assert_eq!(chain.expires_unix_seconds(), Some(1_925_078_400));
        assert_eq!(authorities.expires_unix_seconds(), Some(2_524_694_400));
        for (time, validity) in [
            (1_925_078_400 - 31 * DAY, Validity::Valid),
            (1_925_078_400 - 30 * DAY, Validity::Expiring),
            (1_925_078_399, Validity::Expiring),
            (1_925_078_400, Validity::Expired),
        ] {
            assert_eq!(chain.validity_at(time), validity, "{time}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_again_keeps_its_time() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("one.pem");
        assert_eq!(CertificateFile::read_chain(&path, "own").expires_unix_seconds(), None);
        std::fs::write(&path, certificate(2031)).expect("there is room");
        let mut file = CertificateFile::read_chain(&path, "own");
        std::fs::write(&path, "text").expect("there is room");
        file.read_again().expect_err("it has no certificate");
        assert_eq!(file.expires_unix_seconds(), Some(1_925_078_400));
    }
}
