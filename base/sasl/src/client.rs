//! Client side of an exchange, as a state machine.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::error::{SaslError, SaslErrorKind};
use crate::keys::ClientKeys;
use crate::mechanism::{Mechanism, ScramHash};
use crate::messages::{Nonce, auth_message, text_of};
use crate::text::{check_name, check_secret, escape};

/// GS2 header: no channel binding, no authorization identity. The client-final message repeats it.
const GS2_HEADER: &str = "n,,";

/// Next step of the client after a message of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientStep {
    /// Send these bytes, then pass the server's answer to [`ClientExchange::answer`].
    Send(Vec<u8>),
    /// The login is complete. With SCRAM, the server has proved that it knows the user's keys.
    Done,
}

/// A login in progress. Holds the secret until the keys are derived.
///
/// Send [`ClientExchange::first_message`] first, and pass each answer of the server to
/// [`ClientExchange::answer`] until it returns `Done` or fails. A failed exchange cannot be
/// resumed.
pub struct ClientExchange {
    first: Vec<u8>,
    state: State,
}

enum State {
    /// PLAIN: the server's empty answer is awaited.
    PlainSent,
    ScramFirstSent {
        hash: ScramHash,
        secret: String,
        nonce: Nonce,
        bare: String,
    },
    ScramFinalSent {
        keys: ClientKeys,
        auth_message: Vec<u8>,
    },
    Over,
}

impl ClientExchange {
    /// Starts an exchange. `nonce` is used by SCRAM only and must be new for each exchange.
    pub fn new(
        mechanism: Mechanism,
        name: &str,
        secret: &str,
        nonce: Nonce,
    ) -> Result<Self, SaslError> {
        check_name(name)?;
        check_secret(secret)?;
        let Mechanism::Scram(hash) = mechanism else {
            let first = format!("\0{name}\0{secret}").into_bytes();
            return Ok(Self { first, state: State::PlainSent });
        };
        let bare = format!("n={},r={}", escape(name), nonce.as_str());
        let first = format!("{GS2_HEADER}{bare}").into_bytes();
        let secret = secret.to_owned();
        Ok(Self { first, state: State::ScramFirstSent { hash, secret, nonce, bare } })
    }

    pub fn first_message(&self) -> &[u8] {
        &self.first
    }

    /// Processes a message of the server. With SCRAM, the first one takes as long as deriving the
    /// keys.
    pub fn answer(&mut self, message: &[u8]) -> Result<ClientStep, SaslError> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::PlainSent if message.is_empty() => Ok(ClientStep::Done),
            State::PlainSent => {
                Err(SaslError::malformed("unexpected data from the server after PLAIN"))
            }
            State::ScramFirstSent { hash, secret, nonce, bare } => {
                let challenge = Challenge::parse(message, &nonce)?;
                let keys = ClientKeys::derive(
                    hash,
                    secret.as_bytes(),
                    &challenge.salt,
                    challenge.iterations,
                )?;
                let binding = BASE64.encode(GS2_HEADER);
                let without_proof = format!("c={binding},r={}", challenge.nonce);
                let auth_message = auth_message(&bare, challenge.text, &without_proof);
                let proof = BASE64.encode(keys.proof(&auth_message));
                self.state = State::ScramFinalSent { keys, auth_message };
                Ok(ClientStep::Send(format!("{without_proof},p={proof}").into_bytes()))
            }
            State::ScramFinalSent { keys, auth_message } => {
                accept_final(message, &keys, &auth_message)
            }
            State::Over => {
                Err(SaslError::malformed("the SASL exchange is complete; start another one"))
            }
        }
    }
}

/// Omits the secret.
impl fmt::Debug for ClientExchange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ClientExchange").finish_non_exhaustive()
    }
}

/// Parsed server-first message. Its nonce must extend the client's.
struct Challenge<'a> {
    text: &'a str,
    nonce: &'a str,
    salt: Vec<u8>,
    iterations: u32,
}

impl<'a> Challenge<'a> {
    fn parse(message: &'a [u8], own: &Nonce) -> Result<Self, SaslError> {
        let text = text_of(message)?;
        let wrong = || SaslError::malformed("invalid server-first-message of SCRAM");
        let mut attributes = text.split(',');
        let mut value = |prefix| attributes.next().and_then(|it| it.strip_prefix(prefix));
        let nonce = value("r=").ok_or_else(wrong)?;
        let salt = value("s=").ok_or_else(wrong)?;
        let iterations = value("i=").ok_or_else(wrong)?;
        let added = nonce.strip_prefix(own.as_str()).ok_or_else(|| {
            SaslError::malformed("the SCRAM nonce of the server does not begin with the client's")
        })?;
        Nonce::from_text(added)?;
        let salt = BASE64.decode(salt).map_err(|_| wrong())?;
        Ok(Self { text, nonce, salt, iterations: iterations.parse().map_err(|_| wrong())? })
    }
}

fn accept_final(
    message: &[u8],
    keys: &ClientKeys,
    auth_message: &[u8],
) -> Result<ClientStep, SaslError> {
    let text = text_of(message)?;
    if let Some(why) = text.strip_prefix("e=") {
        let what = format!("authentication failed: {}", why.escape_debug());
        return Err(SaslError::new(SaslErrorKind::Refused, what));
    }
    let signature = text.strip_prefix("v=").and_then(|it| it.split(',').next());
    let signature = signature.and_then(|it| BASE64.decode(it).ok());
    let wrong = || SaslError::malformed("invalid server-final-message of SCRAM");
    if !keys.accept_server(auth_message, &signature.ok_or_else(wrong)?) {
        let what = "the server cannot prove that it has the user's keys (wrong SCRAM signature): \
                    it may be an impostor";
        return Err(SaslError::new(SaslErrorKind::ServerUnproven, what));
    }
    Ok(ClientStep::Done)
}
