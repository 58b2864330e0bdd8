//! Logins of one connection by SASL (KIP-43, KIP-152).

use std::time::Instant;

use access::{LoginRefusal, LoginStep, Logins};
use kafka_protocol::messages::{
    RequestKind, ResponseKind, SaslAuthenticateRequest, SaslAuthenticateResponse,
    SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_protocol::protocol::StrBytes;
use sasl::Nonce;

use super::client::Client;
use crate::broker::Broker;

/// Where a connection is with its login.
#[derive(Debug)]
pub(super) struct Login {
    logins: Logins,
    /// When the client has to have logged in again.
    expires: Option<Instant>,
}

/// An answer, and whether the connection goes on.
pub(super) struct Answered {
    pub(super) response: ResponseKind,
    pub(super) goes_on: bool,
}

impl Login {
    pub(super) fn new(broker: &Broker) -> Self {
        Self { logins: Logins::new(broker.gate.policy.logins.clone()), expires: None }
    }

    /// Whether the login is too old.
    pub(super) fn has_expired(&self) -> bool {
        self.expires.is_some_and(|expires| Instant::now() >= expires)
    }

    /// Takes one of the two requests of a login. The work takes milliseconds at most.
    pub(super) fn take(
        &mut self,
        broker: &Broker,
        client: &Client,
        request: &RequestKind,
    ) -> Option<Answered> {
        match request {
            RequestKind::SaslHandshake(it) => Some(self.handshake(broker, it)),
            RequestKind::SaslAuthenticate(it) => Some(self.authenticate(broker, client, it)),
            _ => None,
        }
    }

    fn handshake(&mut self, broker: &Broker, request: &SaslHandshakeRequest) -> Answered {
        let names = self.logins.mechanism_names().map(StrBytes::from_static_str).collect();
        let response = SaslHandshakeResponse::default().with_mechanisms(names);
        if !broker.gate.policy.protocol.has_sasl() {
            let error = kafka_protocol::ResponseError::IllegalSaslState;
            let response = response.with_error_code(error.code()).into();
            return Answered { response, goes_on: false };
        }
        let begun = Nonce::random()
            .ok()
            .map(|nonce| self.logins.handshake(&request.mechanism, broker.gate.users(), nonce));
        match begun {
            Some(Ok(())) => Answered { response: response.into(), goes_on: true },
            Some(Err(refusal)) => {
                let response = response.with_error_code(refusal.code.code()).into();
                let goes_on =
                    refusal.code == kafka_protocol::ResponseError::UnsupportedSaslMechanism;
                Answered { response, goes_on }
            }
            None => {
                let error = kafka_protocol::ResponseError::UnknownServerError;
                let response = response.with_error_code(error.code()).into();
                Answered { response, goes_on: false }
            }
        }
    }

    fn authenticate(
        &mut self,
        broker: &Broker,
        client: &Client,
        request: &SaslAuthenticateRequest,
    ) -> Answered {
        let response = SaslAuthenticateResponse::default().with_error_message(None);
        match self.logins.authenticate(&request.auth_bytes) {
            Ok(LoginStep::Continue(bytes)) => {
                Answered { response: response.with_auth_bytes(bytes.into()).into(), goes_on: true }
            }
            Ok(LoginStep::Done { bytes, session }) => {
                let now = Instant::now();
                let limits = broker.gate.users().quota_of(&session.principal);
                let lifetime_ms = session.lifetime_ms();
                self.expires = session.lifetime.map(|lifetime| now + lifetime);
                if !client.is_known() {
                    let place = broker.gate.quotas.connect(&session.principal, limits, now);
                    match place {
                        Ok(place) => client.identify(session.principal, place),
                        Err(error) => {
                            let code = kafka_protocol::ResponseError::SaslAuthenticationFailed;
                            let message = error.to_string();
                            return refused(response, &LoginRefusal { code, message });
                        }
                    }
                }
                let response =
                    response.with_auth_bytes(bytes.into()).with_session_lifetime_ms(lifetime_ms);
                Answered { response: response.into(), goes_on: true }
            }
            Err(refusal) => {
                tracing::info!(address = %client.address, %refusal, "login refused");
                refused(response, &refusal)
            }
        }
    }
}

fn refused(response: SaslAuthenticateResponse, refusal: &LoginRefusal) -> Answered {
    let message = StrBytes::from_string(refusal.message.clone());
    let response = response.with_error_code(refusal.code.code()).with_error_message(Some(message));
    Answered { response: response.into(), goes_on: false }
}
