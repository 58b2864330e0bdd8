//! The certificate: a given one, or one that is made at the first start.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use tls::{TlsFiles, TlsSettings};

const CERTIFICATE_NAME: &str = "certificate.pem";
const KEY_NAME: &str = "key.pem";

/// The files of the certificate; makes them in the state folder where none are given and none are
/// there.
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
    TlsSettings::load(files).context("no TLS")
}

/// SHA-256 of the certificate, as browsers show it.
pub(super) fn fingerprint(path: &Path) -> anyhow::Result<String> {
    let unreadable = || format!("cannot read {}", path.display());
    let text = fs::read_to_string(path).with_context(unreadable)?;
    let first = text.split_once("-----BEGIN CERTIFICATE-----").map(|(_, rest)| rest);
    let first = first.and_then(|it| it.split_once("-----END CERTIFICATE-----"));
    let (base64, _) = first.with_context(unreadable)?;
    let base64: String = base64.split_whitespace().collect();
    let der = STANDARD.decode(base64).with_context(unreadable)?;
    let mut shown = String::new();
    for (index, byte) in digest(&SHA256, &der).as_ref().iter().enumerate() {
        let separator = if index == 0 { "" } else { ":" };
        write!(shown, "{separator}{byte:02X}").context("memory takes all")?;
    }
    Ok(shown)
}

fn own(folder: &Path, host_names: &[String]) -> anyhow::Result<(PathBuf, PathBuf)> {
    let (certificate, key) = (folder.join(CERTIFICATE_NAME), folder.join(KEY_NAME));
    if certificate.exists() {
        ensure!(
            key.exists(),
            "{} has a certificate without its key; remove it to have another one made",
            folder.display()
        );
        return Ok((certificate, key));
    }
    // The key is stored first: one that is alone belongs to nothing.
    let made = rcgen::generate_simple_self_signed(host_names.to_vec())
        .with_context(|| format!("no certificate can be for {host_names:?}"))?;
    let store = |path: &Path, text: String| {
        state_file::replace_private_file(path, text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))
    };
    store(&key, made.signing_key.serialize_pem())?;
    store(&certificate, made.cert.pem())?;
    Ok((certificate, key))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        fs::remove_file(&made.key).expect("it is there");
        files(None, folder.path(), &names).expect_err("the key is gone");
    }
}
