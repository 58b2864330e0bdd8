//! Reasons for which an exchange fails.

/// Kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslErrorKind {
    /// A message of the peer does not follow the mechanism's grammar, or arrives out of turn.
    Malformed,
    /// The peer requires an unsupported feature: channel binding or a mandatory extension.
    Unsupported,
    /// A name or secret is too long or contains characters that are not allowed.
    Text,
    /// Salt, iteration count or key length is out of bounds.
    Keys,
    /// The server rejected the login.
    Refused,
    /// The server did not prove that it knows the user's keys.
    ServerUnproven,
    /// The system's random number generator failed.
    Randomness,
}

/// A failed exchange or an unusable key. Never contains a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct SaslError {
    pub kind: SaslErrorKind,
    pub what: String,
}

impl SaslError {
    pub(crate) fn new(kind: SaslErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into() }
    }

    pub(crate) fn malformed(what: impl Into<String>) -> Self {
        Self::new(SaslErrorKind::Malformed, what)
    }
}
