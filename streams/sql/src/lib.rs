//! SQL over topics, for PostgreSQL's clients: the protocol, statements, and the query engine.
//!
//! ```text
//! client ─▶ server ─▶ statements ─▶ engine ─▶ record-log
//!             │ messages   │ INSERT ─▶ Host::publish
//!            wire          └ cursors, settings
//! ```
//!
//! - [`Host`] is the interface to the program around the server: topics, users, permissions, and
//!   publishing to the log.
//! - [`serve`] accepts connections on the current runtime, and ends on request. The runtime must
//!   come from [`runtime`], separate from all threads that must not block. Queries run on threads
//!   of their own.
//!
//! Without the feature `engine` the crate contains no server, only the host's types, which live
//! queries and derived topics use too.
//!
//! Input from clients is bounded and validated before use. A query that exceeds its limits fails
//! alone.
#![forbid(unsafe_code)]
// Futures are moved into containment and interrupts with each statement.
#![deny(clippy::large_futures)]

mod definition;
#[cfg(feature = "engine")]
mod engine;
mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "engine")]
mod giving_up;
mod host;
#[cfg(feature = "engine")]
mod panics;
#[cfg(feature = "engine")]
mod permits;
#[cfg(feature = "engine")]
mod server;
mod settings;
#[cfg(feature = "engine")]
mod statements;
#[cfg(feature = "engine")]
mod typed;
#[cfg(feature = "engine")]
mod wire;

pub use definition::{Definition, DefinitionKind, NewDefinition, table_of};
pub use error::{SqlError, SqlState};
pub use host::{Client, Flow, Host, LiveQuery, LiveRows, Published, PublishedRecord};
#[cfg(feature = "engine")]
pub use server::{Counters, QueryInfo, Server, serve};
pub use settings::{Limits, runtime};
