//! Security settings of a listener, and the principal of a client before its login.

use std::net::IpAddr;
use std::str::FromStr;

use tls::ClientCertificate;

use crate::distinguished_name::subject_of;
use crate::error::{AccessError, AccessErrorKind};
use crate::login::LoginSettings;
use crate::principal::Principal;

/// Security protocol of a listener, by Kafka's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityProtocol {
    Plaintext,
    Ssl,
    SaslPlaintext,
    SaslSsl,
}

impl SecurityProtocol {
    pub fn name(self) -> &'static str {
        match self {
            Self::Plaintext => "PLAINTEXT",
            Self::Ssl => "SSL",
            Self::SaslPlaintext => "SASL_PLAINTEXT",
            Self::SaslSsl => "SASL_SSL",
        }
    }

    pub fn has_tls(self) -> bool {
        matches!(self, Self::Ssl | Self::SaslSsl)
    }

    pub fn has_sasl(self) -> bool {
        matches!(self, Self::SaslPlaintext | Self::SaslSsl)
    }
}

impl FromStr for SecurityProtocol {
    type Err = AccessError;

    fn from_str(name: &str) -> Result<Self, AccessError> {
        match name {
            "PLAINTEXT" => Ok(Self::Plaintext),
            "SSL" => Ok(Self::Ssl),
            "SASL_PLAINTEXT" => Ok(Self::SaslPlaintext),
            "SASL_SSL" => Ok(Self::SaslSsl),
            _ => Err(not_allowed(format!(
                "unknown protocol {name:?}; use PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"
            ))),
        }
    }
}

/// TLS client authentication (`ssl.client.auth`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    None,
    Requested,
    Required,
}

/// Configured permission for anonymous clients and unencrypted secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// Clients must log in or present certificates, and secrets are transmitted only over TLS.
    Refused,
    /// Anonymous clients, and PLAIN without TLS, are allowed from this host only.
    Loopback,
    /// Both are allowed from every host.
    Everywhere,
}

/// Security policy of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerPolicy {
    pub protocol: SecurityProtocol,
    pub certificates: ClientCertificates,
    pub logins: LoginSettings,
    pub exposure: Exposure,
}

impl ListenerPolicy {
    /// Returns whether a listener at `address` may use this policy. Called once, before listening.
    pub fn check(&self, address: IpAddr) -> Result<(), AccessError> {
        let is_exposed = match self.exposure {
            Exposure::Everywhere => true,
            Exposure::Loopback => address.to_canonical().is_loopback(),
            Exposure::Refused => false,
        };
        let has_logins = self.protocol.has_sasl();
        if has_logins && self.logins.mechanisms.is_empty() {
            return Err(not_allowed(format!(
                "cannot listen on {address} with SASL: no mechanism is enabled"
            )));
        }
        let asks_for_certificates = self.certificates != ClientCertificates::None;
        if asks_for_certificates && !self.protocol.has_tls() {
            return Err(not_allowed(format!(
                "cannot listen on {address}: client certificates require SSL or SASL_SSL"
            )));
        }
        if self.lets_in_anonymous_clients() && !is_exposed {
            return Err(not_allowed(format!(
                "cannot listen on {address}: every client that reaches it could read and write; \
                 require logins or client certificates, or allow it with --anonymous loopback \
                 (this host) or everywhere"
            )));
        }
        let sends_secrets = has_logins && self.logins.mechanisms.contains(&sasl::Mechanism::Plain);
        if sends_secrets && !self.protocol.has_tls() && !is_exposed {
            return Err(not_allowed(format!(
                "cannot listen on {address}: PLAIN sends passwords unencrypted; use SASL_SSL or \
                 SCRAM, or allow it with --anonymous"
            )));
        }
        Ok(())
    }

    /// Returns the principal of a new connection, or `None` until it has logged in.
    ///
    /// With SASL, the login determines the principal, and a certificate is ignored. Otherwise the
    /// principal is the whole subject of the certificate (`ssl.principal.mapping.rules=DEFAULT`),
    /// or anonymous.
    pub fn principal(
        &self,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Option<Principal>, AccessError> {
        if self.protocol.has_sasl() {
            return Ok(None);
        }
        let Some(certificate) = certificate else { return Ok(Some(Principal::anonymous())) };
        let subject = subject_of(certificate.der()).ok_or_else(|| {
            not_allowed("the subject of a client's certificate is empty or cannot be read")
        })?;
        let principal = Principal::user(&subject)?;
        if principal == Principal::anonymous() {
            return Err(not_allowed("the subject of a client's certificate is ANONYMOUS"));
        }
        Ok(Some(principal))
    }

    fn lets_in_anonymous_clients(&self) -> bool {
        !self.protocol.has_sasl() && self.certificates != ClientCertificates::Required
    }
}

fn not_allowed(what: impl Into<String>) -> AccessError {
    AccessError::new(AccessErrorKind::NotAllowed, what)
}
