//! Random secrets. Only their hashes are stored.

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;

/// Size of a secret. It has enough entropy for a plain hash without salt.
const SECRET_BYTES: usize = 32;

/// A secret, which is shown to its owner once.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    /// Generates a secret.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub(crate) fn make() -> anyhow::Result<Self> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).context("cannot get random bytes")?;
        Ok(Self(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Wraps a secret that a client presented.
    pub(crate) fn shown(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the secret itself, for its owner.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the SHA-256 hash, for storage.
    pub(crate) fn hash(&self) -> String {
        URL_SAFE_NO_PAD.encode(digest(&SHA256, self.0.as_bytes()))
    }

    /// Compares secrets in constant time.
    pub(crate) fn is(&self, other: &str) -> bool {
        let other = Self::shown(other).hash();
        self.hash().as_bytes().ct_eq(other.as_bytes()).into()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_say_nothing_in_logs() {
        let (one, other) = (Secret::make().expect("random"), Secret::make().expect("random"));
        assert_ne!(one.hash(), other.hash());
        assert!(one.is(one.reveal()) && !one.is(other.reveal()));
        assert_eq!(one.reveal().len(), 43);
        assert!(!format!("{one:?}").contains(one.reveal()));
        assert!(!one.hash().contains(one.reveal()));
    }
}
