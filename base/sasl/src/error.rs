//! Why an exchange ends without a login.

/// The class of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslErrorKind {
    /// The other side's message does not follow the mechanism's grammar, or comes out of turn.
    Malformed,
    /// The other side asks for what is not offered: channel binding or a mandatory extension.
    Unsupported,
    /// A name or secret holds what is not allowed, or is too long.
    Text,
    /// Salt, iterations or keys are outside of their bounds.
    Keys,
    /// The server refuses the login.
    Refused,
    /// The server has not proved that it knows the user's keys.
    ServerUnproven,
    /// The system gives no random bytes.
    Randomness,
}

/// A failed exchange or an unusable key. Never holds a secret.
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
