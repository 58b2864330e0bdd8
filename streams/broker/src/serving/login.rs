//! SASL authentication of a connection (KIP-43, KIP-152).

use std::time::Instant;

use access::{LoginRefusal, LoginStep, Logins};
use kafka::WireError;
use kafka_protocol::messages::{
    RequestKind, ResponseKind, SaslAuthenticateResponse, SaslHandshakeRequest,
    SaslHandshakeResponse,
};
use kafka_protocol::protocol::StrBytes;
use sasl::Nonce;

use super::asked::Asked;
use super::client::Client;
use crate::broker::Broker;

/// Authentication state of a connection.
#[derive(Debug)]
pub(super) struct Login {
    logins: Logins,
    /// True while messages have no request headers: after SaslHandshake version 0, until the login
    /// ends.
    is_bare: bool,
    /// Time until which the client must reauthenticate.
    expires: Option<Instant>,
}

/// A response, and whether the connection remains open.
pub(super) struct Answered {
    pub(super) response: ResponseKind,
    pub(super) goes_on: bool,
}

impl Login {
    pub(super) fn new(broker: &Broker) -> Self {
        let logins = Logins::new(broker.rules.policy.logins.clone());
        Self { logins, is_bare: false, expires: None }
    }

    /// Returns whether the session has expired.
    pub(super) fn has_expired(&self) -> bool {
        self.expires.is_some_and(|expires| Instant::now() >= expires)
    }

    /// Returns whether the next message is a SASL token without a request header.
    pub(super) fn is_bare(&self) -> bool {
        self.is_bare
    }

    /// Returns the length of the next frame, like [`kafka::frame_bytes`].
    pub(super) fn frame_bytes(
        &self,
        bytes: &[u8],
        most: usize,
    ) -> Result<Option<usize>, WireError> {
        match self.is_bare {
            true => kafka::bare_message_bytes(bytes, most),
            false => kafka::frame_bytes(bytes, most),
        }
    }

    /// Handles SaslHandshake or SaslAuthenticate. Takes milliseconds at most.
    pub(super) fn take(
        &mut self,
        broker: &Broker,
        client: &Client,
        asked: Asked,
        request: &RequestKind,
    ) -> Option<Answered> {
        match request {
            RequestKind::SaslHandshake(it) => {
                let answered = self.handshake(broker, it);
                let has_begun = matches!(
                    &answered.response,
                    ResponseKind::SaslHandshake(it) if it.error_code == 0
                );
                self.is_bare = has_begun && asked.version == 0;
                Some(answered)
            }
            RequestKind::SaslAuthenticate(it) => {
                Some(self.authenticate(broker, client, &it.auth_bytes))
            }
            _ => None,
        }
    }

    /// Handles a message without a request header, and returns the reply's frame. A failed login
    /// has no reply, and the connection is closed.
    pub(super) fn take_bare(
        &mut self,
        broker: &Broker,
        client: &Client,
        message: &[u8],
    ) -> Option<Vec<u8>> {
        let answered = self.authenticate(broker, client, message);
        let ResponseKind::SaslAuthenticate(answer) = answered.response else { return None };
        self.is_bare = !self.logins.is_idle();
        answered.goes_on.then(|| {
            let mut frame = vec![0; kafka::LENGTH_BYTES];
            frame.extend_from_slice(&answer.auth_bytes);
            kafka::end_response(&mut frame, 0);
            frame
        })
    }

    fn handshake(&mut self, broker: &Broker, request: &SaslHandshakeRequest) -> Answered {
        let names = self.logins.mechanism_names().map(StrBytes::from_static_str).collect();
        let response = SaslHandshakeResponse::default().with_mechanisms(names);
        if !broker.rules.policy.protocol.has_sasl() {
            let error = kafka_protocol::ResponseError::IllegalSaslState;
            let response = response.with_error_code(error.code()).into();
            return Answered { response, goes_on: false };
        }
        let begun = Nonce::random()
            .ok()
            .map(|nonce| self.logins.handshake(&request.mechanism, broker.rules.users(), nonce));
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

    fn authenticate(&mut self, broker: &Broker, client: &Client, message: &[u8]) -> Answered {
        let response = SaslAuthenticateResponse::default().with_error_message(None);
        match self.logins.authenticate(message) {
            Ok(LoginStep::Continue(bytes)) => {
                Answered { response: response.with_auth_bytes(bytes.into()).into(), goes_on: true }
            }
            Ok(LoginStep::Done { bytes, session }) => {
                let lifetime_ms = session.lifetime_ms();
                self.expires = session.lifetime.map(|lifetime| Instant::now() + lifetime);
                if !client.is_known()
                    && let Err(error) = client.identify(broker, session.principal.clone())
                {
                    let code = kafka_protocol::ResponseError::SaslAuthenticationFailed;
                    let message = error.to_string();
                    let (address, principal) = (client.address, &session.principal);
                    tracing::warn!(%address, %principal, message, "connection refused");
                    return refused(response, &LoginRefusal { code, message });
                }
                let response =
                    response.with_auth_bytes(bytes.into()).with_session_lifetime_ms(lifetime_ms);
                Answered { response: response.into(), goes_on: true }
            }
            Err(refusal) => {
                tracing::info!(address = %client.address, %refusal, "authentication failed");
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
