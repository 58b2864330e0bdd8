//! REST client of the daemon, with one connection for each request. [`Client`] blocks until the
//! response has arrived. [`converse`] is asynchronous and works on any connection.
//!
//! ```text
//! Client ── Address ── Unix socket or TCP port of the daemon
//!                  └── Console: HTTPS to a console with a verified certificate, with a token
//!                      or a session as credentials
//! ```
//!
//! The crate keeps no connection and no state between requests. A token is sent only after the
//! server has proved its identity.
#![forbid(unsafe_code)]

mod address;
mod client;
mod console;
mod error;
mod exchange;
mod session;
mod token;
mod trust;
mod url;

pub use address::Address;
pub use client::{Client, on_slow_answer};
pub use console::{Console, ConsoleTrust, Proof};
pub use error::{ConsoleRefusal, RestError};
pub use exchange::{Answer, Broken, converse, upgrade_request};
pub use session::Session;
pub use token::Token;
pub use trust::Pin;
