//! TLS certificate: a configured one, or a self-signed one created at the first start.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use state_file::StateFile;

use crate::clock::unix_seconds;
use tls::{CertificateFile, TlsFiles, TlsSettings, Validity};

const CERTIFICATE_NAME: &str = "certificate.pem";
const KEY_NAME: &str = "key.pem";
const MADE_NAME: &str = "certificate.json";

/// Returns the certificate files. Creates them in the state folder if none are configured and none
/// exist.
pub(super) fn files(
    given: Option<(&Path, &Path)>,
    folder: &Path,
    host_names: &[String],
) -> anyhow::Result<TlsFiles> {
    let (certificate, key) = match given {
        Some((certificate, key)) => (certificate.to_owned(), key.to_owned()),
        None => own(folder, host_names)?,
    };
    Ok(TlsFiles { certificate, key, client_authorities: None })
}

pub(super) fn load(files: &TlsFiles) -> anyhow::Result<TlsSettings> {
    TlsSettings::load(files).context("cannot set up TLS")
}

/// Interval between warnings of a certificate that expires.
const WARNING_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Expiry of the certificate in use.
pub(super) struct Expiry(Mutex<CertificateFile>);

impl Expiry {
    pub(super) fn of(files: &TlsFiles) -> Self {
        Self(Mutex::new(CertificateFile::read_chain(&files.certificate, "console")))
    }

    /// Notes that the certificate was loaded again.
    pub(super) fn note_loaded(&self, files: &TlsFiles) {
        let read = CertificateFile::read_chain(&files.certificate, "console");
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = read;
        self.warn(unix_seconds());
    }

    /// Logs a warning once a day while the certificate has expired or expires within 30 days.
    pub(super) async fn watch(&self) {
        loop {
            self.warn(unix_seconds());
            tokio::time::sleep(WARNING_INTERVAL).await;
        }
    }

    /// Returns whether there was something to warn of.
    fn warn(&self, now_unix_seconds: u64) -> bool {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let described = file.describe_at(now_unix_seconds);
        // A start renews the certificate that the console has created itself.
        let then = "replace it and send SIGHUP, or restart the console if it has created it";
        match file.validity_at(now_unix_seconds) {
            Validity::Valid => return false,
            Validity::Expiring => tracing::warn!("{described}; {then}"),
            Validity::Expired => tracing::error!("{described}; {then}"),
        }
        true
    }
}

/// SHA-256 fingerprint of the certificate, as browsers show it.
pub(super) fn fingerprint(path: &Path) -> anyhow::Result<String> {
    let der = der(path)?;
    let mut shown = String::new();
    for (index, byte) in digest(&SHA256, &der).as_ref().iter().enumerate() {
        let separator = if index == 0 { "" } else { ":" };
        write!(shown, "{separator}{byte:02X}").context("memory takes all")?;
    }
    Ok(shown)
}

fn der(path: &Path) -> anyhow::Result<Vec<u8>> {
    let unreadable = || format!("cannot read {}", path.display());
    let text = fs::read_to_string(path).with_context(unreadable)?;
    let first = text.split_once("-----BEGIN CERTIFICATE-----").map(|(_, rest)| rest);
    let first = first.and_then(|it| it.split_once("-----END CERTIFICATE-----"));
    let (base64, _) = first.with_context(unreadable)?;
    let base64: String = base64.split_whitespace().collect();
    STANDARD.decode(base64).with_context(unreadable)
}

/// Lifetime of a created certificate. Browsers reject more than about two years.
const VALID_SECONDS: u64 = 820 * 24 * 60 * 60;

/// Time before expiry from which a start renews the certificate.
const RENEWED_SECONDS: u64 = 30 * 24 * 60 * 60;

/// Start of validity in the past, because clocks of clients may be slow.
const BEHIND_SECONDS: u64 = 24 * 60 * 60;

/// Default subject name of rcgen, which marks certificates of older versions.
const MADE_BY_US: &[u8] = b"rcgen self signed cert";

/// Names and expiry of the created certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Made {
    fingerprint: String,
    names: Vec<String>,
    /// Unix seconds.
    expires: u64,
}

fn own(folder: &Path, host_names: &[String]) -> anyhow::Result<(PathBuf, PathBuf)> {
    let (certificate, key) = (folder.join(CERTIFICATE_NAME), folder.join(KEY_NAME));
    let mut kept = StateFile::<Made>::open_or_default(folder.join(MADE_NAME))
        .with_context(|| format!("cannot read {}", folder.join(MADE_NAME).display()))?;
    if certificate.exists() {
        ensure!(
            key.exists(),
            "{} contains a certificate without its key; remove it to have a new one created",
            folder.display()
        );
        let made = kept.state();
        let is_ours = made.fingerprint == fingerprint(&certificate)?;
        let is_good = unix_seconds() + RENEWED_SECONDS < made.expires
            && host_names.iter().all(|it| made.names.contains(it));
        // A certificate that the administrator placed there is kept.
        if is_good || !(is_ours || is_of_older_console(&certificate)?) {
            return Ok((certificate, key));
        }
        tracing::warn!(
            names = host_names.join(", "),
            "the self-signed certificate expires soon or lacks a name; creating a new one with \
             another SHA-256 fingerprint"
        );
    }
    let expires = unix_seconds() + VALID_SECONDS;
    let (key_text, certificate_text) = make(host_names, expires)
        .with_context(|| format!("cannot create a certificate for {host_names:?}"))?;
    let store = |path: &Path, text: String| {
        state_file::replace_private_file(path, text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))
    };
    // A key without certificate is useless, and recreated together with the certificate.
    if certificate.exists() {
        fs::remove_file(&certificate).context("cannot remove the old certificate")?;
    }
    store(&key, key_text)?;
    store(&certificate, certificate_text)?;
    let made =
        Made { fingerprint: fingerprint(&certificate)?, names: host_names.to_vec(), expires };
    kept.change(|it| *it = made).context("cannot write the names of the certificate")?;
    Ok((certificate, key))
}

fn make(host_names: &[String], expires: u64) -> Result<(String, String), rcgen::Error> {
    let mut parameters = rcgen::CertificateParams::new(host_names.to_vec())?;
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "Memlane console");
    let at = |seconds| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    parameters.not_before = at(unix_seconds() - BEHIND_SECONDS);
    parameters.not_after = at(expires);
    let key = rcgen::KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?;
    Ok((key.serialize_pem(), certificate.pem()))
}

fn is_of_older_console(certificate: &Path) -> anyhow::Result<bool> {
    let der = der(certificate)?;
    Ok(der.windows(MADE_BY_US.len()).any(|it| it == MADE_BY_US))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_expires_is_warned_of_until_another_is_loaded() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = ["localhost".to_owned()];
        let made = files(None, folder.path(), &names).expect("it is made");
        let expiry = Expiry::of(&made);
        let expires = unix_seconds() + VALID_SECONDS;
        assert!(!expiry.warn(expires - RENEWED_SECONDS - 60));
        assert!(expiry.warn(expires - RENEWED_SECONDS));
        assert!(expiry.warn(expires));
        let (_, later) = make(&names, expires + VALID_SECONDS).expect("it is made");
        fs::write(&made.certificate, later).expect("there is room");
        expiry.note_loaded(&made);
        assert!(!expiry.warn(expires));
    }

    #[test]
    fn a_certificate_is_made_once_and_half_of_one_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = files(None, folder.path(), &names).expect("it is made");
        load(&made).expect("it is one");
        let before = fingerprint(&made.certificate).expect("it is read");
        assert_eq!(before.len(), 32 * 3 - 1);
        let again = files(None, folder.path(), &names).expect("it is there");
        assert_eq!(fingerprint(&again.certificate).expect("it is read"), before);
        // A created certificate is renewed for a new name. The administrator's own is kept.
        let more = [&names[..], &["console.example".to_owned()]].concat();
        let another = files(None, folder.path(), &more).expect("it is made again");
        let fits = fingerprint(&another.certificate).expect("it is read");
        assert_ne!(fits, before);
        let again = files(None, folder.path(), &names).expect("it has this name as well");
        assert_eq!(fingerprint(&again.certificate).expect("it is read"), fits);
        let expires = unix_seconds() + VALID_SECONDS;
        let (key, certificate) = make(&names, expires).expect("it is made");
        fs::write(&made.key, key).expect("there is room");
        fs::write(&made.certificate, &certificate).expect("there is room");
        files(None, folder.path(), &more).expect("it is somebody's");
        assert_eq!(fs::read_to_string(&made.certificate).expect("it is there"), certificate);
        fs::remove_file(&made.key).expect("it is there");
        files(None, folder.path(), &names).expect_err("the key is gone");
    }
}
