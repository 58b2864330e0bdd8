//! Requests to a daemon over its REST interface, one connection for each: for programs that wait
//! for the answer. [`converse`] is for those that do other things meanwhile, over any connection.
//!
//! ```text
//! Client ── Address ── a socket, or a port of this host: the daemon itself
//!                  └── Console: HTTPS, with a token or a session that says who asks, to a
//!                      console whose certificate is believed
//! ```
//!
//! It holds no connection and no state between requests. A token is sent to nobody before the other
//! end has proved who it is.
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
pub use client::Client;
pub use console::{Console, ConsoleTrust, Proof};
pub use error::{ConsoleRefusal, RestError};
pub use exchange::{Answer, Broken, converse, upgrade_request};
pub use session::Session;
pub use token::Token;
pub use trust::Pin;
