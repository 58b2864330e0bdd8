//! Connections of PostgreSQL's clients.
//!
//! ```text
//! serve ─▶ startup: TLS, login ─▶ connection: messages in turn ─▶ statement: runs each
//! ```
//!
//! Each connection has one task. A statement ends early when it is cancelled or times out, its
//! client disconnects, or the server stops.

mod connection;
mod copy;
mod counters;
mod extended;
mod interrupt;
mod io;
mod listener;
mod live;
mod look_up;
mod meaning;
mod outcome;
mod parameters;
mod registry;
mod rows;
mod shared;
mod startup;
mod state;
mod statement;
mod statistics;
mod transaction;
mod typed_tables;
mod work;

pub use counters::Counters;
pub use listener::serve;
pub use registry::QueryInfo;
pub use shared::Server;
