//! Server side of SASL authentication on one connection: SaslHandshake selects the mechanism,
//! SaslAuthenticate carries its messages, and both may be repeated before the session expires
//! (KIP-368).
//!
//! ```text
//! Idle ── handshake ──▶ Begun ── first message ──▶ Challenged (SCRAM alone)
//!   ▲                     │ PLAIN                     │ last message
//!   └──── Accepted ◀──────┴───────────────────────────┘
//!         any refusal ──▶ Closed: the connection is to be closed after the answer
//! ```
//!
//! An unknown name, a wrong secret and an authorization identity of another user result in the same
//! response bytes after the same work. Deriving the keys for PLAIN takes milliseconds. With SCRAM,
//! the client derives them.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use sasl::{
    ClientFinal, ClientFirst, Mechanism, Nonce, PlainLogin, SaslError, server_final, server_first,
};

use crate::principal::Principal;
use crate::users::{Candidate, Users};

/// Error message for every login with a wrong name, secret or proof.
const CREDENTIALS: &str = "authentication failed: invalid user name or password";

/// SASL state of one connection.
#[derive(Debug)]
pub struct Logins {
    settings: LoginSettings,
    state: State,
    session: Option<Session>,
}

/// Settings of logins on a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginSettings {
    pub mechanisms: Vec<Mechanism>,
    /// `connections.max.reauth.ms`; `None`: a session lasts as long as its connection.
    pub session_lifetime: Option<Duration>,
}

/// A successful login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub principal: Principal,
    pub mechanism: Mechanism,
    /// Time after which the client must have logged in again. Otherwise its next request closes the
    /// connection.
    pub lifetime: Option<Duration>,
}

impl Session {
    /// Returns `session_lifetime_ms` of SaslAuthenticate's response; 0 without a limit.
    pub fn lifetime_ms(&self) -> i64 {
        let millis = self.lifetime.map_or(0, |lifetime| lifetime.as_millis());
        i64::try_from(millis).unwrap_or(i64::MAX)
    }
}

/// Result of a step, with `auth_bytes` of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginStep {
    /// The client must send another message.
    Continue(Vec<u8>),
    Done {
        bytes: Vec<u8>,
        session: Session,
    },
}

/// Error response, without `auth_bytes`. Only after an unsupported mechanism may the client send
/// another handshake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LoginRefusal {
    pub code: ResponseError,
    pub message: String,
}

#[derive(Debug)]
enum State {
    Idle,
    Begun { mechanism: Mechanism, users: Arc<Users>, nonce: Nonce, name: Option<String> },
    Challenged(Box<Challenge>),
    Closed,
}

/// A SCRAM exchange after the server-first message.
struct Challenge {
    mechanism: Mechanism,
    first: ClientFirst,
    nonce: Nonce,
    message: String,
    candidate: Candidate,
}

impl Logins {
    pub fn new(settings: LoginSettings) -> Self {
        Self { settings, state: State::Idle, session: None }
    }

    /// Returns the session, if the client has logged in.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// Returns whether no login is in progress.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Returns the mechanisms for SaslHandshake's response.
    pub fn mechanism_names(&self) -> impl Iterator<Item = &'static str> {
        self.settings.mechanisms.iter().map(|mechanism| mechanism.name())
    }

    /// Starts a login as one of `users`. `nonce` must be new for each login.
    pub fn handshake(
        &mut self,
        mechanism: &str,
        users: Arc<Users>,
        nonce: Nonce,
    ) -> Result<(), LoginRefusal> {
        self.begin(mechanism, users, nonce, None)
    }

    /// Same as [`Logins::handshake`] for a client whose name is already known. The name in its
    /// SCRAM messages is ignored, as PostgreSQL's protocol requires.
    pub fn handshake_of(
        &mut self,
        name: &str,
        mechanism: &str,
        users: Arc<Users>,
        nonce: Nonce,
    ) -> Result<(), LoginRefusal> {
        self.begin(mechanism, users, nonce, Some(name.to_owned()))
    }

    fn begin(
        &mut self,
        mechanism: &str,
        users: Arc<Users>,
        nonce: Nonce,
        name: Option<String>,
    ) -> Result<(), LoginRefusal> {
        if !matches!(self.state, State::Idle) {
            return Err(self.close(out_of_turn("SaslHandshake during a login")));
        }
        let named = Mechanism::from_name(mechanism);
        let Some(mechanism) = named.filter(|it| self.settings.mechanisms.contains(it)) else {
            let names: Vec<_> = self.mechanism_names().collect();
            let message = format!(
                "SASL mechanism not enabled in the server; enabled mechanisms are {}",
                names.join(", ")
            );
            return Err(refusal(ResponseError::UnsupportedSaslMechanism, message));
        };
        if self.session.as_ref().is_some_and(|session| session.mechanism != mechanism) {
            let message = "a re-authentication must use the mechanism of the first login";
            return Err(self.close(out_of_turn(message)));
        }
        self.state = State::Begun { mechanism, users, nonce, name };
        Ok(())
    }

    /// Processes `auth_bytes` of a client.
    pub fn authenticate(&mut self, message: &[u8]) -> Result<LoginStep, LoginRefusal> {
        let step = match std::mem::replace(&mut self.state, State::Closed) {
            State::Begun { mechanism: Mechanism::Plain, users, .. } => {
                let name = check_plain(message, &users)?;
                self.accept(&name, Mechanism::Plain, Vec::new())
            }
            State::Begun { mechanism, users, nonce, name } => {
                let first = match name {
                    Some(name) => ClientFirst::parse_of(message, &name),
                    None => ClientFirst::parse(message),
                };
                let first = first.map_err(malformed)?;
                let challenge = Challenge::new(mechanism, first, nonce, &users);
                let bytes = challenge.message.clone().into_bytes();
                self.state = State::Challenged(Box::new(challenge));
                Ok(LoginStep::Continue(bytes))
            }
            State::Challenged(challenge) => {
                let bytes = challenge.check(message)?;
                self.accept(&challenge.first.name, challenge.mechanism, bytes)
            }
            State::Idle | State::Closed => {
                Err(out_of_turn("SaslAuthenticate without a preceding SaslHandshake"))
            }
        }?;
        Ok(step)
    }

    fn accept(
        &mut self,
        name: &str,
        mechanism: Mechanism,
        bytes: Vec<u8>,
    ) -> Result<LoginStep, LoginRefusal> {
        let principal = Principal::user(name).map_err(|_| wrong_credentials())?;
        if self.session.as_ref().is_some_and(|session| session.principal != principal) {
            let message = "a re-authentication must use the user of the first login";
            return Err(refusal(ResponseError::SaslAuthenticationFailed, message));
        }
        let session = Session { principal, mechanism, lifetime: self.settings.session_lifetime };
        self.session = Some(session.clone());
        self.state = State::Idle;
        Ok(LoginStep::Done { bytes, session })
    }

    fn close(&mut self, refusal: LoginRefusal) -> LoginRefusal {
        self.state = State::Closed;
        refusal
    }
}

impl Challenge {
    fn new(mechanism: Mechanism, first: ClientFirst, nonce: Nonce, users: &Users) -> Self {
        let hash = match mechanism {
            Mechanism::Scram(hash) => Some(hash),
            Mechanism::Plain => None,
        };
        let candidate = users.candidate(&first.name, hash);
        let message = server_first(&first.nonce, &nonce, &candidate.keys);
        Self { mechanism, first, nonce, message, candidate }
    }

    /// Verifies the client-final message. Returns the server-final message if the proof is valid.
    fn check(&self, message: &[u8]) -> Result<Vec<u8>, LoginRefusal> {
        let last = ClientFinal::parse(message).map_err(malformed)?;
        let auth_message = self.first.auth_message(&self.message, &last);
        // All checks are computed for every client, so that timing reveals nothing.
        let is_proved = self.candidate.keys.accept_proof(&auth_message, &last.proof);
        let follows = last.follows(&self.first, &self.nonce);
        let is_own = acts_for_itself(self.first.authorization.as_deref(), &self.first.name);
        let answer = server_final(&self.candidate.keys, &auth_message);
        if is_proved && follows && is_own && self.candidate.is_known {
            Ok(answer.into_bytes())
        } else {
            Err(wrong_credentials())
        }
    }
}

/// Omits keys and nonces.
impl std::fmt::Debug for Challenge {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Challenge").field("name", &self.first.name).finish_non_exhaustive()
    }
}

/// Verifies a PLAIN message. Returns the user's name.
fn check_plain(message: &[u8], users: &Users) -> Result<String, LoginRefusal> {
    let login = PlainLogin::parse(message).map_err(malformed)?;
    let is_right = users.verify(login.name, login.secret);
    if is_right && acts_for_itself(login.authorization, login.name) {
        Ok(login.name.to_owned())
    } else {
        Err(wrong_credentials())
    }
}

fn acts_for_itself(authorization: Option<&str>, name: &str) -> bool {
    authorization.is_none_or(|authorization| authorization == name)
}

fn wrong_credentials() -> LoginRefusal {
    refusal(ResponseError::SaslAuthenticationFailed, CREDENTIALS)
}

fn malformed(error: SaslError) -> LoginRefusal {
    refusal(ResponseError::SaslAuthenticationFailed, format!("authentication failed: {error}"))
}

fn out_of_turn(message: &str) -> LoginRefusal {
    refusal(ResponseError::IllegalSaslState, message)
}

fn refusal(code: ResponseError, message: impl Into<String>) -> LoginRefusal {
    LoginRefusal { code, message: message.into() }
}
