//! SQL over topics, for PostgreSQL's clients: the protocol, statements, and the engine behind them.
//!
//! ```text
//! client ─▶ server ─▶ statements ─▶ engine ─▶ record-log
//!             │ messages   │ INSERT ─▶ Host::publish
//!            wire          └ cursors, settings
//! ```
//!
//! - [`Host`] is the program around it: topics, users and rights, and the way into the log.
//! - [`serve`] takes connections in and runs their queries on the runtime that it is called on, and
//!   ends when it is told to. That is one of [`runtime`], apart from all that must not wait.
//!
//! Without the feature `engine` there is no server: the host's types alone, which live queries and
//! derived topics use too.
//!
//! What clients send is bounded and checked before it is used, and a query that wants more than its
//! limits fails alone.
#![forbid(unsafe_code)]

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
pub use host::{Client, Host, LiveQuery, LiveRows, Published, PublishedRecord};
#[cfg(feature = "engine")]
pub use server::{Counters, QueryInfo, Server, serve};
pub use settings::{Limits, runtime};
