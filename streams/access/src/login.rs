//! The server's side of logins on one connection: SaslHandshake names the mechanism,
//! SaslAuthenticate carries the bytes, and both may come again before the session ends (KIP-368).
//!
//! ```text
//! Idle ── handshake ──▶ Begun ── first message ──▶ Challenged (SCRAM alone)
//!   ▲                     │ PLAIN                     │ last message
//!   └──── Accepted ◀──────┴───────────────────────────┘
//!         any refusal ──▶ Closed: the connection is to be closed after the answer
//! ```
//!
//! A name that is not known, a wrong secret and a name that acts for another get the same bytes
//! after the same work. Deriving the keys for PLAIN takes milliseconds; SCRAM leaves that to the
//! client.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use sasl::{
    ClientFinal, ClientFirst, Mechanism, Nonce, PlainLogin, SaslError, server_final, server_first,
};

use crate::principal::Principal;
use crate::users::{Candidate, Users};

/// What each login that is refused for its name, secret or proof is told.
const CREDENTIALS: &str = "authentication failed: invalid user name or password";

/// The logins of one connection.
#[derive(Debug)]
pub struct Logins {
    settings: LoginSettings,
    state: State,
    session: Option<Session>,
}

/// Mechanisms with which a listener lets clients log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginSettings {
    pub mechanisms: Vec<Mechanism>,
    /// `connections.max.reauth.ms`; `None`: a session lasts as long as its connection.
    pub session_lifetime: Option<Duration>,
}

/// A login that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub principal: Principal,
    pub mechanism: Mechanism,
    /// The client logs in again before it is over, or is disconnected with its next request.
    pub lifetime: Option<Duration>,
}

impl Session {
    /// `session_lifetime_ms` of SaslAuthenticate's answer; 0 without a limit.
    pub fn lifetime_ms(&self) -> i64 {
        let millis = self.lifetime.map_or(0, |lifetime| lifetime.as_millis());
        i64::try_from(millis).unwrap_or(i64::MAX)
    }
}

/// `auth_bytes` of an answer without an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginStep {
    /// The client sends another message.
    Continue(Vec<u8>),
    Done {
        bytes: Vec<u8>,
        session: Session,
    },
}

/// An answer with an error, without `auth_bytes`. Only an unsupported mechanism may be followed
/// by another handshake.
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

/// A SCRAM exchange after the server's first message.
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

    /// Who has logged in, if a client has.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// Returns whether no login is under way.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// The names for SaslHandshake's answer.
    pub fn mechanism_names(&self) -> impl Iterator<Item = &'static str> {
        self.settings.mechanisms.iter().map(|mechanism| mechanism.name())
    }

    /// Begins a login among `users`. `nonce` is new for each.
    pub fn handshake(
        &mut self,
        mechanism: &str,
        users: Arc<Users>,
        nonce: Nonce,
    ) -> Result<(), LoginRefusal> {
        self.begin(mechanism, users, nonce, None)
    }

    /// Handshake as [`Logins::handshake`], of a client that has said its name: the name in its
    /// SCRAM messages counts for nothing. So do PostgreSQL's clients.
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
            let message = format!("the mechanism is not enabled; use {}", names.join(", "));
            return Err(refusal(ResponseError::UnsupportedSaslMechanism, message));
        };
        if self.session.as_ref().is_some_and(|session| session.mechanism != mechanism) {
            let message = "a re-authentication must use the mechanism of the first login";
            return Err(self.close(out_of_turn(message)));
        }
        self.state = State::Begun { mechanism, users, nonce, name };
        Ok(())
    }

    /// Takes `auth_bytes` of a client.
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

    /// The server's last message, if the client's proves that it knows the secret.
    fn check(&self, message: &[u8]) -> Result<Vec<u8>, LoginRefusal> {
        let last = ClientFinal::parse(message).map_err(malformed)?;
        let auth_message = self.first.auth_message(&self.message, &last);
        // All of it is computed for each client, so that time tells nothing.
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

/// Without the keys and nonces.
impl std::fmt::Debug for Challenge {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Challenge").field("name", &self.first.name).finish_non_exhaustive()
    }
}

/// The user's name, if the secret is the user's.
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
