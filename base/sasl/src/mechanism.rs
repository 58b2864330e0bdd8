//! Supported SASL mechanisms and their registered names.

use ring::{digest, hmac, pbkdf2};

/// A SASL mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    Plain,
    Scram(ScramHash),
}

impl Mechanism {
    /// All mechanisms, in descending order of preference.
    pub const ALL: [Self; 3] =
        [Self::Scram(ScramHash::Sha512), Self::Scram(ScramHash::Sha256), Self::Plain];

    /// Returns the name in IANA's registry.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Scram(hash) => hash.mechanism_name(),
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }
}

/// The hash function of a SCRAM mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScramHash {
    Sha256,
    Sha512,
}

impl ScramHash {
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    pub fn mechanism_name(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// Length of keys, proofs and signatures in bytes.
    pub fn key_bytes(self) -> usize {
        self.digest().output_len()
    }

    pub(crate) fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        }
    }

    pub(crate) fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }

    pub(crate) fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }
}
