//! SASL PLAIN (RFC 4616) and SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): keys, messages,
//! and the client's side as a state machine over bytes.
//!
//! ```text
//! client: ClientExchange                       server: built on PlainLogin, ClientFirst, ...
//!   first_message ── client-first ──────────▶  ClientFirst::parse
//!   answer        ◀── server-first ──────────  server_first
//!                 ── client-final ──────────▶  ClientFinal::parse, ScramKeys::accept_proof
//!   answer        ◀── server-final ──────────  server_final
//! ```
//!
//! The crate does no network I/O, never blocks, and stores no secret: users are represented by
//! salted keys. Channel binding is not supported. Names and secrets are printable ASCII, which
//! SASLprep (RFC 4013) leaves unchanged. Kafka's own clients send other characters without
//! SASLprep, so the same secret, typed on two systems, could result in different keys.
#![forbid(unsafe_code)]

mod client;
mod error;
mod keys;
mod mechanism;
mod messages;
mod text;

pub use client::{ClientExchange, ClientStep};
pub use error::{SaslError, SaslErrorKind};
pub use keys::{
    ITERATIONS_DEFAULT, ITERATIONS_MAX, ITERATIONS_MIN, SALT_BYTES, SALT_BYTES_MAX, SALT_BYTES_MIN,
    ScramKeys,
};
pub use mechanism::{Mechanism, ScramHash};
pub use messages::{
    ClientFinal, ClientFirst, MESSAGE_BYTES_MAX, Nonce, PlainLogin, server_final, server_first,
};
pub use text::{NAME_BYTES_MAX, SECRET_BYTES_MAX, check_name, check_secret};
