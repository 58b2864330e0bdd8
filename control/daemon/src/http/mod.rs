//! The REST interface over a Unix socket.
//!
//! | module | does |
//! |---|---|
//! | `listener` | accepts connections, bounds their number and their time |
//! | `access` | decides who may speak, by the credentials of the peer |
//! | `routes` | paths to operations of the service |
//! | `body`, `answer` | JSON in and out, problems as problem details |
//! | `metrics` | Prometheus' text format |
//!
//! Operations block, so each runs on a thread for that; this module itself never waits for the
//! engine or the kernel.

mod access;
mod answer;
mod body;
mod listener;
mod metrics;
mod routes;
#[cfg(test)]
mod tests;

pub(crate) use access::{AccessRule, gid_named};
pub(crate) use listener::{bind, serve};
